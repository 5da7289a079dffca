/**
 * Where tokens stand in the text that they make: in code points, as Python counts the characters of a string, and OpenAI's
 * `text_offset` does.
 *
 * A token may begin or end within a character. It stands where the character stands that its first byte is of, so the tokens of one
 * emoji all have one offset, and `text[offset:]` begins with what the token is a part of.
 */
import { incompleteSuffixLength } from '../../text/utf8.js';

export class TextOffsets {
  /** Characters that are complete. */
  #complete = 0;
  /** The beginning of one that is not. */
  #begun: Uint8Array = new Uint8Array(0);

  /** The offset of the next token, which adds these bytes to the text; none for a token that is not part of it. */
  next(bytes: Uint8Array): number {
    if (bytes.length === 0) return this.#complete;
    const broken = this.#begun.length > 0 && !continues(this.#begun, bytes[0]!);
    // What is broken off has become a replacement character.
    const offset = this.#complete + (broken ? 1 : 0);
    const all = joined(this.#begun, bytes);
    const end = all.length - incompleteSuffixLength(all);
    this.#complete += [...lenient.decode(all.subarray(0, end))].length;
    this.#begun = all.slice(end);
    return offset;
  }
}

// A BOM is text like any other.
const lenient = new TextDecoder('utf-8', { ignoreBOM: true });
const strict = new TextDecoder('utf-8', { ignoreBOM: true, fatal: true });

/** Whether a byte goes on with the beginning of a character, or ends it. */
function continues(begun: Uint8Array, byte: number): boolean {
  const more = joined(begun, Uint8Array.of(byte));
  if (incompleteSuffixLength(more) === more.length) return true;
  try {
    strict.decode(more);
    return true;
  } catch {
    return false;
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  if (a.length === 0) return b;
  const all = new Uint8Array(a.length + b.length);
  all.set(a);
  all.set(b, a.length);
  return all;
}
