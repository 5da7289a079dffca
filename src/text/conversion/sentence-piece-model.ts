/** A file of SentencePiece (`tokenizer.model`), a protocol buffer `ModelProto` (sentencepiece_model.proto): what of it ids depend on. */

export interface SentencePieceModel {
  readonly pieces: readonly string[];
  readonly scores: readonly number[];
  /** {@link PIECE}. */
  readonly types: readonly number[];
  readonly kind: 'unigram' | 'bpe';
  readonly byteFallback: boolean;
  /** How characters become others, as it is stored; null where they stay. */
  readonly charsmap: Uint8Array | null;
  /** A text begins with a space. */
  readonly addsPrefix: boolean;
  /** Spaces at both ends go, and one stays of several. */
  readonly trims: boolean;
}

/** `SentencePiece.Type`. */
export const PIECE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

type Field =
  | { readonly kind: 'number'; readonly value: number }
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array };

/** The fields of a message, in order, by number. Throws where the bytes are none. */
function* fieldsOf(bytes: Uint8Array): Generator<readonly [number, Field]> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let power = 0; power < 10; power++) {
      const byte = view.getUint8(at++);
      value += (byte & 127) * 2 ** (7 * power);
      if (byte < 128) return value;
    }
    throw new RangeError('a number has no end');
  };
  while (at < bytes.length) {
    const key = varint();
    const [number, wire] = [Math.floor(key / 8), key % 8];
    if (wire === VARINT) yield [number, { kind: 'number', value: varint() }];
    else if (wire === FIXED32) {
      yield [number, { kind: 'number', value: view.getFloat32(at, true) }];
      at += 4;
    } else if (wire === FIXED64) at += 8;
    else if (wire === BYTES) {
      const length = varint();
      if (at + length > bytes.length) throw new RangeError('a field goes beyond the end');
      yield [number, { kind: 'bytes', bytes: bytes.subarray(at, at + length) }];
      at += length;
    } else throw new RangeError(`a field of the kind ${wire}`);
  }
}

/** The last value of each field that is a number, and of each that is bytes. */
class Message {
  readonly #fields: ReadonlyMap<number, Field>;

  constructor(bytes: Uint8Array) {
    this.#fields = new Map(fieldsOf(bytes));
  }

  number(field: number, fallback: number): number {
    const found = this.#fields.get(field);
    return found?.kind === 'number' ? found.value : fallback;
  }

  flag(field: number, fallback: boolean): boolean {
    return this.number(field, fallback ? 1 : 0) !== 0;
  }

  bytes(field: number): Uint8Array {
    const found = this.#fields.get(field);
    return found?.kind === 'bytes' ? found.bytes : new Uint8Array(0);
  }
}

const KINDS: Readonly<Record<number, SentencePieceModel['kind']>> = { 1: 'unigram', 2: 'bpe' };

/** @throws Error for bytes that are no such file, and for what kvant does not compute */
export function readSentencePiece(bytes: Uint8Array): SentencePieceModel {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const pieces: string[] = [];
  const scores: number[] = [];
  const types: number[] = [];
  let trainer = new Message(new Uint8Array(0));
  let normalizer = trainer;
  for (const [number, field] of fieldsOf(bytes)) {
    if (field.kind !== 'bytes') continue;
    if (number === 1) {
      const piece = new Message(field.bytes);
      pieces.push(decoder.decode(piece.bytes(1)));
      scores.push(piece.number(2, 0));
      types.push(piece.number(3, PIECE.normal));
    } else if (number === 2) trainer = new Message(field.bytes);
    else if (number === 3) normalizer = new Message(field.bytes);
  }
  if (pieces.length === 0) throw new RangeError('it has no pieces');
  const kind = KINDS[trainer.number(3, 1)];
  if (kind === undefined) throw new RangeError('its pieces are words or characters');
  if (trainer.flag(24, false)) throw new RangeError('its words end with their space');
  if (!normalizer.flag(5, true)) throw new RangeError('it leaves spaces as they are');
  const charsmap = normalizer.bytes(2);
  return {
    pieces,
    scores,
    types,
    kind,
    byteFallback: trainer.flag(35, false),
    charsmap: charsmap.length === 0 ? null : charsmap,
    addsPrefix: normalizer.flag(3, true),
    trims: normalizer.flag(4, true),
  };
}
