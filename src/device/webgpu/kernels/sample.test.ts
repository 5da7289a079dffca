import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random } from '../../../../test/devices/numbers.js';
import * as reference from '../../../../test/devices/reference.js';
import { record, rowsStep, setSampling, withProgram } from '../../../../test/devices/run.js';
import { compute, openTestDevice } from '../../../../test/setup/swiftshader.js';
import { gumbelFromWord, randomWord } from '../../random.js';
import type { WebGpuDevice } from '../device.js';
import { GUMBEL_NEAR, GUMBEL_NEAR_WGSL, LOG_WGSL, NEAR_ONE, RANDOM_WGSL } from './sample-wgsl.js';

/** Words at both ends, and some between. */
function edgeWords(): number[] {
  const words = [0, 1, 511, 512, 513, 0x7fffffff, 0x80000000, 0xfffffdff, 0xfffffe00, 0xffffffff];
  for (let i = 0; i < 2000; i++) words.push(Math.imul(i + 1, 0x9e3779b1) >>> 0);
  for (let i = 0; i < 200; i++) words.push((0xffffffff - i * 512) >>> 0, i * 512);
  return words;
}

describe('random numbers on the GPU', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it('are the bits of random.ts', async () => {
    const edge = [0, 1, 2, 0x7fffffff, 0x80000000, 0xdeadbeef, 0xffffffff];
    const keys: number[][] = [];
    for (let i = 0; i < 343; i++) {
      const [a, b, c] = [edge[i % 7]!, edge[Math.floor(i / 7) % 7]!, edge[Math.floor(i / 49)]!];
      keys.push([a, b, c, (i * 2654435761) >>> 0, i]);
    }
    const words = await compute(
      raw,
      LOG_WGSL + RANDOM_WGSL,
      `if (i >= ${keys.length}u) { return; }
       let at = i * 5u;
       out[i] = random_word(given[at], given[at + 1u], given[at + 2u], given[at + 3u], given[at + 4u]);`,
      Uint32Array.from(keys.flat()),
      keys.length,
    );
    expect([...words]).toEqual(keys.map(([a, b, c, d, e]) => randomWord(a!, b!, c!, d!, e!)));
  });

  it('are the same four at a time, and noise near enough when told cheaply', async () => {
    const words = edgeWords();
    const out = await compute(
      raw,
      LOG_WGSL + RANDOM_WGSL + GUMBEL_NEAR_WGSL,
      `if (i >= ${words.length}u) { return; }
       let words = random_words(given[i], 5u, 1u, i >> 3u, vec4<u32>(0u, 1u, 2u, 3u) + 4u * i);
       let word = random_word(given[i], 5u, 1u, i >> 3u, 4u * i + (i & 3u));
       out[i * 3u] = words[i & 3u] - word;
       let v = from_one(vec4<u32>(given[i]));
       out[i * 3u + 1u] = bitcast<u32>(v[i & 3u]);
       out[i * 3u + 2u] = bitcast<u32>(gumbel_near(v)[i & 3u]);`,
      Uint32Array.from(words),
      words.length * 3,
    );
    const floats = new Float32Array(out.buffer);
    words.forEach((word, i) => {
      const [v, near] = [floats[i * 3 + 1]!, floats[i * 3 + 2]!];
      expect(out[i * 3]).toBe(0);
      expect(v).toBe(1 - ((word >>> 9) + 0.5) / 8388608);
      // Never too small, and near enough where a threshold is taken from it.
      const over = near - gumbelFromWord(word);
      expect(over, `word ${word}`).toBeGreaterThan(-GUMBEL_NEAR / 2);
      if (v <= NEAR_ONE) expect(over, `word ${word}`).toBeLessThan(GUMBEL_NEAR / 2);
    });
  });

  it('have Gumbel noise to f32 precision, at both ends of the range too', async () => {
    const words = edgeWords();
    const out = await compute(
      raw,
      LOG_WGSL + RANDOM_WGSL,
      `if (i >= ${words.length}u) { return; } out[i] = bitcast<u32>(gumbel(given[i]));`,
      Uint32Array.from(words),
      words.length,
    );
    const got = new Float32Array(out.buffer);
    words.forEach((word, i) => {
      const want = gumbelFromWord(word);
      expect(Math.abs(got[i]! - want), `word ${word}: ${got[i]} for ${want}`).toBeLessThan(
        1e-6 * Math.max(1, Math.abs(want)),
      );
    });
  });
});

describe('the sampler over several chunks', () => {
  it('filters as sorting does, with ties on both sides of a chunk', async () => {
    const { device } = await openTestDevice();
    const vocab = 4500;
    const random = new Random(12);
    const logits: Float32Array[] = [];
    const rows: reference.SamplingRow[] = [];
    // Five chunks: a top-k up to 5 is narrowed by the best of each chunk, a larger one is not.
    for (const topK of [1, 2, 3, 5, 6, 40]) {
      for (const topP of [1, 0.7]) {
        const row = random.normals(vocab, 2);
        for (let i = 0; i < vocab; i++) row[i] = Math.round(row[i]! * 2) / 2;
        if (topK === 3) row.fill(Number.NEGATIVE_INFINITY, 1000, 4400);
        logits.push(row);
        rows.push({ temperature: 0.8, topK, topP, seed: [topK, 7], position: rows.length });
      }
    }
    const { graph, tensors } = record((ops) => {
      const x = ops.input('outputs', vocab);
      ops.sample(x);
      return { x };
    });
    await withProgram(device, graph, null, async (program) => {
      const data = new Float32Array(rows.length * vocab);
      logits.forEach((l, r) => {
        data.set(l, r * vocab);
      });
      program.write(tensors.x, data);
      const step = rowsStep(rows.length);
      rows.forEach((row, r) => {
        setSampling(step, r, row);
      });
      const { ids } = await program.submit(step);
      let checked = 0;
      rows.forEach((row, r) => {
        const want = reference.sample(logits[r]!, row);
        if (want.margin < 1e-4) return;
        checked++;
        expect(ids[r], JSON.stringify(row)).toBe(want.token);
      });
      expect(checked).toBeGreaterThan(8);
    });
    await device[Symbol.asyncDispose]();
  });
});
