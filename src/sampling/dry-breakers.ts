/**
 * Sequence breakers of DRY, from texts to tokens, as llama.cpp finds them (get_overlapping_token_sequences): a token
 * whose text contains the breaker breaks by itself; one that ends with a beginning of it breaks together with the
 * tokens of the rest.
 */

import { type DryBreakers, MAX_SEQUENCE_TOKENS } from '../device/sampling.js';
import { KvantError } from '../errors.js';

/** What is needed of a tokenizer. */
export interface Speller {
  /** Ids there are. */
  readonly size: number;
  /** What an id adds to the text; empty for special tokens and holes. */
  bytesOf(id: number): Uint8Array;
  /** Ids of a text, without special tokens. */
  spell(text: string): ArrayLike<number>;
}

/** Longest rest of a breaker, in tokens. */
const MAX_TAIL = 20;
/** Texts whose tokens are remembered: a look through the vocabulary takes milliseconds. */
const REMEMBERED = 64;

export const NO_BREAKERS: DryBreakers = { ids: new Uint32Array(0), sequences: [] };

export class BreakerFinder {
  readonly #speller: Speller;
  readonly #known = new Map<string, DryBreakers>();

  constructor(speller: Speller) {
    this.#speller = speller;
  }

  /** Errors: `invalid-parameter`, where the sequences hold more tokens than a row may keep. */
  find(breakers: readonly string[]): DryBreakers {
    const found = breakers.map((text) => this.#one(text));
    const ids = new Set(found.flatMap((breaker) => [...breaker.ids]));
    // A sequence that ends with a breaker of its own breaks nothing more.
    const sequences = found
      .flatMap((breaker) => breaker.sequences)
      .filter((sequence) => !ids.has(sequence[sequence.length - 1]!));
    const tokens = sequences.reduce((sum, sequence) => sum + sequence.length, 0);
    if (tokens > MAX_SEQUENCE_TOKENS)
      throw new KvantError(
        'invalid-parameter',
        `\`drySequenceBreakers\` can be spelled in ${sequences.length} ways of ${tokens} tokens; a request takes ${MAX_SEQUENCE_TOKENS}.`,
        { kind: 'invalid-request', where: 'drySequenceBreakers', fix: 'Send fewer or shorter breakers.' },
      );
    return { ids: Uint32Array.from(ids).sort(), sequences };
  }

  /** Tokens that have to be looked at to find them: none for texts that are remembered. */
  cost(breakers: readonly string[]): number {
    return breakers.filter((text) => !this.#known.has(text)).length * this.#speller.size;
  }

  #one(text: string): DryBreakers {
    let found = this.#known.get(text);
    if (found === undefined) {
      found = overlapping(this.#speller, text);
      if (this.#known.size >= REMEMBERED) this.#known.clear();
      this.#known.set(text, found);
    }
    return found;
  }
}

function overlapping(speller: Speller, text: string): DryBreakers {
  const breaker = new TextEncoder().encode(text);
  const ids: number[] = [];
  const sequences: Uint32Array[] = [];
  const tails = new Map<number, ArrayLike<number>>();
  for (let id = 0; id < speller.size; id++) {
    const bytes = speller.bytesOf(id);
    if (contains(bytes, breaker)) {
      ids.push(id);
      continue;
    }
    for (let head = Math.min(bytes.length, breaker.length - 1); head > 0; head--) {
      if (!endsWithHead(bytes, breaker, head) || isContinuation(breaker[head]!)) continue;
      let tail = tails.get(head);
      if (tail === undefined) {
        tail = speller.spell(new TextDecoder().decode(breaker.subarray(head)));
        tails.set(head, tail);
      }
      if (tail.length > 0) sequences.push(Uint32Array.of(id, ...Array.from(tail).slice(0, MAX_TAIL)));
    }
  }
  return { ids: Uint32Array.from(ids), sequences };
}

function contains(bytes: Uint8Array, part: Uint8Array): boolean {
  const last = bytes.length - part.length;
  for (let at = bytes.indexOf(part[0]!); at >= 0 && at <= last; at = bytes.indexOf(part[0]!, at + 1)) {
    let i = 1;
    while (i < part.length && bytes[at + i] === part[i]) i++;
    if (i === part.length) return true;
  }
  return false;
}

function endsWithHead(bytes: Uint8Array, breaker: Uint8Array, head: number): boolean {
  const from = bytes.length - head;
  for (let i = 0; i < head; i++) if (bytes[from + i] !== breaker[i]) return false;
  return true;
}

/** A byte in the middle of a character: no text begins there. */
function isContinuation(byte: number): boolean {
  return (byte & 0xc0) === 0x80;
}
