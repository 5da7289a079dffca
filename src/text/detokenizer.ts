import { TOKEN_SPECIAL, type TokenTable } from './token-bytes.js';
import { incompleteSuffixLength } from './utf8.js';

export interface DetokenizerOptions {
  /** Leave special tokens (BOS, EOS, turn markers) out of the text. Default true. */
  readonly skipSpecialTokens?: boolean;
  /** Special tokens that are not left out. Default: none. */
  readonly spelled?: ReadonlySet<number>;
  /**
   * The ids continue a text instead of beginning one: a tokenizer that drops a leading space keeps it then.
   * Set it where a raw prompt is continued, so that prompt + output reads as one text. Default false.
   */
  readonly continuation?: boolean;
}

/**
 * Token ids to text, one at a time.
 *
 * What `push` returns is final: the pieces joined are the text of the whole sequence, and no piece holds half a
 * character. A token costs time in its own length, whatever came before it.
 */
export class Detokenizer {
  readonly #table: TokenTable;
  readonly #texts: (string | null | undefined)[];
  readonly #skipSpecial: boolean;
  readonly #spelled: ReadonlySet<number>;
  readonly #leadingCount: number;
  /** Bytes of an unfinished character, then those of the token at hand. */
  #scratch = new Uint8Array(64);
  #held = 0;
  /** Leading bytes that may still be dropped; 0 once the text has begun. */
  #leading: number;
  /** The next token is the first of a text, which has bytes of its own. */
  #first: boolean;
  readonly #firstDiffers: boolean;

  constructor(table: TokenTable, options: DetokenizerOptions = {}) {
    this.#table = table;
    this.#texts = textsOf(table);
    this.#skipSpecial = options.skipSpecialTokens ?? true;
    this.#spelled = options.spelled ?? NONE;
    this.#leadingCount = options.continuation === true ? 0 : table.leadingCount;
    this.#leading = this.#leadingCount;
    this.#firstDiffers = table.first !== undefined && options.continuation !== true;
    this.#first = this.#firstDiffers;
  }

  /** Takes the next id; returns the text that is certain now, often that of this token, sometimes none. */
  push(id: number): string {
    const table = this.#table;
    // Ids beyond the tokenizer exist where the model's vocabulary is padded: they have no text.
    if (!(id >= 0 && id < table.size)) return '';
    if (this.#skipSpecial && (table.flags[id]! & TOKEN_SPECIAL) !== 0 && !this.#spelled.has(id)) return '';
    if (this.#first) {
      const { data, offsets } = table.first!;
      this.#first = false;
      return this.#pushBytes(data, offsets[id]!, offsets[id + 1]!);
    }
    if (this.#held === 0 && this.#leading === 0) {
      let text = this.#texts[id];
      if (text === undefined) {
        text = wholeText(table, id);
        this.#texts[id] = text;
      }
      if (text !== null) return text;
    }
    return this.#pushBytes(table.data, table.offsets[id]!, table.offsets[id + 1]!);
  }

  /** Ends the sequence: an unfinished character becomes U+FFFD. The detokenizer then begins a new sequence. */
  flush(): string {
    const text = this.#held === 0 ? '' : decodeUtf8(this.#scratch.slice(0, this.#held));
    this.#held = 0;
    this.#leading = this.#leadingCount;
    this.#first = this.#firstDiffers;
    return text;
  }

  /** True while bytes of an unfinished character are held. */
  get pending(): boolean {
    return this.#held > 0;
  }

  #pushBytes(data: Uint8Array, start: number, end: number): string {
    const { leadingByte } = this.#table;
    let from = start;
    while (this.#leading > 0 && from < end) {
      if (data[from] !== leadingByte) {
        this.#leading = 0;
        break;
      }
      from++;
      this.#leading--;
    }
    const length = this.#held + end - from;
    if (length > this.#scratch.length) {
      const grown = new Uint8Array(2 * length);
      grown.set(this.#scratch.subarray(0, this.#held));
      this.#scratch = grown;
    }
    const scratch = this.#scratch;
    for (let i = from, at = this.#held; i < end; i++) scratch[at++] = data[i]!;
    const held = incompleteSuffixLength(scratch, length);
    const text = decodeUtf8(scratch.subarray(0, length - held));
    scratch.copyWithin(0, length - held, length);
    this.#held = held;
    return text;
  }
}

const NONE: ReadonlySet<number> = new Set();

/** A BOM is text like any other; broken bytes become U+FFFD. */
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

function decodeUtf8(bytes: Uint8Array): string {
  return bytes.length === 0 ? '' : decoder.decode(bytes);
}

/** Texts of tokens that are whole characters, made on first use and shared by all detokenizers of a table. */
const cache = new WeakMap<Uint8Array, (string | null | undefined)[]>();

function textsOf(table: TokenTable): (string | null | undefined)[] {
  let texts = cache.get(table.data);
  if (texts === undefined) {
    texts = new Array<string | null | undefined>(table.size).fill(undefined);
    cache.set(table.data, texts);
  }
  return texts;
}

/**
 * The token's text if no character is unfinished at its end, else null: then it hangs on what follows. (At its
 * front, where nothing is held, stray continuation bytes are broken whatever follows.)
 */
function wholeText(table: TokenTable, id: number): string | null {
  const bytes = table.data.slice(table.offsets[id]!, table.offsets[id + 1]!);
  return incompleteSuffixLength(bytes) > 0 ? null : decodeUtf8(bytes);
}
