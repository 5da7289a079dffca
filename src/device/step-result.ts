import { KvantError } from '../errors.js';
import type { Graph } from './graph.js';
import { RECORD_WORDS, type RowRecord, readRecord } from './sampling.js';
import type { StepInputs } from './step.js';

const NONE = new Float32Array(0);

/** What a step has brought: one entry for each output, in the order of `StepInputs.outputs`. */
export class StepResult {
  /**
   * `[outputs]` the ids drawn, INVALID_TOKEN where a row had nothing to draw from. Empty if the graph does not sample.
   */
  readonly ids: Uint32Array;
  /** `[hiddenCount, n]` the hidden rows that were asked for, in the order of `StepInputs.hiddenRows`. */
  readonly hidden: Float32Array;
  readonly #words: Uint32Array;

  /**
   * @param words the ids and then, if some row asked for log-probabilities or draws with mirostat, a record of RECORD_WORDS
   *   words for each of them; it is kept, not copied
   * @param hidden kept, not copied
   */
  constructor(words: Uint32Array, outputs: number, hidden: Float32Array = NONE) {
    this.hidden = hidden;
    this.#words = words;
    this.ids = words.length === outputs ? words : words.subarray(0, outputs);
  }

  /** The same with hidden rows. */
  withHidden(hidden: Float32Array): StepResult {
    return new StepResult(this.#words, this.ids.length, hidden);
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

/** Most hidden rows that a step of a graph may ask for. */
export function hiddenRoom(
  { hidden }: Pick<Graph, 'hidden'>,
  { maxTokens, maxOutputs }: { readonly maxTokens: number; readonly maxOutputs: number },
): number {
  if (!hidden) return 0;
  return hidden.rows === 'tokens' ? maxTokens : maxOutputs;
}

/** Errors: `invalid-step`, where hidden rows are asked of a graph that has none, or of outputs or tokens that the step has not. */
export function checkHidden(
  { hiddenCount, hiddenRows, outputCount, tokenCount }: StepInputs,
  { hidden }: Pick<Graph, 'hidden'>,
): void {
  if (hiddenCount === 0) return;
  const misuse = (message: string): KvantError =>
    new KvantError('invalid-step', `Step: ${message}.`, {
      where: 'submit',
      fix: 'This is a fault of the caller: record the graph with Ops.hidden, and name rows of the step, each once.',
    });
  if (!hidden) throw misuse('hidden rows are asked for, and the graph has none');
  const [count, what] = hidden.rows === 'tokens' ? [tokenCount, 'token'] : [outputCount, 'output'];
  if (hiddenCount > count) throw misuse(`${hiddenCount} hidden rows of ${count} ${what}s`);
  for (let i = 0; i < hiddenCount; i++)
    if (hiddenRows[i]! >= count) throw misuse(`the hidden row of ${what} ${hiddenRows[i]}, of ${count}`);
}
