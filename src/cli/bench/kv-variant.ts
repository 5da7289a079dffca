/**
 * One cache under measurement: rows of a long context in one format, and the steps that are timed on it. Rows are
 * filled with random K and V by the device's own append kernels: what reading costs does not depend on the values, and
 * every byte of the pool has been written as it would be. A prompt's products would make that take minutes.
 */
import type { Device, Program } from '../../device/device.js';
import type { Graph, Tensor } from '../../device/graph.js';
import { kvBlockBytes } from '../../device/kv.js';
import { Ops } from '../../device/ops.js';
import type { RopeTable } from '../../device/rope.js';
import { StepInputs } from '../../device/step.js';
import type { OfflineRunner } from '../../engine/offline-runner.js';
import type { SlotCaches } from '../../engine/slot-caches.js';
import type { KvOptions } from '../../kv/options.js';
import type { KvPlan } from '../../kv/policy.js';
import { type Model, ropeTable } from '../../models/load.js';
import { everyRow, IN_FLIGHT, normals, oneSequence, timeSteps } from './steps.js';

export interface CacheVariantSize {
  readonly rows: number;
  /** Positions that decoding reads. */
  readonly context: number;
  /** Prompt tokens, and those of a step of filling. */
  readonly chunk: number;
}

export class BenchVariant implements AsyncDisposable {
  readonly plan: KvPlan;
  readonly #size: CacheVariantSize;
  readonly #device: Device;
  readonly #model: Model;
  readonly #caches: SlotCaches;
  readonly #rope: RopeTable;

  constructor(bench: OfflineRunner, kv: KvOptions, size: CacheVariantSize) {
    const { caches, plan } = bench.variant({ kv, ...size });
    this.plan = plan;
    this.#size = size;
    this.#device = bench.device;
    this.#model = bench.model;
    this.#caches = caches;
    this.#rope = ropeTable(bench.model.layout.ropes[0]!, size.context);
  }

  get poolBytes(): number {
    return this.#caches.bytes;
  }

  /** Bytes of K and V that one token takes over all layers. */
  get bytesPerToken(): number {
    return kvBlockBytes(
      this.plan.layers.filter(({ state }) => state === undefined),
      1,
    );
  }

  /** Fills every row. */
  async fill(): Promise<void> {
    const { rows, context, chunk } = this.#size;
    const ops = new Ops();
    const qkv = ops.input('tokens', this.#qkvWidth);
    for (const [layer, shape] of this.#model.layout.cache.entries())
      ops.ropeAppend(qkv, { layer, ...shape, norm: null, rope: this.#rope });
    const values = normals(chunk * qkv.cols);
    await this.#with(ops.finish(), { tokens: chunk, sequences: 1, outputs: 0 }, async (program) => {
      const step = new StepInputs(chunk, 1, 1);
      for (let row = 0; row < rows; row++) {
        for (let at = 0; at < context; at += chunk) {
          program.write(qkv, values);
          await program.submit(oneSequence(step, row, at, Math.min(chunk, context - at)));
        }
      }
    });
  }

  /** Decodes `steps` tokens in every row, the last at the end of the context. @returns seconds a step */
  async decode(steps: number, warmUp: number): Promise<number> {
    const { rows, context } = this.#size;
    const { graph } = this.#model.buildGraph();
    const first = context - steps - warmUp;
    const limits = { tokens: rows, sequences: rows, outputs: rows };
    return this.#with(graph, limits, (program) =>
      timeSteps(program, new StepInputs(rows, rows, rows), steps, warmUp, (step, n) => {
        // The first tokens are any; each later one is what its row drew.
        everyRow(step, rows, first + n, n === 0 ? (row) => row + 1 : (row) => -(row + 1));
        step.outputCount = rows;
        for (let row = 0; row < rows; row++) {
          step.outputs[row] = row;
          step.outputSlot[row] = row;
          step.sampling.temperature[row] = 0;
          step.sampling.position[row] = first + n + 1;
        }
      }),
    );
  }

  /** Attention of the last token of every row in all layers, and nothing else. @returns seconds a step */
  async attend(steps: number, warmUp: number): Promise<number> {
    const { rows, context } = this.#size;
    const { graph, input } = this.#attentionGraph();
    const values = normals(rows * input.cols);
    const limits = { tokens: rows, sequences: rows, outputs: 0 };
    return this.#with(graph, limits, (program) => {
      program.write(input, values);
      return timeSteps(program, new StepInputs(rows, rows, rows), steps, warmUp, (step) =>
        everyRow(step, rows, context - 1, () => 1),
      );
    });
  }

  /** Computes a prompt of row 0 in the full model. @returns seconds */
  async prefill(tokens: number): Promise<number> {
    const { chunk } = this.#size;
    const { graph } = this.#model.buildGraph();
    return this.#with(graph, { tokens: chunk, sequences: 1, outputs: 1 }, async (program) => {
      const step = new StepInputs(chunk, 1, 1);
      const vocab = this.#model.facts.vocabSize;
      // Once for nothing: plans are made and kernels compiled in it.
      await program.submit(promptStep(step, 0, Math.min(chunk, tokens), true, vocab));
      if (tokens % chunk !== 0) await program.submit(promptStep(step, 0, tokens % chunk, true, vocab));
      const started = performance.now();
      let last: Promise<unknown> = Promise.resolve();
      for (let at = 0; at < tokens; at += chunk) {
        const count = Math.min(chunk, tokens - at);
        const next = program.submit(promptStep(step, at, count, at + count === tokens, vocab));
        await last;
        last = next;
      }
      await last;
      return (performance.now() - started) / 1000;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#caches.dispose();
  }

  get #qkvWidth(): number {
    const { heads, kvHeads, headDim } = this.#model.facts;
    return (heads + 2 * kvHeads) * headDim;
  }

  #attentionGraph(): { graph: Graph; input: Tensor } {
    const { heads, headDim } = this.#model.facts;
    const ops = new Ops();
    const input = ops.input('tokens', heads * headDim);
    let q = input;
    for (const [layer, { window, ...shape }] of this.#model.layout.cache.entries())
      q = ops.attend(q, { layer, ...shape, window });
    ops.keep(input);
    ops.keep(q);
    return { graph: ops.finish(), input };
  }

  async #with<T>(
    graph: Graph,
    { tokens, sequences, outputs }: { tokens: number; sequences: number; outputs: number },
    use: (program: Program) => Promise<T>,
  ): Promise<T> {
    const limits = {
      maxTokens: tokens,
      maxOutputs: Math.max(1, outputs),
      maxSequences: sequences,
      maxContext: this.#size.context,
      inFlight: IN_FLIGHT,
    };
    const program = await this.#device.compile(graph, limits, this.#caches);
    try {
      return await use(program);
    } finally {
      await program.dispose();
    }
  }
}

function promptStep(
  step: StepInputs,
  position: number,
  tokens: number,
  draws: boolean,
  vocab: number,
): StepInputs {
  oneSequence(step, 0, position, tokens);
  for (let i = 0; i < tokens; i++) step.tokens[i] = ((position + i) * 7919 + 17) % vocab;
  if (!draws) return step;
  step.outputCount = 1;
  step.outputs[0] = tokens - 1;
  step.outputSlot[0] = 0;
  step.sampling.temperature[0] = 0;
  step.sampling.position[0] = position + tokens;
  return step;
}
