import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type DeviceSpec, devices } from './devices.js';
import { Random } from './numbers.js';
import * as reference from './reference.js';
import { runOnce } from './run.js';
import { vectorSource } from './sources.js';

/** What families ask of it; sizes that no power of two divides among them. */
const CASES: readonly (Omit<reference.Routing, 'bias' | 'expertScales'> & {
  readonly name: string;
  readonly experts: number;
  readonly bias: boolean;
  /** Weights are multiplied by a number of each expert. */
  readonly scaled?: boolean;
})[] = [
  {
    name: 'Qwen3-MoE',
    experts: 128,
    k: 8,
    score: 'softmax',
    bias: false,
    groups: null,
    normalise: { least: 0, add: 0 },
    scale: 1,
  },
  {
    name: 'Qwen2-MoE',
    experts: 60,
    k: 4,
    score: 'softmax',
    bias: false,
    groups: null,
    normalise: null,
    scale: 1,
  },
  {
    name: 'DeepSeek V2',
    experts: 24,
    k: 3,
    score: 'softmax',
    bias: false,
    groups: { count: 6, kept: 2, by: 'best' },
    normalise: null,
    scale: 16,
  },
  {
    name: 'DeepSeek V3',
    experts: 40,
    k: 6,
    score: 'sigmoid',
    bias: true,
    groups: { count: 5, kept: 2, by: 'two-best' },
    normalise: { least: 0, add: 1e-20 },
    scale: 2.5,
  },
  {
    name: 'ERNIE 4.5',
    experts: 7,
    k: 2,
    score: 'softmax',
    bias: true,
    groups: null,
    normalise: { least: 1e-12, add: 0 },
    scale: 1,
  },
  {
    name: 'Gemma 4',
    experts: 18,
    k: 4,
    score: 'softmax',
    bias: false,
    groups: null,
    normalise: { least: 0, add: 0 },
    scale: 1,
    scaled: true,
  },
  {
    name: 'all of them',
    experts: 3,
    k: 3,
    score: 'sigmoid',
    bias: false,
    groups: null,
    normalise: null,
    scale: 1,
  },
];

describe.each(devices)('route on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(CASES)('as $name', async ({ name: _, experts, bias: biased, scaled, ...rule }) => {
    const rows = 13;
    const random = new Random(experts);
    const data = random.normals(rows * experts, 2);
    const bias = biased ? random.normals(experts, 0.3) : null;
    const vector = bias === null ? null : await device.loadVector(vectorSource(bias));
    const scales = scaled === true ? random.normals(experts) : null;
    const expertScales = scales && (await device.loadVector(vectorSource(scales)));
    const { k } = rule;
    const run = (count: number, x: Float32Array): Promise<Float32Array> =>
      runOnce(device, count, { cols: experts, data: x }, (ops, t) =>
        ops.route(t, { ...rule, bias: vector, expertScales }),
      );
    const out = await run(rows, data);
    for (let r = 0; r < rows; r++) {
      const x = data.subarray(r * experts, (r + 1) * experts);
      const want = reference.route([...x], { ...rule, bias, expertScales: scales });
      const got = [...out.subarray(r * 2 * k, (r + 1) * 2 * k)];
      expect(got.slice(0, k)).toEqual(want.slice(0, k));
      for (let i = k; i < 2 * k; i++) expect(Math.abs(got[i]! / want[i]! - 1)).toBeLessThan(2e-5);
    }
    // Alone a row has the bits it has in company, at any place, of few rows and of many.
    const own = data.slice(5 * experts, 6 * experts);
    const alone = await run(1, own);
    expect(alone).toEqual(out.slice(5 * 2 * k, 6 * 2 * k));
    for (const [count, parity] of [
      [rows, 0],
      [spec.slow ? 70 : 200, 1],
    ] as const) {
      const beside = random.normals(count * experts, 2);
      for (let r = parity; r < count; r += 2) beside.set(own, r * experts);
      const found = await run(count, beside);
      for (let r = parity; r < count; r += 2)
        expect(found.slice(r * 2 * k, (r + 1) * 2 * k), `row ${r} of ${count}`).toEqual(alone);
    }
    // Ids go up: what experts made is added up in their order.
    for (let i = 1; i < k; i++) expect(alone[i]!).toBeGreaterThan(alone[i - 1]!);
  });

  it('gives ties to the lower id, and ids of experts to a row of NaN', async () => {
    const experts = 9;
    const data = new Float32Array(3 * experts).fill(1);
    data.fill(Number.NaN, experts, 2 * experts);
    data[2 * experts + 8] = 4;
    const rule = { k: 2, score: 'softmax', bias: null, groups: null, normalise: null, scale: 1 } as const;
    const out = await runOnce(device, 3, { cols: experts, data }, (ops, t) => ops.route(t, rule));
    expect([...out.subarray(0, 2), ...out.subarray(4, 6), ...out.subarray(8, 10)]).toEqual([
      0, 1, 0, 1, 0, 8,
    ]);
    expect(out[2]).toBeCloseTo(1 / 9, 6);
    expect(Number.isNaN(out[6]!)).toBe(true);
  });

  it('refuses what cannot be chosen', async () => {
    const rule = { score: 'softmax', bias: null, normalise: null, scale: 1 } as const;
    const choose = (k: number, groups: reference.Routing['groups']): Promise<unknown> =>
      runOnce(device, 1, { cols: 8, data: new Float32Array(8) }, (ops, t) =>
        ops.route(t, { ...rule, k, groups }),
      );
    await expect(choose(9, null)).rejects.toMatchObject({ code: 'shape-mismatch' });
    await expect(choose(3, { count: 4, kept: 1, by: 'best' })).rejects.toMatchObject({
      code: 'shape-mismatch',
    });
    await expect(choose(1, { count: 3, kept: 1, by: 'best' })).rejects.toMatchObject({
      code: 'shape-mismatch',
    });
  });
});
