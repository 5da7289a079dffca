import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compute, openTestDevice } from '../../../../test/setup/swiftshader.js';
import { gumbelFromWord, randomWord } from '../../random.js';
import type { WebGpuDevice } from '../device.js';
import { LOG_WGSL, RANDOM_WGSL } from './sample.js';

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

  it('have Gumbel noise to f32 precision, at both ends of the range too', async () => {
    const words = [0, 1, 511, 512, 513, 0x7fffffff, 0x80000000, 0xfffffdff, 0xfffffe00, 0xffffffff];
    for (let i = 0; i < 2000; i++) words.push(Math.imul(i + 1, 0x9e3779b1) >>> 0);
    for (let i = 0; i < 200; i++) words.push((0xffffffff - i * 512) >>> 0, i * 512);
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
