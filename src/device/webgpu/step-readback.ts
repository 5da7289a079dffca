/** What a step leaves for the host: an id for each output, records behind them where a row asks, and behind all that hidden rows. */

import type { ProgramLimits } from '../device.js';
import type { Graph } from '../graph.js';
import { FEATURE, RECORD_WORDS } from '../sampling.js';
import { hiddenRoom, StepResult } from '../step-result.js';
import type { StepFacts } from './kernel.js';
import { strideOf } from './resources.js';

/** Bytes of the buffer of ids and records. */
export const idBytes = (maxOutputs: number): number => Math.max(16, maxOutputs * (1 + RECORD_WORDS) * 4);

export class StepReadback {
  /** Bytes of a readback, at most: those of ids and records, and hidden rows from there on. */
  readonly bytes: number;
  readonly #samples: boolean;
  readonly #ids: GPUBuffer;
  readonly #hidden: GPUBuffer | null;
  readonly #hiddenFrom: number;
  readonly #hiddenCols: number;
  readonly #hiddenRowBytes: number;

  /**
   * @param ids what the sampler writes to
   * @param hidden the graph's hidden tensor, if it has one
   */
  constructor(graph: Graph, limits: ProgramLimits, ids: GPUBuffer, hidden: GPUBuffer | null) {
    this.#samples = graph.nodes.some((n) => n.op === 'sample');
    this.#ids = ids;
    this.#hidden = hidden;
    this.#hiddenFrom = idBytes(limits.maxOutputs);
    this.#hiddenCols = graph.hidden?.cols ?? 0;
    this.#hiddenRowBytes = strideOf(this.#hiddenCols) * 4;
    this.bytes = this.#hiddenFrom + hiddenRoom(graph, limits) * this.#hiddenRowBytes;
  }

  /** Copies what a step of these facts leaves, once it has drawn, and the `hidden` rows, neighbours at once. */
  copy(encoder: GPUCommandEncoder, to: GPUBuffer, facts: StepFacts, hidden: Uint32Array): void {
    encoder.copyBufferToBuffer(this.#ids, 0, to, 0, Math.max(16, idWords(facts) * 4));
    const bytes = this.#hiddenRowBytes;
    for (let i = 0, run = 1; i < hidden.length; i += run, run = 1) {
      const first = hidden[i]!;
      while (i + run < hidden.length && hidden[i + run] === first + run) run++;
      const at = this.#hiddenFrom + i * bytes;
      encoder.copyBufferToBuffer(this.#hidden!, first * bytes, to, at, run * bytes);
    }
  }

  /** Words of a readback that matter. */
  words(facts: StepFacts, hidden: number): number {
    if (hidden > 0) return (this.#hiddenFrom + hidden * this.#hiddenRowBytes) / 4;
    return this.#samples ? idWords(facts) : 0;
  }

  /** What the words of a step of `facts` mean; to be asked before the facts are another step's. */
  reader(facts: StepFacts, hidden: number): (words: Uint32Array) => StepResult {
    const count = this.#samples ? idWords(facts) : 0;
    const outputs = this.#samples ? facts.outputs : 0;
    if (hidden === 0) return (words) => new StepResult(words, outputs);
    return (words) => new StepResult(words.subarray(0, count), outputs, this.#hiddenRows(words, hidden));
  }

  /** `[rows, n]` of a readback, without the padding of rows. */
  #hiddenRows(words: Uint32Array, rows: number): Float32Array {
    const cols = this.#hiddenCols;
    const stride = this.#hiddenRowBytes / 4;
    const out = new Float32Array(rows * cols);
    const floats = new Float32Array(words.buffer, words.byteOffset + this.#hiddenFrom);
    for (let r = 0; r < rows; r++) out.set(floats.subarray(r * stride, r * stride + cols), r * cols);
    return out;
  }
}

/** An id for each output, and records if some row asks for them. */
function idWords({ outputs, features }: StepFacts): number {
  return outputs * (features & (FEATURE.LOGPROBS | FEATURE.MIROSTAT) ? 1 + RECORD_WORDS : 1);
}
