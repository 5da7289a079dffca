/**
 * What each token adds to the text, as bytes.
 *
 * A tokenizer's `decoder` is a chain of rules over the token texts of a whole sequence. For language models
 * they amount to one fixed byte string per token, and at most one rule about the sequence (leading spaces are
 * dropped). Worked out once, decoding is a copy of bytes: no token is decoded twice, and a token's text never
 * depends on its neighbours but for the UTF-8 sequences that cross their borders.
 */
import { KvantError } from '../errors.js';
import { isJsonObject, type JsonObject } from './json-file.js';
import type { TokenizerDefinition } from './tokenizer-definition.js';

/** Plain data over shared memory: posting it to a thread copies nothing. */
export interface TokenTable {
  /** Bytes of all tokens, one after another. */
  readonly data: Uint8Array;
  /** `[size + 1]`: token `id` is `data[offsets[id] .. offsets[id + 1])`; a hole in the vocabulary is empty. */
  readonly offsets: Uint32Array;
  /** `[size]`: {@link TOKEN_KNOWN} and {@link TOKEN_SPECIAL} bits. */
  readonly flags: Uint8Array;
  /** Rows of the table: the tokenizer's highest id plus one. */
  readonly size: number;
  /** How many bytes equal to {@link leadingByte} are dropped at the start of a sequence. */
  readonly leadingCount: number;
  readonly leadingByte: number;
}

/** The id has a token. */
export const TOKEN_KNOWN = 1;
/** The token is special: left out of the text unless asked for. */
export const TOKEN_SPECIAL = 2;

/** The bytes of one token: a view, empty for an id that has none. */
export function tokenBytes(table: TokenTable, id: number): Uint8Array {
  if (!(id >= 0 && id < table.size)) return table.data.subarray(0, 0);
  return table.data.subarray(table.offsets[id]!, table.offsets[id + 1]!);
}

/**
 * Builds the table of a tokenizer.
 *
 * @throws KvantError `tokenizer-unsupported` for a decoder that does not come down to bytes per token
 */
export function buildTokenTable(
  definition: TokenizerDefinition,
  specialIds: ReadonlySet<number>,
  where: string,
): TokenTable {
  const rules = readDecoder(definition.decoder, where);
  const encoder = new TextEncoder();
  const pieces: (Uint8Array | undefined)[] = definition.vocab.map((token) =>
    token === undefined ? undefined : rules.bytesOf(token, encoder),
  );
  for (const token of definition.addedTokens) {
    pieces[token.id] = rules.bytesOfAdded(token.content, encoder);
  }

  const size = pieces.length;
  const offsets = new Uint32Array(new SharedArrayBuffer(4 * (size + 1)));
  const flags = new Uint8Array(new SharedArrayBuffer(size));
  for (let id = 0; id < size; id++) {
    const piece = pieces[id];
    offsets[id + 1] = offsets[id]! + (piece?.length ?? 0);
    if (piece !== undefined) flags[id] = TOKEN_KNOWN | (specialIds.has(id) ? TOKEN_SPECIAL : 0);
  }
  const data = new Uint8Array(new SharedArrayBuffer(offsets[size]!));
  pieces.forEach((piece, id) => {
    if (piece !== undefined) data.set(piece, offsets[id]!);
  });
  return {
    data,
    offsets,
    flags,
    size,
    leadingCount: rules.leadingCount,
    leadingByte: rules.leadingByte,
  };
}

/** The type `TextEncoder` is not declared without the DOM library. */
type Encoder = InstanceType<typeof TextEncoder>;

interface DecoderRules {
  bytesOf(token: string, encoder: Encoder): Uint8Array;
  bytesOfAdded(token: string, encoder: Encoder): Uint8Array;
  readonly leadingCount: number;
  readonly leadingByte: number;
}

function unsupported(where: string, what: string): KvantError {
  return new KvantError('tokenizer-unsupported', `Cannot decode with this tokenizer: ${what}`, {
    kind: 'unsupported',
    where,
    fix: 'kvant decodes byte-level BPE (Qwen, Llama 3) and sentencepiece style (Llama 2, Mistral, Gemma) tokenizers.',
  });
}

function readDecoder(decoder: JsonObject | null, where: string): DecoderRules {
  if (decoder === null) throw unsupported(where, 'tokenizer.json has no decoder');
  const steps = flatten(decoder, where);
  return steps.length === 1 && steps[0]!.type === 'ByteLevel' ? byteLevelRules() : pieceRules(steps, where);
}

/** The decoders in order; sequences may be nested. */
function flatten(decoder: JsonObject, where: string): JsonObject[] {
  if (decoder.type !== 'Sequence') return [decoder];
  const inner = decoder.decoders;
  if (!Array.isArray(inner)) throw unsupported(where, 'the decoder sequence has no list of decoders');
  return inner.flatMap((step: unknown) => {
    if (!isJsonObject(step)) throw unsupported(where, 'a decoder is not an object');
    return flatten(step, where);
  });
}

/**
 * The byte alphabet of GPT-2: every byte has one printable character. Printable Latin-1 stands for itself, the
 * other bytes take the characters from U+0100 on, in order.
 */
export function byteAlphabet(): Map<string, number> {
  const alphabet = new Map<string, number>();
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    alphabet.set(String.fromCharCode(printable ? byte : next++), byte);
  }
  return alphabet;
}

function byteLevelRules(): DecoderRules {
  const alphabet = byteAlphabet();
  return {
    bytesOf(token, encoder) {
      const bytes: number[] = [];
      for (const character of token) {
        const byte = alphabet.get(character);
        // A token with a character outside the alphabet was not made by the byte-level step: it is plain text.
        if (byte === undefined) return encoder.encode(token);
        bytes.push(byte);
      }
      return Uint8Array.from(bytes);
    },
    bytesOfAdded: (token, encoder) => encoder.encode(token),
    leadingCount: 0,
    leadingByte: 0,
  };
}

/**
 * Sentencepiece style: text replacements per token, `<0xNN>` for single bytes, then rules on the joined text,
 * of which only dropping leading characters is known.
 */
function pieceRules(steps: readonly JsonObject[], where: string): DecoderRules {
  const replacements: ((token: string) => string)[] = [];
  let byteFallback = false;
  let fused = false;
  let leadingCount = 0;
  let leadingByte = 0;

  const leading = (content: unknown, count: number): void => {
    const code = typeof content === 'string' && content.length === 1 ? content.charCodeAt(0) : 0x80;
    if (code >= 0x80)
      throw unsupported(where, 'the Strip decoder drops something else than an ASCII character');
    if (leadingCount > 0) throw unsupported(where, 'two decoders drop leading characters');
    leadingCount = count;
    leadingByte = code;
  };

  for (const step of steps) {
    const type = step.type;
    if (fused && type !== 'Strip' && type !== 'Fuse') {
      throw unsupported(where, `the decoder ${String(type)} works on the joined text`);
    }
    switch (type) {
      case 'Replace':
        replacements.push(replacement(step, where));
        break;
      case 'Metaspace': {
        const mark = typeof step.replacement === 'string' ? step.replacement : '\u2581';
        replacements.push((token) => token.replaceAll(mark, ' '));
        // Files from before `prepend_scheme` say the same with `add_prefix_space`.
        const never = step.prepend_scheme === 'never' || step.add_prefix_space === false;
        if (!never) leading(' ', 1);
        break;
      }
      case 'ByteFallback':
        byteFallback = true;
        break;
      case 'Fuse':
        fused = true;
        break;
      case 'Strip': {
        const start = count(step.start);
        const stop = count(step.stop);
        if (!fused) {
          replacements.push(strip(String(step.content ?? ''), start, stop));
        } else if (stop > 0) {
          throw unsupported(where, 'the Strip decoder drops characters at the end of the text');
        } else if (start > 0) {
          leading(step.content, start);
        }
        break;
      }
      default:
        throw unsupported(where, `the decoder ${JSON.stringify(type)} is not known`);
    }
  }

  const bytesOf = (token: string, encoder: Encoder): Uint8Array => {
    // No replacement makes or unmakes a byte token, so the order of these two steps does not matter.
    const byte = byteFallback ? /^<0x([0-9A-Fa-f]{2})>$/.exec(token) : null;
    if (byte !== null) return Uint8Array.of(Number.parseInt(byte[1]!, 16));
    return encoder.encode(replacements.reduce((text, replace) => replace(text), token));
  };
  return { bytesOf, bytesOfAdded: bytesOf, leadingCount, leadingByte };
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 ? Math.floor(value) : 0;
}

function replacement(step: JsonObject, where: string): (token: string) => string {
  const pattern = step.pattern;
  const content = typeof step.content === 'string' ? step.content : '';
  if (isJsonObject(pattern) && typeof pattern.String === 'string') {
    const text = pattern.String;
    return (token) => token.replaceAll(text, () => content);
  }
  if (isJsonObject(pattern) && typeof pattern.Regex === 'string') {
    try {
      const regex = new RegExp(pattern.Regex, 'gu');
      return (token) => token.replace(regex, () => content);
    } catch {
      throw unsupported(where, `the Replace decoder's expression ${pattern.Regex} is not understood`);
    }
  }
  throw unsupported(where, 'the Replace decoder has no pattern');
}

function strip(content: string, start: number, stop: number): (token: string) => string {
  return (token) => {
    let from = 0;
    let to = token.length;
    while (from < start && token[from] === content) from++;
    while (token.length - to < stop && to > from && token[to - 1] === content) to--;
    return token.slice(from, to);
  };
}
