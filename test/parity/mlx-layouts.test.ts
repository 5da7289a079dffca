/**
 * Hybrids and latent attention as mlx-lm lays them out (sanitize of its models): convolutions with their taps before the channel, experts as stacks, keys
 * and values of latents apart. The checkpoints of transformers with their tensors moved so; logits are those of transformers.
 */

import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Checkpoint } from '../../src/weights/checkpoint.js';
import { f32, safetensors, type TestTensor } from '../fixtures/weights/build.js';
import { createReferenceDevice } from './reference-device.js';
import { expectedCases, largestDifference, loadFolder, MODEL_FIXTURES, Runner } from './runner.js';

interface Values {
  readonly shape: readonly number[];
  readonly data: Float32Array;
}
type Tensors = Map<string, Values>;

const size = (shape: readonly number[]): number => shape.reduce((product, n) => product * n, 1);

async function read(folder: string): Promise<Tensors> {
  const checkpoint = await Checkpoint.open(folder);
  const tensors: Tensors = new Map();
  for (const name of checkpoint.names()) {
    const { shape } = checkpoint.info(name)!;
    tensors.set(name, { shape, data: Float32Array.from(await checkpoint.vector(name, shape).read()) });
  }
  await checkpoint.close();
  return tensors;
}

/** `[c, 1, k]` as `[c, k, 1]`. */
function movedConvolutions(tensors: Tensors): void {
  for (const [name, { shape, data }] of tensors)
    if (name.endsWith('.conv1d.weight')) tensors.set(name, { shape: [shape[0]!, shape[2]!, 1], data });
}

/** `experts.0.up_proj`, `experts.1.up_proj` and so on as one stack. `names`: what MLX calls some of them. */
function stackedExperts(tensors: Tensors, names: Readonly<Record<string, string>> = {}): void {
  const stacks = new Map<string, Values[]>();
  for (const [name, values] of tensors) {
    const found = /^(.*)\.experts\.(\d+)\.(\w+)\.weight$/.exec(name);
    if (found === null) continue;
    const [, at, expert, matrix] = found as unknown as [string, string, string, string];
    const key = `${at}.switch_mlp.${names[matrix] ?? matrix}.weight`;
    const stack = stacks.get(key) ?? [];
    stack[Number(expert)] = values;
    stacks.set(key, stack);
    tensors.delete(name);
  }
  for (const [key, stack] of stacks) {
    const [first] = stack as [Values];
    const data = new Float32Array(stack.length * first.data.length);
    stack.forEach((one, i) => {
      data.set(one.data, i * first.data.length);
    });
    tensors.set(key, { shape: [stack.length, ...first.shape], data });
  }
}

/** Granite's two stacks as three: of `input_linear` the first half of an expert's rows is the gate. */
function graniteStacks(tensors: Tensors): void {
  for (const [name, { shape, data }] of [...tensors]) {
    const found = /^(.*\.block_sparse_moe)\.(input|output)_linear\.weight$/.exec(name);
    if (found === null) continue;
    const [, at, side] = found as unknown as [string, string, string];
    tensors.delete(name);
    const [experts, rows, cols] = shape as [number, number, number];
    if (side === 'output') {
      tensors.set(`${at}.switch_mlp.down_proj.weight`, { shape, data });
      continue;
    }
    const half = (rows / 2) * cols;
    for (const [i, matrix] of ['gate_proj', 'up_proj'].entries()) {
      const own = new Float32Array(experts * half);
      for (let e = 0; e < experts; e++)
        own.set(data.subarray((2 * e + i) * half, (2 * e + i + 1) * half), e * half);
      tensors.set(`${at}.switch_mlp.${matrix}.weight`, { shape: [experts, rows / 2, cols], data: own });
    }
  }
}

/** `kv_b_proj` of each head as `embed_q` `[latent, nope]` and `unembed_out` `[v, latent]`. */
function splitLatents(tensors: Tensors, heads: number, nope: number): void {
  for (const [name, { shape, data }] of [...tensors]) {
    if (!name.endsWith('.kv_b_proj.weight')) continue;
    tensors.delete(name);
    const [rows, latent] = shape as [number, number];
    const each = rows / heads;
    const q = new Float32Array(heads * latent * nope);
    const out = new Float32Array(heads * (each - nope) * latent);
    for (let h = 0; h < heads; h++) {
      for (let r = 0; r < nope; r++)
        for (let c = 0; c < latent; c++) q[(h * latent + c) * nope + r] = data[(h * each + r) * latent + c]!;
      out.set(data.subarray((h * each + nope) * latent, (h + 1) * each * latent), h * (each - nope) * latent);
    }
    const at = name.slice(0, -'kv_b_proj.weight'.length);
    tensors.set(`${at}embed_q.weight`, { shape: [heads, latent, nope], data: q });
    tensors.set(`${at}unembed_out.weight`, { shape: [heads, each - nope, latent], data: out });
  }
}

const CASES: readonly (readonly [fixture: string, change: (tensors: Tensors) => void, names: RegExp])[] = [
  [
    'granite4-h',
    (tensors) => {
      movedConvolutions(tensors);
      graniteStacks(tensors);
    },
    /block_sparse_moe\.switch_mlp\.up_proj/,
  ],
  ['nemotron-h', movedConvolutions, /conv1d/],
  [
    'nemotron-h-moe',
    (tensors) => {
      movedConvolutions(tensors);
      stackedExperts(tensors, { up_proj: 'fc1', down_proj: 'fc2' });
    },
    /switch_mlp\.fc2/,
  ],
  ['deepseek-v2', (tensors) => stackedExperts(tensors), /switch_mlp\.gate_proj/],
  ...(['deepseek-v2', 'deepseek-v3', 'glm4-moe-lite'] as const).map(
    (name) =>
      [
        name,
        (tensors: Tensors) => {
          stackedExperts(tensors);
          splitLatents(tensors, 2, 12);
        },
        /unembed_out/,
      ] as const,
  ),
];

it.each(CASES)('%s', async (fixture, change, names) => {
  const from = join(MODEL_FIXTURES, fixture);
  const tensors = await read(from);
  change(tensors);
  expect([...tensors.keys()].some((name) => names.test(name))).toBe(true);
  const folder = mkdtempSync(join(tmpdir(), 'kvant-mlx-'));
  const written: Record<string, TestTensor> = {};
  for (const [name, { shape, data }] of tensors) {
    expect(size(shape)).toBe(data.length);
    written[name] = f32(shape, data);
  }
  writeFileSync(join(folder, 'model.safetensors'), safetensors(written, { format: 'mlx' }));
  copyFileSync(join(from, 'config.json'), join(folder, 'config.json'));
  await using device = createReferenceDevice();
  const model = await loadFolder(folder, device);
  await using runner = await Runner.create(device, model, { context: 128, chunk: 128 });
  for (const { prompt, logits } of expectedCases(fixture).slice(0, 2))
    expect(largestDifference((await runner.generate(prompt, 1)).logits[0]!, logits)).toBeLessThan(2e-4);
  rmSync(folder, { recursive: true });
});
