/**
 * A file that llama.cpp's own quantizer wrote, with eight types in it, and llama.cpp's logits on that very file: one layer of Qwen3 with random
 * weights. The arbiter is transformers in float64 on the weights that gguf-py dequantised. llama.cpp rounds what meets quantised weights to
 * 8 bits, and so does the CPU device unless it is told to be exact, each by its own groups.
 * `scripts/compare-logits.mjs` makes the record.
 */

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import type { Device } from '../../src/device/device.js';
import { GgufFile } from '../../src/weights/gguf.js';
import { createReferenceDevice } from './reference-device.js';
import { largestDifference, loadFolder, Runner } from './runner.js';

const FILE = fileURLToPath(new URL('../fixtures/llama-cpp/mixed.gguf', import.meta.url));
const RECORD = new URL('../fixtures/llama-cpp/mixed.logits.json', import.meta.url);

interface Case {
  readonly prompt: readonly number[];
  readonly float64: readonly number[];
  readonly llamaCpp: readonly number[];
}
const { cases } = JSON.parse(readFileSync(RECORD, 'utf8')) as { cases: readonly Case[] };
const exact = cases.map(({ float64 }) => float64);
const llamaCpp = cases.map((one) => one.llamaCpp);

type Rows = readonly ArrayLike<number>[];

async function logitsOf(device: Device): Promise<Rows> {
  const model = await loadFolder(FILE, device);
  const rows: Float32Array[] = [];
  for (const { prompt } of cases) {
    await using runner = await Runner.create(device, model, { context: 128, chunk: 96 });
    rows.push((await runner.generate(prompt, 1)).logits[0]!);
  }
  return rows;
}

/** The squared difference over the squares about the mean of each row. */
function nmse(rows: Rows, wanted: readonly (readonly number[])[]): number {
  let [squares, about] = [0, 0];
  for (const [r, row] of wanted.entries()) {
    const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
    for (const [i, value] of row.entries()) {
      squares += (rows[r]![i]! - value) ** 2;
      about += (value - mean) ** 2;
    }
  }
  return squares / about;
}

describe('a file by llama.cpp', () => {
  it('holds the types that it was made for', async () => {
    await using file = await GgufFile.open(FILE);
    const types = [...file.tensors.values()].map(({ type }) => type.name).filter((name) => name !== 'F32');
    expect(types.sort()).toEqual(['IQ4_XS', 'Q2_K', 'Q3_K', 'Q4_K', 'Q5_0', 'Q5_K', 'Q6_K', 'Q8_0']);
  });

  it('in float64 gives the logits of its dequantised weights', async () => {
    await using device = createReferenceDevice();
    const rows = await logitsOf(device);
    for (const [i, row] of rows.entries()) expect(largestDifference(row, exact[i]!)).toBeLessThan(1e-5);
  });

  it('in reference precision gives them too, and is as near llama.cpp as float64', async () => {
    await using device = await createCpuDevice({ threads: 1, precision: 'reference' });
    const rows = await logitsOf(device);
    for (const [i, row] of rows.entries()) expect(largestDifference(row, exact[i]!)).toBeLessThan(2e-5);
    expect(nmse(rows, llamaCpp)).toBeLessThan(1.2e-3);
  });

  it('by default is no farther from float64 than llama.cpp is, and near both', async () => {
    await using device = await createCpuDevice({ threads: 1 });
    const rows = await logitsOf(device);
    expect(nmse(rows, exact)).toBeLessThan(nmse(llamaCpp, exact));
    expect(nmse(rows, llamaCpp)).toBeLessThan(2e-3);
  });
});
