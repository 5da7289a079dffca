import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random } from '../../../../test/devices/numbers.js';
import { compute, openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import { subgroupSums } from './subgroup-sums.js';

/** Runs the text lane by lane, for devices have few: what each of `lanes` lanes has in each variable then. */
function executed(
  text: string,
  lanes: number,
  given: Readonly<Record<string, number>>[],
): Record<string, number | boolean>[] {
  const all = given.map((own) => ({ ...own }) as Record<string, number | boolean>);
  for (const line of text.split('\n')) {
    const [, name, expression] = /^let (\w+) = (.*);$/.exec(line)!;
    const body = expression!
      .replace(/subgroupShuffleXor\((.+), (\d+)u\)/, 'at(lane ^ $2, (lane) => $1)')
      .replace(/\b(v\d+|up\d+|sum\w+)\b/g, 'all[lane].$1')
      .replace(/\b(\d+)u\b/g, '$1');
    const run = new Function('lane', 'all', 'select', 'at', `return ${body};`);
    const select = (no: number, yes: number, which: boolean): number => (which ? yes : no);
    const at = (lane: number, of: (lane: number) => number): number => of(lane);
    const values = Array.from({ length: lanes }, (_, lane) => run(lane, all, select, at) as number | boolean);
    values.forEach((value, lane) => {
      all[lane]![name!] = value;
    });
  }
  return all;
}

describe('sums of a subgroup, several at once', () => {
  it.each([
    [64, 4],
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
    const given = Array.from({ length: lanes }, (_, lane) =>
      Object.fromEntries(names.map((name, v) => [name, 1000 * v + lane])),
    );
    const own = executed(text, lanes, given);
    const sum = (value: number): number => lanes * 1000 * value + (lanes * (lanes - 1)) / 2;
    // All lanes of each `every` have what the first of them has.
    for (const [lane, values] of own.entries()) {
      const first = Math.floor(lane / every) * totals.length;
      expect(totals.map((total) => values[total])).toEqual(totals.map((_, i) => sum(first + i)));
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
