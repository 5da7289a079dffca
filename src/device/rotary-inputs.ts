import { ROPE_AXES } from './rope.js';

/**
 * Rotary positions of a step's tokens that are not their cache indexes. Rotation goes by them; masks, windows and block tables go by
 * the index alone. They belong to sequences: text and pictures go through one step side by side.
 */
export class RotaryInputs {
  /** `[maxSequences]` what is added to a token's cache index on all three axes: text behind pictures. 0: they are equal. */
  readonly shift: Int32Array;
  /** `[maxSequences]` 1: the positions of the sequence's tokens stand in `positions`, and `shift` says nothing. */
  readonly placed: Uint8Array;
  /** `[maxTokens, 3]` time, height and width of each token, of sequences that are `placed`. */
  readonly positions: Uint32Array;

  constructor(maxTokens: number, maxSequences: number) {
    this.shift = new Int32Array(maxSequences);
    this.placed = new Uint8Array(maxSequences);
    this.positions = new Uint32Array(maxTokens * ROPE_AXES);
  }

  /** All positions are cache indexes. */
  clear(): void {
    this.shift.fill(0);
    this.placed.fill(0);
  }
}
