import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random } from '../../../../test/devices/numbers.js';
import { compute, openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import { subgroupSums } from './subgroup-sums.js';

/** What the text does, lane by lane: the sums that each has, by index. */
function walked(count: number, lanes: number, of: (value: number, lane: number) => number): number[][] {
  let rows = Array.from({ length: lanes }, (_, lane) => Array.from({ length: count }, (_, v) => of(v, lane)));
  for (let mask = lanes / 2; mask >= 1; mask /= 2)
    rows = rows.map((own, lane) => {
      const other = rows[lane ^ mask]!;
      const half = own.length / 2;
      if (half < 1) return [own[0]! + other[0]!];
      const from = lane & mask ? half : 0;
      return Array.from({ length: half }, (_, i) => own[from + i]! + other[from + i]!);
    });
  return rows;
}

describe('sums of a subgroup, several at once', () => {
  it.each([
    [32, 2],
    [32, 4],
    [32, 8],
    [32, 16],
    [16, 4],
    [4, 2],
    [4, 4],
    [4, 16],
  ])('of %i lanes and %i values lie where they say', (lanes, count) => {
    const names = Array.from({ length: count }, (_, v) => `v${v}`);
    const { totals, every, text } = subgroupSums(names, lanes);
    const rows = walked(count, lanes, (value, lane) => 1000 * value + lane);
    const sum = (value: number): number => lanes * 1000 * value + (lanes * (lanes - 1)) / 2;
    for (let lane = 0; lane < lanes; lane += every) {
      expect(rows[lane]).toHaveLength(totals.length);
      const first = Math.floor(lane / every) * totals.length;
      expect(rows[lane]).toEqual(totals.map((_, i) => sum(first + i)));
    }
    expect((lanes / every) * totals.length).toBe(count);
    // A shuffle for each value that is given away or added to.
    const levels = Array.from({ length: Math.log2(lanes) }, (_, i) => Math.max(1, count >> (i + 1)));
    expect(text.match(/subgroupShuffleXor/g)).toHaveLength(levels.reduce((a, b) => a + b));
  });

  describe('on a device', () => {
    let device: WebGpuDevice;
    let raw: GPUDevice;
    beforeAll(async () => {
      ({ device, raw } = await openTestDevice());
    });
    afterAll(async () => {
      await device[Symbol.asyncDispose]();
    });

    it.each([2, 4, 8, 16])('%i values', async (count) => {
      const lanes = device.capabilities.subgroupMinSize;
      expect(lanes).toBe(device.capabilities.subgroupMaxSize);
      const names = Array.from({ length: count }, (_, v) => `v${v}`);
      const { text, totals, every } = subgroupSums(names, lanes);
      const given = Float32Array.from(new Random(count).normals(lanes * count));
      const body = `let lane = i % ${lanes}u;
${names.map((name, v) => `let ${name} = bitcast<f32>(given[lane * ${count}u + ${v}u]);`).join('\n')}
${text}
if (i < ${lanes}u && lane % ${every}u == 0u) {
${totals.map((total, j) => `out[lane / ${every}u * ${totals.length}u + ${j}u] = bitcast<u32>(${total});`).join('\n')}
}`;
      const words = await compute(raw, '', body, new Uint32Array(given.buffer), count, 'subgroups');
      const got = new Float32Array(words.buffer, words.byteOffset, count);
      for (let v = 0; v < count; v++) {
        let sum = 0;
        for (let lane = 0; lane < lanes; lane++) sum += given[lane * count + v]!;
        expect(got[v]).toBeCloseTo(sum, 4);
      }
    });
  });
});
