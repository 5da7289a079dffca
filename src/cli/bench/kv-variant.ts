/**
 * One cache under measurement: rows of a long context in one format, and the steps that are timed on it. Rows are
 * filled with random K and V by the device's own append kernels: what reading costs does not depend on the values, and
 * every byte of the pool has been written as it would be. A prompt's products would make that take minutes.
 */
import type { Device, Program } from '../../device/device.js';
import type { AttentionShape, Graph, Tensor } from '../../device/graph.js';
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
    const inputs = new Inputs(ops);
    for (const { layer, shape } of this.#attending()) {
      const { heads, kvHeads, headDim } = shape;
      const rope = this.#rope.dims <= headDim ? this.#rope : null;
      ops.ropeAppend(inputs.of((heads + 2 * kvHeads) * headDim), { layer, ...shape, norm: null, rope });
    }
    const values = inputs.all.map((input) => [input, normals(chunk * input.cols)] as const);
    await this.#with(ops.finish(), { tokens: chunk, sequences: 1, outputs: 0 }, async (program) => {
      const step = new StepInputs(chunk, 1, 1);
      for (let row = 0; row < rows; row++) {
        for (let at = 0; at < context; at += chunk) {
          for (const [input, numbers] of values) program.write(input, numbers);
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
    const { graph, inputs } = this.#attentionGraph();
    const limits = { tokens: rows, sequences: rows, outputs: 0 };
    return this.#with(graph, limits, (program) => {
      for (const input of inputs) program.write(input, normals(rows * input.cols));
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

  /** The layers that attend: recurrent ones have nothing of K and V. */
  #attending(): { layer: number; window: number | null; shape: AttentionShape }[] {
    return this.#model.layout.cache.flatMap(({ state, window, heads, kvHeads, headDim }, layer) =>
      state === undefined ? [{ layer, window, shape: { heads, kvHeads, headDim } }] : [],
    );
  }

  #attentionGraph(): { graph: Graph; inputs: readonly Tensor[] } {
    const ops = new Ops();
    const inputs = new Inputs(ops);
    // Layers of one width follow one another.
    const last = new Map<number, Tensor>();
    for (const { layer, window, shape } of this.#attending()) {
      const cols = shape.heads * shape.headDim;
      last.set(cols, ops.attend(last.get(cols) ?? inputs.of(cols), { layer, ...shape, window }));
    }
    for (const tensor of [...inputs.all, ...last.values()]) ops.keep(tensor);
    return { graph: ops.finish(), inputs: inputs.all };
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

/** Inputs of a graph, one for each width. */
class Inputs {
  readonly #ops: Ops;
  readonly #byCols = new Map<number, Tensor>();

  constructor(ops: Ops) {
    this.#ops = ops;
  }

  get all(): readonly Tensor[] {
    return [...this.#byCols.values()];
  }

  of(cols: number): Tensor {
    const input = this.#byCols.get(cols) ?? this.#ops.input('tokens', cols);
    this.#byCols.set(cols, input);
    return input;
  }
}
