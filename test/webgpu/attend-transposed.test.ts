/** Attention of decode over values that lie transposed, by the kernel of few workgroups, against float64. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type AttentionCase, AttentionBench as Bench } from '../devices/attention-bench.js';
import { devices, narrowSubgroups } from '../devices/devices.js';
import { F16, turbo } from '../devices/kv-cases.js';
import { checkKv } from '../devices/kv-check.js';

const specs =
  narrowSubgroups.length > 0 ? narrowSubgroups : devices.filter((d) => d.name === 'webgpu default');

const ROWS = [0, 1, 2, 3, 4, 5, 6];
/** Contexts around the edges of tiles of 16 positions, of blocks and of splits of 256; then tokens one at a time. */
const STEPS: readonly (readonly [slots: number[], lengths: number[]])[] = [
  [
    [0, 1, 2, 3, 4],
    [14, 15, 30, 31, 7],
  ],
  [[5], [100]],
  [[5], [100]],
  [[5], [54]],
  ...[100, 100, 100, 110, 100].map((length) => [[6], [length]] as const),
  ...Array.from({ length: 4 }, () => [ROWS, ROWS.map(() => 1)] as const),
].map(([slots, lengths]) => [[...slots], [...lengths]]);

const base = { headDim: 128, rope: null, value: turbo(4) } as const;

describe.each(specs)('transposed values on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each([
    { group: 1, blockTokens: 16, window: null, key: turbo(3) },
    { group: 2, blockTokens: 32, window: 40, key: turbo(3) },
    { group: 4, blockTokens: 16, window: 7, key: turbo(4) },
    { group: 4, blockTokens: 64, window: null, key: turbo(3) },
    { group: 8, blockTokens: 32, window: 100, key: F16 },
  ])(
    'are summed: groups of $group, blocks of $blockTokens, window $window',
    async ({ group, blockTokens, window, key }) => {
      const shape = { ...base, heads: 2 * group, kvHeads: 2, key, blockTokens, window };
      await checkKv(device, spec, shape, STEPS);
    },
  );

  it.each([1, 20, 70])('are not read behind a window of %i', async (window) => {
    const shape: AttentionCase = {
      ...base,
      heads: 4,
      kvHeads: 1,
      key: turbo(3),
      window,
      blockTokens: 32,
    };
    const bench = await Bench.open(device, shape, 5);
    try {
      await bench.step([0], [110]);
      await bench.step([0], [35]);
      expect(await bench.spoilBehindWindow(0)).toBeGreaterThan(0);
      const { out, expected } = await bench.step([0], [1]);
      out.forEach((value, i) => {
        expect(Math.abs(value - expected[i]!)).toBeLessThan(0.01);
      });
    } finally {
      await bench.close();
    }
  });
});
