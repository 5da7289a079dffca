/** Rotation by positions that are not cache indexes: of pictures, and of text behind them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type AttentionCase, AttentionBench as Bench, type Standing } from './attention-bench.js';
import { attentionCheckBound as bound } from './attention-check.js';
import { kernelDevices } from './devices.js';
import { F16, F32 } from './kv-cases.js';
import { worstRow } from './numbers.js';

/** Of a picture of `rows` by `columns` cells that begins at position `at`, cells `from` to `end`. */
function picture(at: number, rows: number, columns: number, from = 0, end = rows * columns): Standing {
  return Array.from(
    { length: end - from },
    (_, i) => [at, at + Math.floor((from + i) / columns), at + ((from + i) % columns)] as const,
  );
}

/** Sequences of a step: slot, tokens, and where they stand. */
type Steps = readonly (readonly [slot: number, length: number, standing: Standing])[][];

/**
 * Slot 0: five tokens of text, a picture of 6 × 7 that goes on at 12 (delta 12 − 47), text. Slot 1: text alone. Slot 2: a picture
 * first, wider than a tile of the fine table, then text.
 */
const WHOLE: Steps = [
  [
    [0, 5, 0],
    [1, 3, 0],
  ],
  [
    [0, 42, picture(5, 6, 7)],
    [1, 1, 0],
    [2, 12, picture(250, 3, 4)],
  ],
  [
    [0, 9, -35],
    [1, 20, 0],
    [2, 1, 242],
  ],
  [
    [0, 1, -35],
    [1, 1, 0],
    [2, 1, 242],
  ],
];

const CASES: readonly AttentionCase[] = [
  // The sections of Qwen2.5-VL and Qwen3-VL in small, a partial rotation as Qwen3.5 has, neighbours as GLM-4V has.
  {
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    key: F32,
    value: F32,
    sections: { sizes: [8, 12, 12], interleaved: false },
  },
  {
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    key: F16,
    value: F16,
    norm: true,
    sections: { sizes: [12, 10, 10], interleaved: true },
  },
  {
    heads: 2,
    kvHeads: 2,
    headDim: 64,
    key: F32,
    value: F32,
    ropeDims: 20,
    sections: { sizes: [4, 3, 3], interleaved: true },
  },
  {
    heads: 6,
    kvHeads: 2,
    headDim: 32,
    key: F32,
    value: F32,
    rope: 'interleaved',
    sections: { sizes: [4, 6, 6], interleaved: false },
  },
];

describe.each(kernelDevices)('rotary positions on $name', (spec) => {
  let device: Device;
  /** Where bits are promised, one run. */
  const bitwise = spec.bitwise ? [null] : [];
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(CASES)('of pictures and text in one step, $heads/$kvHeads×$headDim $rope', async (c) => {
    const bench = await Bench.open(device, c, 7);
    try {
      const width = c.heads * c.headDim;
      for (const step of WHOLE) {
        const { out, expected, q, expectedQ, rows } = await bench.step(
          step.map(([slot]) => slot),
          step.map(([, length]) => length),
          undefined,
          step.map(([, , standing]) => standing),
        );
        expect(worstRow(q, expectedQ, rows, width)).toBeLessThan(bound(spec));
        expect(worstRow(out, expected, rows, width)).toBeLessThan(bound(spec, c.key));
      }
    } finally {
      await bench.close();
    }
  });

  it.each(bitwise)('give the same bits wherever a picture is cut', async () => {
    const [c] = CASES;
    const width = (c!.heads + 2 * c!.kvHeads) * c!.headDim;
    const whole = await Bench.open(device, c!, 8);
    const cut = await Bench.open(device, c!, 9);
    try {
      const text = whole.draw(5);
      const cells = whole.draw(42);
      await whole.step([0], [5], text);
      const once = await whole.step([0], [42], cells, [picture(5, 6, 7)]);
      await cut.step([3], [5], text);
      const parts: number[] = [];
      for (const [from, end] of [
        [0, 1],
        [1, 18],
        [18, 19],
        [19, 42],
      ] as const) {
        const own = cells.subarray(from * width, end * width);
        // Beside it goes a row of text.
        const data = Float32Array.from([...own, ...cut.draw(1)]);
        const { out } = await cut.step([3, 5], [end - from, 1], data, [picture(5, 6, 7, from, end), 0]);
        parts.push(...out.subarray(0, (end - from) * c!.heads * c!.headDim));
      }
      expect(Float32Array.from(parts)).toEqual(once.out);
    } finally {
      await whole.close();
      await cut.close();
    }
  });

  it.each(bitwise)('turn text as cache indexes do, bit for bit', async () => {
    const [c] = CASES;
    const { sections: _, ...plain } = c!;
    const benches = [await Bench.open(device, c!, 8), await Bench.open(device, plain, 8)];
    try {
      for (const lengths of [
        [19, 1],
        [1, 1],
      ]) {
        const data = benches[0]!.draw(lengths[0]! + lengths[1]!);
        const [by, without] = await Promise.all(benches.map((bench) => bench.step([1, 2], lengths, data)));
        expect(by!.q).toEqual(without!.q);
        expect(by!.out).toEqual(without!.out);
      }
    } finally {
      for (const bench of benches) await bench.close();
    }
  });

  it('are refused where a model turns by cache indexes, and beyond its table', async () => {
    const [c] = CASES;
    const { sections: _, ...plain } = c!;
    const refused = expect.objectContaining({ code: 'invalid-step' });
    for (const [shape, standing] of [
      [plain, 1],
      [plain, picture(0, 1, 1)],
      [c!, -1],
      [c!, 2048],
      [c!, picture(2048, 1, 1)],
    ] as const) {
      const bench = await Bench.open(device, shape, 8);
      try {
        const step = async (): Promise<unknown> => bench.step([0], [1], undefined, [standing]);
        await expect(step()).rejects.toEqual(refused);
      } finally {
        await bench.close();
      }
    }
  });
});
