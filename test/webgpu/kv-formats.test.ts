/**
 * Quantised KV through the kernels on subgroups, which a software adapter does not take by itself: test/devices holds
 * every device to more, and on a GPU these kernels as well.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { kvFormatName } from '../../src/device/kv.js';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import { type AttentionCase, AttentionBench as Bench } from '../devices/attention-bench.js';
import { devices, narrowSubgroups } from '../devices/devices.js';
import { affine, attentionBound, F16, F32, FORMATS, turbo } from '../devices/kv-cases.js';
import { worstRow } from '../devices/numbers.js';
import { everyCase } from '../setup/every-case.js';

type Steps = readonly (readonly [slots: number[], lengths: number[]])[];

const DECODE: Steps = [
  [[0], [1]],
  [
    [1, 2],
    [17, 30],
  ],
  [
    [0, 1, 2],
    [1, 1, 9],
  ],
  [
    [2, 1],
    [1, 1],
  ],
];
const SPLITS: Steps = [
  [[0], [150]],
  [[0], [140]],
  [
    [0, 1],
    [1, 3],
  ],
  [
    [0, 1],
    [1, 1],
  ],
];

const here =
  narrowSubgroups.length > 0 ? narrowSubgroups : devices.filter((d) => d.name === 'webgpu default');

describe.each(here)('quantised KV on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  async function run(bench: Bench, c: AttentionCase, steps: Steps): Promise<void> {
    for (const [slots, lengths] of steps) {
      const { out, expected, rows } = await bench.step(slots, lengths);
      const where = `${kvFormatName(c.key)}/${kvFormatName(c.value)} ${c.heads}/${c.kvHeads}×${c.headDim} slots ${slots} lengths ${lengths}`;
      expect(worstRow(out, expected, rows, c.heads * c.headDim), where).toBeLessThan(attentionBound(spec));
    }
  }
  async function check(c: AttentionCase, steps: Steps): Promise<void> {
    const bench = await Bench.open(device, c, 3 + c.headDim + c.heads);
    try {
      await run(bench, c, steps);
    } finally {
      await bench.close();
    }
  }
  const base = { heads: 4, kvHeads: 2, headDim: 64, rope: null } as const;

  it.each(FORMATS.map((format) => [kvFormatName(format), format] as const))('%s', async (_, format) => {
    const groups = format.kind === 'affine' ? format.groupSize : 64;
    await check({ ...base, headDim: Math.max(64, groups), key: format, value: format }, DECODE);
  });

  it.each([80, 128, 256])('head_dim %i', async (headDim) => {
    const steps = DECODE.slice(0, 3);
    const cases: AttentionCase[] = [
      { ...base, heads: 3, kvHeads: 3, headDim, key: turbo(3), value: turbo(4) },
      { ...base, kvHeads: 1, headDim, key: affine(8), value: affine(5, 32) },
      { ...base, heads: 8, kvHeads: 1, headDim, key: affine(4, 128), value: turbo(2) },
      { ...base, heads: 2, kvHeads: 1, headDim, key: F16, value: affine(3) },
    ];
    // Each head size and each pair of formats has its turn where compiling takes the time.
    const turn = { 80: [0, 1], 128: [0, 2], 256: [1, 3] }[headDim]!;
    for (const [i, c] of cases.entries()) if (everyCase || turn.includes(i)) await check(c, steps);
  });

  it('more heads than four of a group: lanes share what TurboQuant has of V', async () => {
    const steps = DECODE.slice(0, 3);
    await check({ ...base, heads: 6, kvHeads: 1, headDim: 32, key: turbo(3), value: turbo(4) }, steps);
    await check({ ...base, heads: 10, kvHeads: 2, headDim: 64, key: turbo(4), value: turbo(3) }, steps);
    await check({ ...base, heads: 5, kvHeads: 1, headDim: 128, key: affine(8), value: turbo(2) }, steps);
  });

  it('without products of packed bytes in WGSL', async () => {
    const { capabilities } = device as WebGpuDevice;
    expect(capabilities.packedDots).toBe(true);
    Object.assign(device, { capabilities: { ...capabilities, packedDots: false } });
    try {
      for (const format of [affine(8), affine(4), turbo(3)])
        await check({ ...base, key: format, value: affine(8) }, DECODE);
    } finally {
      Object.assign(device, { capabilities });
    }
  });

  it('contexts over several splits, windows and soft caps', async () => {
    await check({ ...base, key: affine(8), value: affine(4) }, SPLITS);
    await check({ ...base, key: turbo(3), value: turbo(4) }, SPLITS);
    await check({ ...base, key: F32, value: F32, window: 20 }, SPLITS);
    if (everyCase) await check({ ...base, key: F16, value: F16 }, SPLITS);
    if (everyCase) await check({ ...base, key: affine(4, 32), value: turbo(3), window: 30 }, SPLITS);
    await check({ ...base, key: turbo(4), value: affine(8), softcap: 2 }, SPLITS);
  });

  it('float-start rows beside quantised ones, before and after they are converted', async () => {
    for (const [key, value] of [
      [turbo(3), turbo(4)],
      [affine(8), affine(4)],
    ] as const) {
      const c: AttentionCase = { ...base, key, value, floatStart: { dtype: 'f16', slots: [0, 1] } };
      const bench = await Bench.open(device, c, 31);
      try {
        await run(bench, c, [
          [
            [0, 3, 1],
            [20, 9, 33],
          ],
          [
            [3, 0, 1],
            [1, 1, 1],
          ],
        ]);
        await bench.convert(1);
        await run(bench, c, [
          [
            [3, 0, 1],
            [1, 1, 1],
          ],
          [
            [1, 0],
            [7, 1],
          ],
        ]);
      } finally {
        await bench.close();
      }
    }
  });

  it('blocks wholly before the window are never read: whatever lies there by then', async () => {
    for (const format of [F16, affine(8)]) {
      const c = { heads: 4, kvHeads: 2, headDim: 64, key: format, value: format, window: 20 };
      const bench = await Bench.open(device, c, 9);
      let poisoned = 0;
      for (const step of [...SPLITS, ...DECODE.slice(2)]) {
        await run(bench, c, [step]);
        for (const slot of step[0]) poisoned += await bench.spoilBehindWindow(slot);
      }
      expect(poisoned).toBeGreaterThan(20);
      await bench.close();
    }
  });
});
