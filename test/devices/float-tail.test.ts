/** The newest tokens as floats beside what is quantised: what a token reads depends on its position alone. Attention beside float64. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import { kernelDevices, narrowSubgroups } from './devices.js';
import { affine, F16, F32, turbo } from './kv-cases.js';
import { Random, worstRow } from './numbers.js';

const HALF = { dtype: 'f16', tokens: 40 } as const;
const HEAD = { head: { dtype: 'f16', tokens: 32 } } as const;

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

const SHORT = STEPS.filter((_, i) => i !== 2);

/** Each format as keys and as values. */
const FORMATS = [
  [affine(8), affine(2)],
  [affine(6), affine(5)],
  [affine(5), turbo(3)],
  [affine(4), affine(8)],
  [affine(3), affine(4)],
  [affine(2), turbo(8)],
  [turbo(8), affine(6)],
  [turbo(4), F16],
  [turbo(3), turbo(2)],
  [turbo(2), affine(3)],
  [F16, turbo(4)],
] as const;

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

describe.each([...kernelDevices, ...narrowSubgroups])('a float tail on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** Subgroups in software: what they read is told by the first two. */
  const narrow = spec.slow && !spec.bitwise;
  /**
   * With a centre of keys too, where there is time. One that is the same everywhere is of no use where a score has to be exact by itself, beside a
   * sink or under a soft cap.
   */
  const centres = ({ sinks, softcap }: AttentionCase) => {
    const kind = device.info.keyCentres;
    const none = spec.slow || kind === undefined || (kind === 'flat' && (sinks ?? softcap) !== undefined);
    return none ? [undefined] : [undefined, kind];
  };
  const kept = ({ tail }: AttentionCase): boolean => tail!.tokens <= device.info.floatTails!;

  it('reads the newest positions as floats, and codes before them', async () => {
    for (const c of CASES.filter(kept).slice(0, spec.slow ? 2 : undefined))
      for (const centre of centres(c)) {
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

  it('goes with every format, and a float head', async () => {
    const formats = spec.slow ? FORMATS.filter((_, i) => i % 3 === 0) : FORMATS;
    for (const [at, [key, value]] of formats.entries()) {
      const head = at % 2 === 0 && [key, value].every(({ kind }) => kind !== 'float') ? HEAD : {};
      const c: AttentionCase = { heads: 4, kvHeads: 2, headDim: 64, key, value, tail: HALF, ...head };
      const bench = await Bench.open(device, c, 5);
      try {
        for (const [slots, lengths] of spec.slow ? SHORT : STEPS) {
          const { out, expected, rows } = await bench.step(slots, lengths);
          expect(worstRow(out, expected, rows, 256), `${JSON.stringify(c)} ${lengths}`).toBeLessThan(2e-2);
        }
      } finally {
        await bench.close();
      }
    }
  });

  it('of latents too', async () => {
    if (narrow) return;
    const c: AttentionCase = {
      heads: 4,
      kvHeads: 1,
      headDim: 96,
      valueDim: 64,
      key: affine(4),
      value: affine(4),
      tail: HALF,
    };
    const bench = await Bench.open(device, c, 5);
    try {
      for (const [slots, lengths] of SHORT) {
        const { out, expected, rows } = await bench.step(slots, lengths);
        expect(worstRow(out, expected, rows, 256), `${lengths}`).toBeLessThan(2e-2);
      }
    } finally {
      await bench.close();
    }
  });

  it('is told from codes: without it another sum comes out', async () => {
    if (narrow) return;
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
    if (narrow) return;
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
    if (narrow) return;
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
    if (narrow) return;
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
    if (!spec.bitwise) return;
    const { keyCentres } = device.info;
    const centre = keyCentres === undefined ? {} : { centre: keyCentres };
    for (const more of [{}, { ...HEAD, ...centre }]) {
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
  it('says how long float tails may be; what it does not keep is refused by name', async () => {
    await using device = await spec.create();
    const most = device.info.floatTails;
    expect(most).toBe(spec.kind === 'cpu' ? Number.POSITIVE_INFINITY : 256);
    if (spec.kind === 'cpu') return;
    for (const bad of [
      { ...CASES[0]!, tail: { ...HALF, tokens: 257 } },
      { ...CASES[0]!, window: 100 },
    ])
      await expect(Bench.open(device, bad, 7)).rejects.toMatchObject({ code: 'kv-tail-unsupported' });
  });
});
