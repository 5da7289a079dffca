/** The newest tokens as floats beside what is quantised: what a token reads depends on its position alone. Attention beside float64. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import { kernelDevices } from './devices.js';
import { affine, F16, F32, turbo } from './kv-cases.js';
import { Random, worstRow } from './numbers.js';

const HALF = { dtype: 'f16', tokens: 40 } as const;

/** Within the tail, past it, past a split, in company. */
const STEPS: readonly (readonly [slots: number[], lengths: number[]])[] = [
  [
    [0, 1],
    [20, 70],
  ],
  [
    [0, 1],
    [45, 1],
  ],
  [
    [1, 0],
    [190, 60],
  ],
  [
    [0, 1],
    [1, 1],
  ],
];

const CASES: readonly AttentionCase[] = [
  { heads: 4, kvHeads: 2, headDim: 64, key: turbo(4), value: turbo(4), tail: HALF },
  {
    heads: 6,
    kvHeads: 2,
    headDim: 32,
    key: affine(8),
    value: affine(4),
    tail: { dtype: 'f32', tokens: 1 },
    blockTokens: 32,
  },
  {
    heads: 4,
    kvHeads: 1,
    headDim: 64,
    key: F32,
    value: turbo(3),
    tail: { dtype: 'f32', tokens: 300 },
    softcap: 20,
  },
  {
    heads: 4,
    kvHeads: 2,
    headDim: 144,
    key: turbo(4),
    value: turbo(4),
    tail: { dtype: 'f16', tokens: 256 },
    sinks: 1,
  },
  {
    heads: 4,
    kvHeads: 4,
    headDim: 48,
    key: affine(6),
    value: F16,
    tail: HALF,
    head: { dtype: 'f16', tokens: 32 },
  },
  {
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    key: turbo(3),
    value: turbo(4),
    tail: { dtype: 'f16', tokens: 17 },
    head: { dtype: 'f16', tokens: 256 },
  },
];

describe.each(kernelDevices.filter(({ kind }) => kind === 'cpu'))('a float tail on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it('reads the newest positions as floats, and codes before them', async () => {
    for (const c of CASES)
      for (const centre of [undefined, 'turning'] as const) {
        const bench = await Bench.open(device, { ...c, ...(centre ? { centre } : {}) }, 7);
        const width = c.heads * c.headDim;
        try {
          for (const [slots, lengths] of STEPS) {
            const { out, expected, rows } = await bench.step(slots, lengths);
            const where = `${JSON.stringify(c)} ${centre} ${lengths}`;
            expect(worstRow(out, expected, rows, width), where).toBeLessThan(1e-2);
          }
        } finally {
          await bench.close();
        }
      }
  });

  it('is told from codes: without it another sum comes out', async () => {
    const c: AttentionCase = {
      heads: 4,
      kvHeads: 2,
      headDim: 64,
      key: turbo(2),
      value: turbo(2),
      tail: HALF,
    };
    const { tail: _, ...without } = c;
    const [own, other] = [await Bench.open(device, c, 7), await Bench.open(device, without, 7)];
    try {
      const { expected, rows } = await own.step([0], [90]);
      const { out } = await other.step([0], [90]);
      expect(worstRow(out, expected, rows, c.heads * c.headDim)).toBeGreaterThan(0.1);
    } finally {
      await own.close();
      await other.close();
    }
  });

  it('does not read its blocks behind the newest positions', async () => {
    const c: AttentionCase = {
      heads: 4,
      kvHeads: 2,
      headDim: 64,
      key: affine(4),
      value: turbo(4),
      tail: HALF,
    };
    const bench = await Bench.open(device, c, 3);
    try {
      await bench.step([2], [130]);
      expect(await bench.spoilBehindWindow(2)).toBe(5);
      for (const length of [1, 30]) {
        const { out, expected, rows } = await bench.step([2], [length]);
        expect(worstRow(out, expected, rows, c.heads * c.headDim)).toBeLessThan(1e-2);
      }
    } finally {
      await bench.close();
    }
  });

  it('a picture sees all of itself, the newest positions as floats', async () => {
    const c: AttentionCase = {
      heads: 4,
      kvHeads: 2,
      headDim: 64,
      key: turbo(4),
      value: turbo(4),
      tail: HALF,
      ahead: true,
    };
    const bench = await Bench.open(device, c, 3);
    try {
      const { out, expected, rows } = await bench.step([0], [120], undefined, [0], [[[20, 90]]]);
      expect(worstRow(out, expected, rows, c.heads * c.headDim)).toBeLessThan(1e-2);
    } finally {
      await bench.close();
    }
  });

  it('a slot that is quantised late has it before and after', async () => {
    const c: AttentionCase = {
      heads: 4,
      kvHeads: 2,
      headDim: 64,
      key: turbo(4),
      value: affine(8),
      tail: HALF,
      floatStart: { dtype: 'f16', slots: [0] },
    };
    const bench = await Bench.open(device, c, 3);
    try {
      await bench.step([0, 1], [64, 64]);
      await bench.convert(0);
      const { out, expected, rows } = await bench.step([1, 0], [1, 40]);
      expect(worstRow(out, expected, rows, c.heads * c.headDim)).toBeLessThan(1e-2);
    } finally {
      await bench.close();
    }
  });

  it('a row has the same bits however its prompt was cut, alone and in company', async () => {
    for (const more of [{}, { head: { dtype: 'f16', tokens: 32 } as const, centre: 'turning' as const }]) {
      const c: AttentionCase = {
        heads: 4,
        kvHeads: 2,
        headDim: 64,
        key: turbo(4),
        value: turbo(3),
        tail: HALF,
        ...more,
      };
      const width = (c.heads + 2 * c.kvHeads) * c.headDim;
      const size = c.heads * c.headDim;
      const rows = new Random(5).normals(340 * width);
      const other = new Random(6).normals(40 * width);
      const alone = await Bench.open(device, c, 3);
      const beside = await Bench.open(device, c, 3);
      try {
        const begun = await alone.step([0], [250], rows.subarray(0, 250 * width));
        const ended = await alone.step([0], [90], rows.subarray(250 * width));
        const want = Float32Array.from([...begun.out, ...ended.out]);
        let at = 0;
        for (const [i, length] of [30, 7, 1, 162, 100, 1, 1, 38].entries()) {
          const own = rows.subarray(at * width, (at + length) * width);
          const both = i === 4 ? Float32Array.from([...other, ...own]) : own;
          const got = await beside.step(i === 4 ? [1, 0] : [0], i === 4 ? [40, length] : [length], both);
          const mine = got.out.subarray(i === 4 ? 40 * size : 0);
          expect(mine, `tokens from ${at}`).toEqual(want.subarray(at * size, (at + length) * size));
          at += length;
        }
      } finally {
        await alone.close();
        await beside.close();
      }
    }
  });
});

describe.each(kernelDevices)('$name', (spec) => {
  it('says whether it keeps float tails: what asks for one elsewhere is refused', async () => {
    await using device = await spec.create();
    expect(device.info.floatTails ?? false).toBe(spec.kind === 'cpu');
  });
});
