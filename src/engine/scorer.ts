/**
 * Teacher-forced scoring: a text is run through the model as it stands, and the logits of its tokens are read.
 * One sequence at a time, in steps of any size, on any number of caches side by side.
 */

import type { Device, Program } from '../device/device.js';
import type { KeyCentre, Tensor } from '../device/graph.js';
import { StepInputs } from '../device/step.js';
import { KvantError } from '../errors.js';
import type { KvOptions } from '../kv/options.js';
import type { KvPlan } from '../kv/policy.js';
import type { Model } from '../models/load.js';
import type { CacheVariant, CacheVariantRequest } from './offline-runner.js';

/** What a scorer runs on: a model on a device, and caches for it. */
export interface ScorerHost {
  readonly device: Device;
  readonly model: Model;
  /** Errors: those of the formats and of the device's memory. */
  variant(request: CacheVariantRequest): CacheVariant;
  /** What the keys of a plan are freed of, by layer. */
  centres(plan: KvPlan): Promise<readonly (KeyCentre | null)[]>;
}

/** Logits that one step may read back: what is more is left to the next step. */
const MOST_LOGIT_BYTES = 32 * 2 ** 20;
/** More tokens in a step gain nothing. */
const MOST_TOKENS = { cpu: 256, webgpu: 1024 } as const;

export class Scorer implements AsyncDisposable {
  /** How the layers of the cache are kept. */
  readonly plan: KvPlan;
  /** Most tokens of a step. */
  readonly chunk: number;
  readonly #caches: CacheVariant['caches'];
  readonly #program: Program;
  readonly #logits: Tensor;
  readonly #inputs: StepInputs;
  readonly #context: number;
  #computed = 0;

  private constructor(
    variant: CacheVariant,
    program: Program,
    logits: Tensor,
    chunk: number,
    context: number,
  ) {
    this.plan = variant.plan;
    this.#caches = variant.caches;
    this.chunk = chunk;
    this.#program = program;
    this.#logits = logits;
    this.#inputs = new StepInputs(chunk, 1, chunk);
    this.#context = context;
  }

  /** A scorer for sequences of up to `context` tokens. Errors: as of `ScorerHost.variant`. */
  static async open(host: ScorerHost, kv: KvOptions, context: number): Promise<Scorer> {
    const { device, model } = host;
    const variant = host.variant({ kv, rows: 1, context });
    const centres = await host.centres(variant.plan);
    const { graph, logits } = model.buildGraph({ keepLogits: true, sample: false, centres });
    const fit = Math.floor(MOST_LOGIT_BYTES / (4 * model.facts.vocabSize));
    const chunk = Math.max(1, Math.min(MOST_TOKENS[device.info.kind], fit, context));
    const program = await device.compile(
      graph,
      { maxTokens: chunk, maxOutputs: chunk, maxSequences: 1, maxContext: context, inFlight: 1 },
      variant.caches,
    );
    return new Scorer(variant, program, logits, chunk, context);
  }

  /**
   * Computes tokens `[from, to)` of a sequence, at most `chunk` of them. A sequence begins at 0 and goes on where its
   * last step ended.
   * @returns logits `[rows, vocab]` of the tokens from `wanted` on, or of each `every`th of these: what follows each of them
   */
  async step(ids: Int32Array, from: number, to: number, wanted: number, every = 1): Promise<Float32Array> {
    if (from !== 0 && from !== this.#computed)
      throw new KvantError('internal', `A step from ${from} follows ${this.#computed} tokens.`);
    if (!(to > from && to - from <= this.chunk && to <= Math.min(ids.length, this.#context)))
      throw new KvantError('internal', `A step from ${from} to ${to} of ${ids.length} tokens.`);
    const { floatStart } = this.#caches;
    if (floatStart !== null) {
      const { tokens } = floatStart;
      if (from < tokens && to > tokens) {
        const early = await this.step(ids, from, tokens, wanted, every);
        const late = await this.step(ids, tokens, to, wanted, every);
        const both = new Float32Array(early.length + late.length);
        both.set(early);
        both.set(late, early.length);
        return both;
      }
      if (from === 0) floatStart.begin(0);
      if (from === tokens) await floatStart.convert(0);
    }
    const first = wanted + Math.max(0, Math.ceil((from - wanted) / every)) * every;
    const outputs = Math.max(0, Math.ceil((to - first) / every));
    const step = this.#inputs;
    step.clear();
    step.tokens.set(ids.subarray(from, to));
    step.tokenCount = to - from;
    step.sequenceCount = 1;
    step.seqSlot[0] = 0;
    step.seqStart[0] = 0;
    step.seqLength[0] = to - from;
    step.seqPosition[0] = from;
    step.outputCount = outputs;
    for (let i = 0; i < outputs; i++) {
      step.outputs[i] = first - from + i * every;
      step.outputSlot[i] = 0;
    }
    await this.#program.submit(step);
    this.#computed = to;
    return outputs === 0 ? new Float32Array(0) : this.#program.read(this.#logits, outputs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#program.dispose();
    this.#caches.dispose();
  }
}
