/** The `Precompiled` normalizer: sentencepiece's table of replacements, `precompiled_charsmap`. */

import { BrokenDefinition } from './broken-definition.js';

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/**
 * A charsmap: four bytes with the size of a trie, the trie, and the texts that its values point into, each ended by a
 * zero byte. The trie is a double array as the library Darts-clone writes it, one unit of 32 bits for a node.
 */
export class Charsmap {
  readonly #units: Uint32Array;
  readonly #texts: Uint8Array;
  readonly #segmenter = new Intl.Segmenter('en', { granularity: 'grapheme' });

  /**
   * @param base64 as tokenizer.json holds it
   * @throws Error where it is cut short
   */
  constructor(base64: string) {
    const bytes = Uint8Array.from(Buffer.from(base64, 'base64'));
    const view = new DataView(bytes.buffer);
    const size = bytes.length < 4 ? 0 : view.getUint32(0, true);
    if (bytes.length < 4 + size || size % 4 !== 0)
      throw new BrokenDefinition('the precompiled charsmap is cut short');
    this.#units = Uint32Array.from({ length: size / 4 }, (_, i) => view.getUint32(4 + 4 * i, true));
    this.#texts = bytes.subarray(4 + size);
  }

  /**
   * Replaces short graphemes (under 6 bytes) as a whole, all else character by character.
   *
   * Only the shortest beginning of a grapheme that the table has is looked at, and what follows it in the grapheme is
   * lost. So does the reference, and so the vocabularies were made.
   */
  normalize(text: string): string {
    let out = '';
    for (const { segment } of this.#segmenter.segment(text)) {
      const bytes = encoder.encode(segment);
      const whole = bytes.length < 6 ? this.#replacement(bytes) : undefined;
      if (whole !== undefined) {
        out += whole;
        continue;
      }
      for (const character of segment) out += this.#replacement(encoder.encode(character)) ?? character;
    }
    return out;
  }

  #replacement(key: Uint8Array): string | undefined {
    const units = this.#units;
    if (units.length === 0) return undefined;
    let at = offsetOf(units[0]!);
    for (const byte of key) {
      if (byte === 0) return undefined;
      at ^= byte;
      const unit = units[at];
      // The label of a node is the byte that leads to it; bit 31 marks a value.
      if (unit === undefined || (unit & 0x800000ff) >>> 0 !== byte) return undefined;
      at ^= offsetOf(unit);
      if (((unit >>> 8) & 1) === 1) return this.#textAt((units[at] ?? 0) & 0x7fffffff);
    }
    return undefined;
  }

  #textAt(start: number): string {
    const end = this.#texts.indexOf(0, start);
    return decoder.decode(this.#texts.subarray(start, end < 0 ? this.#texts.length : end));
  }
}

/** Where a node's children begin, relative to it. */
function offsetOf(unit: number): number {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}
