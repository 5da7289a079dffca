/** Drives a Program directly: one sequence, its prompt in chunks of any size, then greedy decoding. */

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import type { Device, Program } from '../../src/device/device.js';
import type { FeatureSlab } from '../../src/device/feature-slab.js';
import type { Tensor } from '../../src/device/graph.js';
import { ROPE_AXES } from '../../src/device/rope.js';
import { StepInputs } from '../../src/device/step.js';
import type { StepResult } from '../../src/device/step-result.js';
import type { SequencePictures } from '../../src/engine/vision/pictures.js';
import { type LoadModelOptions, loadModel, type Model } from '../../src/models/load.js';
import { openModel } from '../../src/models/open.js';
import { readPacked } from '../fixtures/read-packed.js';

export const MODEL_FIXTURES = fileURLToPath(new URL('../fixtures/models/', import.meta.url));

export interface ExpectedCase {
  readonly prompt: readonly number[];
  /** `[vocab]` of the prompt's last token. */
  readonly logits: readonly number[];
  /** Greedy continuation. */
  readonly greedy: readonly number[];
  /** By how much the first candidate led the second at each step. */
  readonly margins: readonly number[];
  /** Context that it is served in; the model's own if omitted. */
  readonly context?: number;
}

export function expectedCases(name: string): readonly ExpectedCase[] {
  const path = join(MODEL_FIXTURES, name, 'expected.json.br');
  return (readPacked(path) as { cases: readonly ExpectedCase[] }).cases;
}

/** Opens a model folder and loads it, closing the files. */
export async function loadFolder(
  folder: string,
  device: Device,
  options: LoadModelOptions = {},
): Promise<Model> {
  await using opened = await openModel(folder);
  return await loadModel(opened.source, opened.definition, device, options);
}

/** Loads a model folder for each context that its cases are served in. */
export async function casesByModel(
  name: string,
  device: Device,
  options: LoadModelOptions = {},
): Promise<
  readonly { readonly model: Model; readonly context: number; readonly cases: readonly ExpectedCase[] }[]
> {
  const cases = expectedCases(name);
  const contexts = [...new Set(cases.map(({ context }) => context))];
  return await Promise.all(
    contexts.map(async (context) => ({
      model: await loadFolder(join(MODEL_FIXTURES, name), device, {
        ...options,
        ...(context === undefined ? {} : { maxContext: context }),
      }),
      context: Math.min(context ?? LONGEST_CASE, LONGEST_CASE),
      cases: cases.filter((one) => one.context === context),
    })),
  );
}

/** Tokens of a case, at most. */
const LONGEST_CASE = 128;

export interface RunnerOptions {
  /** Longest context of the sequence. */
  readonly context: number;
  /** Most prompt tokens in a step. */
  readonly chunk: number;
  readonly blockTokens?: number;
  /** Where rows of pictures lie. Default: prompts are of text alone. */
  readonly features?: FeatureSlab;
}

export interface Continuation {
  readonly tokens: number[];
  /** `[vocab]` for each token: what it was chosen from. */
  readonly logits: Float32Array[];
}

const SLOT = 1;
const SLOTS = 3;

/** A compiled model with a pool for one sequence. */
export class Runner implements AsyncDisposable {
  readonly #program: Program;
  readonly #logits: Tensor;
  readonly #inputs: StepInputs;
  readonly #chunk: number;
  readonly #dispose: () => Promise<void>;

  private constructor(
    program: Program,
    logits: Tensor,
    inputs: StepInputs,
    chunk: number,
    dispose: () => Promise<void>,
  ) {
    this.#program = program;
    this.#logits = logits;
    this.#inputs = inputs;
    this.#chunk = chunk;
    this.#dispose = dispose;
  }

  static async create(device: Device, model: Model, options: RunnerOptions): Promise<Runner> {
    const { context, chunk, blockTokens = 16, features = null } = options;
    const perSlot = Math.ceil(context / blockTokens);
    const pool = device.createKvPool({
      layers: model.kvLayers,
      blocks: perSlot + 3,
      blockTokens,
      slots: SLOTS,
      maxBlocksPerSlot: perSlot,
    });
    // Blocks in falling order, so that a table that is not looked at shows.
    pool.setBlocks(
      SLOT,
      0,
      Uint32Array.from({ length: perSlot }, (_, i) => perSlot + 2 - i),
    );
    const { graph, logits } = model.buildGraph({ keepLogits: true, features });
    const limits = { maxTokens: chunk, maxOutputs: 1, maxSequences: 1, maxContext: context, inFlight: 1 };
    const program = await device.compile(graph, limits, pool);
    const inputs = new StepInputs(chunk, 1, 1, { rotary: model.vision?.axes === true });
    return new Runner(program, logits, inputs, chunk, async () => {
      await program.dispose();
      pool.dispose();
    });
  }

  /**
   * Runs a prompt from position 0 and `count` greedy tokens. Each decode step takes its token from the device.
   * @param chunk prompt tokens in a step, up to what the runner was made for
   * @param pictures of the prompt, their rows in the slab
   */
  async generate(
    prompt: readonly number[],
    count: number,
    chunk = this.#chunk,
    pictures: SequencePictures | null = null,
  ): Promise<Continuation> {
    const tokens: number[] = [];
    const logits: Float32Array[] = [];
    const take = async ({ ids }: StepResult): Promise<void> => {
      tokens.push(ids[0]!);
      logits.push((await this.#program.read(this.#logits, 1)).slice());
    };
    for (let at = 0; at < prompt.length; at += chunk) {
      const ids = prompt.slice(at, at + chunk);
      const last = at + ids.length === prompt.length;
      const drawn = await this.#step(ids, at, last, pictures);
      if (last) await take(drawn);
    }
    while (tokens.length < count) {
      await take(await this.#step([-(SLOT + 1)], prompt.length + tokens.length - 1, true, pictures));
    }
    return { tokens, logits };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#dispose();
  }

  #step(
    ids: readonly number[],
    position: number,
    output: boolean,
    pictures: SequencePictures | null,
  ): Promise<StepResult> {
    const step = this.#inputs;
    step.clear();
    step.tokens.set(ids.map((id, i) => pictures?.sourceAt(position + i) ?? id));
    step.tokenCount = ids.length;
    step.sequenceCount = 1;
    step.seqSlot[0] = SLOT;
    step.seqStart[0] = 0;
    step.seqLength[0] = ids.length;
    step.seqPosition[0] = position;
    const places = pictures?.prompt.rotary;
    if (step.rotary !== null && places !== null && places !== undefined) {
      const { positions, end, shift } = places;
      step.rotary.shift[0] = shift;
      step.rotary.placed[0] = position < end ? 1 : 0;
      for (let i = 0; i < ids.length; i++) {
        const at = (position + i) * ROPE_AXES;
        const behind = [position + i + shift, position + i + shift, position + i + shift];
        step.rotary.positions.set(
          position + i < end ? positions.subarray(at, at + ROPE_AXES) : behind,
          i * ROPE_AXES,
        );
      }
    }
    step.outputCount = output ? 1 : 0;
    step.outputs[0] = ids.length - 1;
    step.outputSlot[0] = SLOT;
    step.sampling.temperature[0] = 0;
    step.sampling.position[0] = position + ids.length;
    return this.#program.submit(step);
  }
}

export function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let largest = a.length === b.length ? 0 : Number.POSITIVE_INFINITY;
  // NaN must not pass: it compares false with everything.
  for (let i = 0; i < a.length; i++) {
    const difference = Math.abs(a[i]! - b[i]!);
    if (!(difference <= largest)) largest = Number.isNaN(difference) ? Number.POSITIVE_INFINITY : difference;
  }
  return largest;
}

/** Tokens up to the first step at which the reference itself was nearly tied. */
export function decidedTokens(
  tokens: readonly number[],
  margins: readonly number[],
  bound: number,
): number[] {
  const tie = margins.findIndex((margin) => margin < 2 * bound);
  return tokens.slice(0, tie < 0 ? tokens.length : tie);
}

/** Whether a model gives what the reference gave for a fixture: the logits of each prompt, and its greedy tokens while they are decided. */
export async function expectPublished(
  device: Device,
  model: Model,
  fixture: string,
  options: RunnerOptions = { context: 128, chunk: 48 },
  bound = 2e-4,
): Promise<void> {
  for (const { prompt, logits, greedy, margins } of expectedCases(fixture)) {
    await using runner = await Runner.create(device, model, options);
    const result = await runner.generate(prompt, greedy.length);
    expect(largestDifference(result.logits[0]!, logits)).toBeLessThan(bound);
    const decided = decidedTokens(greedy, margins, bound);
    expect(result.tokens.slice(0, decided.length)).toEqual(decided);
  }
}
