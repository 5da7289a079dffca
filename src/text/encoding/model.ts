/** The `model` of a tokenizer definition: from a piece of text to token ids. */
export interface Model {
  /**
   * Adds the ids of a piece to `ids`. A part that the vocabulary cannot spell and that has no unknown token either is
   * left out, as the reference leaves it out.
   *
   * @throws Error where the model says that there must be an unknown token and there is none
   */
  encode(piece: string, ids: number[]): void;
}

/** The ids of `<0x00>` to `<0xFF>`, -1 for one that the vocabulary lacks. */
export function byteTokenIds(vocab: ReadonlyMap<string, number>): Int32Array {
  return Int32Array.from({ length: 256 }, (_, byte) => {
    return vocab.get(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`) ?? -1;
  });
}

const encoder = new TextEncoder();

/** The ids of a text's bytes as tokens of one byte, undefined where one of them has none. */
export function spellBytes(text: string, byteIds: Int32Array): number[] | undefined {
  const ids: number[] = [];
  for (const byte of encoder.encode(text)) {
    const id = byteIds[byte]!;
    if (id < 0) return undefined;
    ids.push(id);
  }
  return ids;
}
