import { describe, expect, it } from 'vitest';
import { makeRopeTable, ROPE_FINE, ropeAxes } from './rope.js';

describe('makeRopeTable', () => {
  it('gives cos and sin of position · frequency by the addition theorem, to f32 precision, far out too', () => {
    const frequencies = Array.from({ length: 32 }, (_, i) => 1e6 ** (-i / 32));
    const maxContext = 1 << 20;
    const table = makeRopeTable({ dims: 64, style: 'half', frequencies, attentionFactor: 1.25, maxContext });
    expect(table.coarse.length).toBe((maxContext / ROPE_FINE) * 32 * 2);
    for (const p of [0, 1, 255, 256, 257, 99_999, maxContext - 1]) {
      for (let i = 0; i < 32; i++) {
        const f = ((p % ROPE_FINE) * 32 + i) * 2;
        const c = (Math.floor(p / ROPE_FINE) * 32 + i) * 2;
        const cos = table.coarse[c]! * table.fine[f]! - table.coarse[c + 1]! * table.fine[f + 1]!;
        const sin = table.coarse[c + 1]! * table.fine[f]! + table.coarse[c]! * table.fine[f + 1]!;
        expect(Math.abs(cos - 1.25 * Math.cos(p * frequencies[i]!))).toBeLessThan(4e-7);
        expect(Math.abs(sin - 1.25 * Math.sin(p * frequencies[i]!))).toBeLessThan(4e-7);
      }
    }
  });
});

describe('ropeAxes', () => {
  it('lays sections out in runs, as Qwen2-VL does, or lets them take turns, as Qwen3-VL does', () => {
    const axes = (sizes: [number, number, number], interleaved: boolean): string =>
      ropeAxes({ sizes, interleaved }).join('');
    expect(axes([2, 3, 3], false)).toBe('00111222');
    expect(axes([2, 3, 3], true)).toBe('01201201');
    // Of Qwen3-VL: 24, 20, 20. The last four are of time.
    expect(axes([24, 20, 20], true)).toBe(`${'012'.repeat(20)}0000`);
    // Of Qwen3.5: 11, 11, 10.
    expect(axes([11, 11, 10], true)).toBe(`${'012'.repeat(10)}01`);
  });
});
