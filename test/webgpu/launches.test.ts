/**
 * How many launches a layer takes, on a device that can do what a large GPU can: each costs the host about two microseconds and
 * the GPU as much. What is there now may become less, and not more unnoticed.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createNullGpu } from '../../bench/null-gpu.mjs';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import { createWebGpuDevice } from '../../src/device/webgpu/index.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import { parseModelConfig } from '../../src/models/families.js';
import type { ModelDefinition } from '../../src/models/family.js';
import { loadModel } from '../../src/models/load.js';
import { RandomWeights, shapeFields, shapeModel } from '../../src/models/shapes.js';

/** A program of a model on such a device. */
async function open(definition: ModelDefinition) {
  const device = (await createWebGpuDevice({ gpu: createNullGpu() })) as WebGpuDevice;
  const model = await loadModel(new RandomWeights(), definition, device, {
    kvFormat: { kind: 'float', dtype: 'f16' },
    maxContext: 4096,
  });
  const pool = device.createKvPool({
    layers: model.kvLayers,
    blocks: 64,
    blockTokens: 32,
    slots: 32,
    maxBlocksPerSlot: 128,
  });
  const limits = { maxTokens: 512, maxOutputs: 32, maxSequences: 32, maxContext: 4096, inFlight: 2 };
  const program = (await device.compile(model.buildGraph().graph, limits, pool)) as WebGpuProgram;
  return { device, program };
}

/** Launches of a step of so many tokens by label, those that stand in the plan for other counts included. */
function launchesOf(program: WebGpuProgram, tokens: number): Map<string, number> {
  const counts = new Map<string, number>();
  for (const label of program.describe(tokens, Math.min(tokens, 32)))
    counts.set(label, (counts.get(label) ?? 0) + 1);
  return counts;
}

/** Products, and what makes x ready for them, in a layer. */
function glueOf(program: WebGpuProgram, layers: number, tokens: number): string[] {
  return [...launchesOf(program, tokens)]
    .filter(([, count]) => count >= layers)
    .flatMap(([label, count]) => new Array<string>(Math.floor(count / layers)).fill(label))
    .filter((label) => !/attend|rope-append/.test(label))
    .map((label) =>
      label.replace(/^(q k v appended, )?(gemv|resident|skinny|dp4a|matrix)-q4g64-(\d+x\d+)\S*/, '$2 $3'),
    );
}

/** Of heads of 128, as in models of 0.6 to 8 billion weights. */
const SHAPE = 'qwen3-0.6b';
const LAYERS = 28;

describe('launches', () => {
  let device: WebGpuDevice;
  let program: WebGpuProgram;
  const launches = (tokens: number): Map<string, number> => launchesOf(program, tokens);
  const glue = (tokens: number): string[] => glueOf(program, LAYERS, tokens);

  beforeAll(async () => {
    ({ device, program } = await open(shapeModel(SHAPE, { vocab: 32_000 })));
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each([
    [1, 'gemv'],
    [4, 'resident'],
    [8, 'skinny'],
  ])('of %i rows take norms, glus and residuals into four products a layer', (rows, kind) => {
    expect(glue(rows).sort()).toEqual(
      ['1024x2048', '1024x3072', '4096x1024', '6144x1024'].map((size) => `${kind} ${size}`),
    );
  });

  it('of one row norm heads, rotate and append in the product of q, k and v', () => {
    const has = (tokens: number, what: RegExp): boolean =>
      [...launches(tokens).keys()].some((label) => what.test(label));
    expect([1, 4].map((tokens) => has(tokens, /^q k v appended/))).toEqual([true, false]);
    expect([1, 4].map((tokens) => has(tokens, /^rope-append/))).toEqual([false, true]);
  });

  const PRODUCTS = ['matrix 1024x2048', 'matrix 1024x3072', 'matrix 4096x1024', 'matrix 6144x1024'];
  const NORM = 'rms-norm to halves [1024]';
  it('of 512 tokens norm x into halves, and attention and glu leave halves by themselves', () => {
    expect(glue(512).sort()).toEqual([...PRODUCTS, NORM, NORM]);
  });

  it('of 32 tokens cut K into slices, and norm what is put together of them for the next product', () => {
    // Few tiles of many rows of weights. Before the first norm, and behind the last product, there is nothing to put together.
    const [both, alone] = [`split-k 4, ${NORM}`, 'split-k 4 [1024]'];
    expect(glue(32).sort()).toEqual([...PRODUCTS, both]);
    const all = launches(32);
    expect([both, alone, NORM].map((label) => all.get(label))).toEqual([2 * LAYERS - 1, 1, 2]);
    // What is left normed is read by the very next launch.
    const labels = program.describe(32, 32);
    labels.forEach((label, at) => {
      if (label === both) expect(labels[at + 1]).toMatch(/^matrix-q4g64-\d+x1024-m32-/);
    });
  });
});

describe('launches of large products', () => {
  let device: WebGpuDevice;
  let program: WebGpuProgram;

  beforeAll(async () => {
    const fields = { ...shapeFields('llama-8b', { vocab: 4096 }), num_hidden_layers: 2 };
    ({ device, program } = await open(parseModelConfig(fields, 'two layers')));
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  // Gate and up leave the bytes that the product behind them reads, where a workgroup makes a whole piece of them.
  it('of 8 rows make bytes of x with a norm alone: others are left theirs', () => {
    expect(glueOf(program, 2, 8).sort()).toEqual(
      [
        'rms-norm to bytes [4096]',
        'dp4a 6144x4096',
        'dp4a 4096x4096',
        'rms-norm to bytes [4096]',
        'dp4a 28672x4096 to bytes',
        'dp4a 4096x14336',
      ].sort(),
    );
  });

  it.each([2, 4, 8])('of %i rows have bytes left by attention as it merges', (rows) => {
    // Steps with tiles have a launch for that, and the merge into f32.
    const merges = [...launchesOf(program, rows)].filter(([label]) => /reduce|tiles to bytes/.test(label));
    expect(merges).toEqual([
      ['attend reduce 32/8×128 to bytes', 2],
      ['attend reduce 32/8×128', 2],
      ['attend tiles to bytes [4096]', 2],
    ]);
  });

  it.each([2, 4])('of %i rows norm between two products without a launch', (rows) => {
    const labels = program.describe(rows, rows).map((label) => label.replace(/-q4g64-(\d+x\d+)-\S+/, ' $1'));
    const layer = (first: readonly string[], last: string): string[] => [
      ...first,
      'dp4a 4096x4096 to bytes of a norm',
      'dp4a 28672x4096 of sums of squares to bytes',
      last,
    ];
    expect(labels.filter((label) => /^(dp4a|rms-norm)/.test(label))).toEqual([
      ...layer(['rms-norm to bytes [4096]', 'dp4a 6144x4096'], 'dp4a 4096x14336 to bytes of a norm'),
      ...layer(['dp4a 6144x4096 of sums of squares'], 'dp4a 4096x14336'),
      // Of rows that have an output, and the vocabulary.
      'rms-norm to bytes [4096]',
      'dp4a 4096x4096',
    ]);
  });

  it('of 32 rows leave slices of K to what reads them: the rope-append, and the norm before the next product', () => {
    const all = launchesOf(program, 32);
    expect([...all].filter(([label]) => /split-k|norm/.test(label))).toEqual([
      ['rms-norm to halves [4096]', 2],
      ['rope-append 32/8×128 of split-k 8', 2],
      ['split-k 8, rms-norm to halves [4096]', 3],
      // Of the last layer, and of the vocabulary.
      ['split-k 8 [4096]', 2],
    ]);
  });
});
