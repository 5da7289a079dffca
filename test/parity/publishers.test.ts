/**
 * Checkpoints as MLX's converters lay them out (mlx_lm/models/*.py, `sanitize`): the tensors of a fixture under other names, in
 * other shapes. The logits are those of the fixture.
 */

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { numberToBf16 } from '../../src/weights/dtypes.js';
import { safetensors, type TestTensor } from '../fixtures/weights/build.js';
import { createReferenceDevice } from './reference-device.js';
import { expectedCases, largestDifference, loadFolder, MODEL_FIXTURES, Runner } from './runner.js';

type Tensors = Map<string, TestTensor>;

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-publishers-'));
});
afterAll(() => rm(scratch, { recursive: true }));

const SIZE = 2;
const numberOf = (word: number): number => new Float32Array(Uint32Array.of(word << 16).buffer)[0]!;

/** All are bf16 but for biases of choices. */
async function tensorsOf(name: string): Promise<Tensors> {
  const file = await readFile(join(MODEL_FIXTURES, name, 'model.safetensors'));
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + length)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const found = Object.entries(header).filter(([one]) => one !== '__metadata__');
  return new Map(
    found.map(([one, { dtype, shape, data_offsets }]) => {
      const [from, to] = data_offsets;
      return [one, { dtype, shape, data: new Uint8Array(file.subarray(8 + length + from, 8 + length + to)) }];
    }),
  );
}

/** Of every `of` rows of the last but one dimension `take`, from the `from`-th on. */
function picked({ dtype, shape, data }: TestTensor, take: number, of: number, from: number): TestTensor {
  const cols = shape.at(-1)! * SIZE;
  const rows = data.length / cols;
  const kept = Array.from({ length: rows }, (_, row) => row).filter(
    (row) => row % of >= from && row % of < from + take,
  );
  const own = Buffer.concat(kept.map((row) => data.subarray(row * cols, (row + 1) * cols)));
  return { dtype, shape: shape.with(-2, (shape.at(-2)! * take) / of), data: own };
}

/** Its last two dimensions changed for each other. */
function turned({ dtype, shape, data }: TestTensor): TestTensor {
  const [rows, cols] = shape.slice(-2) as [number, number];
  const out = new Uint8Array(data.length);
  for (let at = 0; at < data.length; at += rows * cols * SIZE)
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < cols; c++)
        out.set(
          data.subarray(at + (r * cols + c) * SIZE, at + (r * cols + c + 1) * SIZE),
          at + (c * rows + r) * SIZE,
        );
  return { dtype, shape: [...shape.slice(0, -2), cols, rows], data: out };
}

/** Experts that are tensors of their own, as three stacks. */
function stackSingles(tensors: Tensors, names: Readonly<Record<string, string>>): void {
  const groups = new Map<string, TestTensor[]>();
  for (const [name, tensor] of [...tensors]) {
    const [, block, expert, matrix] = /^(.*)\.experts\.(\d+)\.(\w+)\.weight$/.exec(name) ?? [];
    if (block === undefined) continue;
    const stack = `${block}.switch_mlp.${names[matrix!]}.weight`;
    const all = groups.get(stack) ?? [];
    all[Number(expert)] = tensor;
    groups.set(stack, all);
    tensors.delete(name);
  }
  for (const [stack, all] of groups)
    tensors.set(stack, {
      dtype: 'BF16',
      shape: [all.length, ...all[0]!.shape],
      data: Buffer.concat(all.map(({ data }) => data)),
    });
}

/** Norms have the 1 added, and convolutions their channels last but for one. */
function asMlxQwen(tensors: Tensors): void {
  for (const [name, tensor] of [...tensors]) {
    const { shape, data } = tensor;
    if (name.endsWith('conv1d.weight')) tensors.set(name, { ...tensor, shape: [shape[0]!, shape[2]!, 1] });
    if (!/(layernorm|model\.norm|[qk]_norm)\.weight$/.test(name)) continue;
    const words = new Uint16Array(data.slice().buffer).map((word) => numberToBf16(1 + numberOf(word)));
    tensors.set(name, { ...tensor, data: new Uint8Array(words.buffer) });
  }
}

const QWEN = { gate_proj: 'gate_proj', up_proj: 'up_proj', down_proj: 'down_proj' };

const LAYOUTS: Readonly<Record<string, (tensors: Tensors) => void>> = {
  'qwen3-next': (tensors) => {
    stackSingles(tensors, QWEN);
    asMlxQwen(tensors);
  },
  'lfm2-moe': (tensors) => {
    const names = { w1: 'gate_proj', w3: 'up_proj', w2: 'down_proj' };
    stackSingles(tensors, names);
    for (const [name, tensor] of [...tensors]) {
      const renamed = name.replace(/feed_forward\.(w[123])\./, (_, w: 'w1') => `feed_forward.${names[w]}.`);
      tensors.delete(name);
      const [channels, , taps] = tensor.shape;
      const shape = name.endsWith('conv.conv.weight') ? [channels!, taps!, 1] : tensor.shape;
      tensors.set(renamed, { ...tensor, shape });
    }
  },
  'deepseek-v3': (tensors) => {
    stackSingles(tensors, QWEN);
    const [heads, ofKeys, ofValues] = [2, 12, 16];
    const each = ofKeys + ofValues;
    for (const [name, tensor] of [...tensors]) {
      const [, block] = /^(.*)\.kv_b_proj\.weight$/.exec(name) ?? [];
      if (block === undefined) continue;
      tensors.delete(name);
      const rank = tensor.shape[1]!;
      const keys = picked(tensor, ofKeys, each, 0);
      tensors.set(`${block}.embed_q.weight`, turned({ ...keys, shape: [heads, ofKeys, rank] }));
      const values = picked(tensor, ofValues, each, ofKeys);
      tensors.set(`${block}.unembed_out.weight`, { ...values, shape: [heads, ofValues, rank] });
    }
  },
  'gpt-oss': (tensors) => {
    for (const [name, tensor] of [...tensors]) {
      const [, block, matrix, bias] = /^(.*\.experts)\.(gate_up|down)_proj(_bias)?$/.exec(name) ?? [];
      if (block === undefined) continue;
      tensors.delete(name);
      const end = bias === undefined ? 'weight' : 'bias';
      // Biases as matrices of a column.
      const rows = bias === undefined ? turned(tensor) : { ...tensor, shape: [...tensor.shape, 1] };
      const put = (as: string, one: TestTensor): void => {
        const shape = bias === undefined ? one.shape : one.shape.slice(0, -1);
        tensors.set(`${block}.${as}_proj.${end}`, { ...one, shape });
      };
      if (matrix === 'down') put('down', rows);
      else {
        put('gate', picked(rows, 1, 2, 0));
        put('up', picked(rows, 1, 2, 1));
      }
    }
  },
  'gemma4-moe': (tensors) => {
    for (const [name, tensor] of [...tensors]) {
      const [, block, matrix] = /^(.*\.experts)\.(gate_up|down)_proj$/.exec(name) ?? [];
      if (block === undefined) continue;
      tensors.delete(name);
      const put = (as: string, one: TestTensor): void => {
        tensors.set(`${block}.switch_glu.${as}_proj.weight`, one);
      };
      const rows = tensor.shape[1]!;
      if (matrix === 'down') put('down', tensor);
      else {
        put('gate', picked(tensor, rows / 2, rows, 0));
        put('up', picked(tensor, rows / 2, rows, rows / 2));
      }
    }
  },
};

it.each(Object.keys(LAYOUTS))('%s as MLX has it', async (name) => {
  const tensors = await tensorsOf(name);
  LAYOUTS[name]!(tensors);
  const config = await readFile(join(MODEL_FIXTURES, name, 'config.json'), 'utf8');
  await writeFile(join(scratch, 'config.json'), config);
  await writeFile(
    join(scratch, 'model.safetensors'),
    safetensors(Object.fromEntries(tensors), { format: 'mlx' }),
  );
  await using device = createReferenceDevice();
  const { prompt, logits } = expectedCases(name)[0]!;
  await using runner = await Runner.create(device, await loadFolder(scratch, device), {
    context: 32,
    chunk: 16,
  });
  // Norms with a 1 added are rounded again.
  const bound = name.startsWith('qwen') ? 0.1 : 2e-4;
  expect(largestDifference((await runner.generate(prompt, 1)).logits[0]!, logits)).toBeLessThan(bound);
});
