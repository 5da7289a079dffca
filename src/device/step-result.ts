import { RECORD_WORDS, type RowRecord, readRecord } from './sampling.js';

/** What a step has brought: one entry for each output, in the order of `StepInputs.outputs`. */
export class StepResult {
  /**
   * `[outputs]` the ids drawn, INVALID_TOKEN where a row had nothing to draw from. Empty if the graph does not sample.
   */
  readonly ids: Uint32Array;
  readonly #words: Uint32Array;

  /**
   * @param words the ids and then, if some row asked for log-probabilities or draws with mirostat, a record of RECORD_WORDS
   *   words for each of them; it is kept, not copied
   */
  constructor(words: Uint32Array, outputs: number) {
    this.#words = words;
    this.ids = words.length === outputs ? words : words.subarray(0, outputs);
  }

  /** Some row asked for a record. */
  get recorded(): boolean {
    return this.#words.length > this.ids.length;
  }

  /** The log-probabilities of an output: zeros for one that did not ask, null where none did. */
  record(output: number): RowRecord | null {
    return this.recorded ? readRecord(this.#words, this.ids.length, output) : null;
  }

  /** The words of a record as the device wrote them: see RECORD_WORDS in sampling.ts. Null where there is none. */
  recordWords(output: number): Uint32Array | null {
    if (!this.recorded) return null;
    const at = this.ids.length + output * RECORD_WORDS;
    return this.#words.subarray(at, at + RECORD_WORDS);
  }
}
