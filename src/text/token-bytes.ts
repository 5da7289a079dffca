/**
 * What each token adds to the text, as bytes.
 *
 * A tokenizer's `decoder` is a chain of rules over the token texts of a whole sequence. For language models
 * they amount to one fixed byte string per token, and at most one rule about the sequence (leading spaces are
 * dropped). Worked out once, decoding is a copy of bytes: no token is decoded twice, and a token's text never
 * depends on its neighbours but for the UTF-8 sequences that cross their borders.
 */
import type { AddedTokenEntry } from './encoding/encoder.js';
import { readTokenDecoder } from './token-decoder.js';
import type { TokenizerDefinition } from './tokenizer-definition.js';

/** Bytes of all tokens, one after another. */
interface Pieces {
  readonly data: Uint8Array;
  /** `[size + 1]`: token `id` is `data[offsets[id] .. offsets[id + 1])`; a hole in the vocabulary is empty. */
  readonly offsets: Uint32Array;
}

/** Plain data over shared memory: posting it to a thread copies nothing. */
export interface TokenTable extends Pieces {
  /** The bytes of tokens as the first of their text, where a decoder has others for it. */
  readonly first?: Pieces;
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
 * @param addedText the text of an added token that the decoder is given
 * @throws KvantError `tokenizer-unsupported` for a decoder that does not come down to bytes per token
 */
export function buildTokenTable(
  definition: TokenizerDefinition,
  specialIds: ReadonlySet<number>,
  addedText: (token: AddedTokenEntry) => string,
  where: string,
): TokenTable {
  const decoder = readTokenDecoder(definition.decoder, where);
  const tokens = [...definition.vocab];
  for (const token of definition.addedTokens) tokens[token.id] = addedText(token);
  const size = tokens.length;
  const flags = new Uint8Array(new SharedArrayBuffer(size));
  for (let id = 0; id < size; id++) {
    if (tokens[id] !== undefined) flags[id] = TOKEN_KNOWN | (specialIds.has(id) ? TOKEN_SPECIAL : 0);
  }
  const all = (first: boolean): Pieces =>
    joined(Array.from(tokens, (token) => (token === undefined ? undefined : decoder.bytesOf(token, first))));
  return {
    ...all(false),
    ...(decoder.firstDiffers ? { first: all(true) } : {}),
    flags,
    size,
    leadingCount: decoder.leadingCount,
    leadingByte: decoder.leadingByte,
  };
}

function joined(pieces: readonly (Uint8Array | undefined)[]): Pieces {
  const offsets = new Uint32Array(new SharedArrayBuffer(4 * (pieces.length + 1)));
  pieces.forEach((piece, id) => {
    offsets[id + 1] = offsets[id]! + (piece?.length ?? 0);
  });
  const data = new Uint8Array(new SharedArrayBuffer(offsets[pieces.length]!));
  pieces.forEach((piece, id) => {
    if (piece !== undefined) data.set(piece, offsets[id]!);
  });
  return { data, offsets };
}
