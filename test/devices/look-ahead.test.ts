/** Tokens of a picture see each other, whichever comes first (Node `attend`, `ahead`). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { everyCase } from '../setup/every-case.js';
import { type AttentionCase, AttentionBench as Bench, type Pictures } from './attention-bench.js';
import { attentionCheckBound as bound } from './attention-check.js';
import { kernelDevices } from './devices.js';
import { affine, F16, F32 } from './kv-cases.js';
import { worstRow } from './numbers.js';

type Step = readonly (readonly [slot: number, length: number, pictures?: Pictures])[];

/** Pictures of one token, of a tile, across splits and tiles; two one behind the other; begun in an earlier step; text beside. */
const STEPS: readonly Step[] = [
  [
    [0, 40, [[3, 27]]],
    [1, 130],
    [
      2,
      80,
      [
        [0, 17],
        [17, 18],
        [30, 80],
      ],
    ],
  ],
  [
    [0, 1],
    [1, 150, [[140, 275]]],
    [2, 16],
  ],
  [
    // The first ten of the picture are stored.
    [0, 33, [[31, 70]]],
    [1, 1],
    [2, 5],
  ],
];

const BASE: AttentionCase = { heads: 4, kvHeads: 2, headDim: 64, key: F32, value: F32, ahead: true };
const CASES: readonly AttentionCase[] = [
  BASE,
  { ...BASE, window: 20, key: F16, value: F16 },
  { ...BASE, heads: 2, kvHeads: 2, headDim: 16, softcap: 2, window: 300, sinks: 1, rope: null },
  { ...BASE, key: affine(8), value: affine(4, 32) },
];
const MORE: readonly AttentionCase[] = [16, 80, 128, 256].flatMap((headDim) => [
  { ...BASE, headDim, window: 33 },
  { ...BASE, headDim, heads: 6, key: F16, value: F16 },
]);

describe.each(kernelDevices)('pictures that look ahead on $name', (spec) => {
  let device: Device;
  const bitwise = spec.bitwise ? [null] : [];
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  async function run(bench: Bench, step: Step): Promise<Awaited<ReturnType<Bench['step']>>> {
    return bench.step(
      step.map(([slot]) => slot),
      step.map(([, length]) => length),
      undefined,
      undefined,
      step.map(([, , pictures = []]) => pictures),
    );
  }

  it.each(everyCase ? [...CASES, ...MORE] : CASES)(
    'see each other, $heads/$kvHeads×$headDim window $window',
    async (c) => {
      const bench = await Bench.open(device, c, 17);
      const width = c.heads * c.headDim;
      try {
        for (const step of spec.slow ? STEPS.slice(0, 2) : STEPS) {
          const { out, expected, rows } = await run(bench, step);
          expect(worstRow(out, expected, rows, width)).toBeLessThan(bound(spec, c.key === F32 ? F32 : F16));
        }
      } finally {
        await bench.close();
      }
    },
  );

  it.each(bitwise)('give the same bits alone, in company and from the middle of a picture on', async () => {
    const c = { ...BASE, window: 50, key: F16, value: F16 };
    const width = (c.heads + 2 * c.kvHeads) * c.headDim;
    const [whole, cut] = [await Bench.open(device, c, 8), await Bench.open(device, c, 8)];
    try {
      const data = whole.draw(250);
      const pictures: Pictures = [
        [10, 30],
        [40, 240],
      ];
      const { out } = await whole.step([0], [250], data, undefined, [pictures]);
      const parts: number[] = [];
      for (const [from, end] of [
        [0, 5],
        [5, 31],
        [31, 240],
        [240, 250],
      ] as const) {
        const own = Float32Array.from([...data.subarray(from * width, end * width), ...cut.draw(1)]);
        const got = await cut.step([1, 2], [end - from, 1], own, undefined, [pictures, []]);
        parts.push(...got.out.subarray(0, (end - from) * c.heads * c.headDim));
      }
      expect(Float32Array.from(parts)).toEqual(out);
      // What a cache holds of a picture was computed with all of it there; the rest is computed behind it.
      const late = await cut.again(1, 100, data.subarray(100 * width, 240 * width), pictures);
      expect(late).toEqual(out.subarray(100 * c.heads * c.headDim, 240 * c.heads * c.headDim));
    } finally {
      await whole.close();
      await cut.close();
    }
  });

  it('are refused where a model only looks back, and where the step does not hold all of them', async () => {
    const refused = expect.objectContaining({ code: 'invalid-step' });
    for (const [c, step] of [
      [{ ...BASE, ahead: false }, [[0, 4, [[0, 2]]]]],
      [BASE, [[0, 4, [[2, 5]]]]],
    ] as const) {
      const bench = await Bench.open(device, c, 8);
      try {
        await expect((async () => run(bench, step))()).rejects.toEqual(refused);
      } finally {
        await bench.close();
      }
    }
  });
});
