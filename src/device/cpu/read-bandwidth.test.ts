import { describe, expect, it } from 'vitest';
import { loadKernels } from './kernels.js';
import { measureReadBandwidth } from './read-bandwidth.js';

describe('read bandwidth', () => {
  it('reads every byte', async () => {
    const { module } = await loadKernels('auto');
    const memory = new WebAssembly.Memory({ initial: 2, maximum: 65536, shared: true });
    const env = { memory, abort: () => {} };
    const { readAll } = new WebAssembly.Instance(module, { env }).exports as {
      readAll(from: number, bytes: number): number;
    };
    // Lane 0 of the xor of all vectors: each word of it counts, in whichever of the eight it lies.
    const words = new Uint32Array(memory.buffer, 1024, 256);
    let expected = 0;
    for (let i = 0; i < words.length; i++) {
      words[i] = Math.imul(i + 1, 0x9e3779b1) >>> 0;
      if (i % 4 === 0) expected ^= words[i]!;
    }
    expect(readAll(1024, 1024)).toBe(expected | 0);
  });

  it('is a plausible number of bytes a second', async () => {
    const rate = await measureReadBandwidth({ threads: 2, bytes: 8 * 2 ** 20, rounds: 2 });
    expect(rate).toBeGreaterThan(1e7);
    expect(rate).toBeLessThan(1e13);
  });
});
