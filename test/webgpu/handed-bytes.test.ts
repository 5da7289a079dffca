/**
 * What a dp4a product with a glu hands to the next one as bytes: they are those that a launch would make of its f32, bit for
 * bit, and two products in a row agree with float64, as kernels and in a program.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import type { Capabilities, LinearShape } from '../../src/device/webgpu/kernel.js';
import { linearFits, linearKernel } from '../../src/device/webgpu/kernels/linear-choice.js';
import { formHanded } from '../../src/device/webgpu/kernels/linear-handed.js';
import type { GpuMatrix } from '../../src/device/webgpu/matrix.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import { grid } from '../devices/devices.js';
import { Random, worstRow } from '../devices/numbers.js';
import * as reference from '../devices/reference.js';
import { record, rowsStep, withProgram } from '../devices/run.js';
import { randomMatrix, vectorSource } from '../devices/sources.js';
import { type Dp4aSizes, dp4aBound, dp4aChoice } from '../setup/dp4a-sizes.js';
import { emulateSubgroups } from '../setup/emulate-subgroups.js';
import { casesOf } from '../setup/every-case.js';
import { emptyOn, uploadTo, wordsOf } from '../setup/raw-buffers.js';
import { runKernel } from '../setup/run-kernel.js';
import { openTestDevice } from '../setup/swiftshader.js';

const EPS = 1e-5;
const HIDDEN = 256;
/** For subgroups of four. 32 features of a workgroup by values in registers, and by sums that subgroups share. */
const UP: Dp4aSizes = { across: 2, pieces: 1, each: 2, subgroups: 16, splits: 1, chunks: 1, planes: 2 };
const SHARED: Dp4aSizes = { ...UP, subgroups: 32, splits: 2, chunks: 0 };
const DOWN: Dp4aSizes = { across: 2, pieces: 1, each: 1, subgroups: 4, splits: 1, chunks: 1, planes: 2 };

interface Case {
  readonly name: string;
  readonly rows: number;
  /** Features between the products. */
  readonly inner: number;
  readonly glu: 'silu' | 'gelu';
  readonly bias: boolean;
  readonly bits: 4 | 8;
  readonly up: Dp4aSizes;
  readonly down: Dp4aSizes;
  /** Of subgroups, if not as the device has them. */
  readonly lanes?: 32;
}

const AXES = {
  rows: casesOf([1, 3], [2, 5, 8]),
  planes: [1, 2],
  pieces: [1, 2],
  ends: ['in registers', 'together'],
  glu: ['silu', 'gelu'],
  bias: [false, true],
} as const;
const FORMS = grid(AXES, true).map(({ rows, planes, pieces, ends, glu, bias }): Case => {
  const up = ends === 'together' ? SHARED : UP;
  return {
    name: `${rows} rows, planes ${planes}, pieces ${pieces}, sums ${ends}, ${glu}${bias ? ', a bias' : ''}`,
    rows,
    inner: 256,
    glu,
    bias,
    bits: 4,
    up: { ...up, subgroups: up.subgroups * pieces },
    down: { ...DOWN, planes, pieces, chunks: rows % 2 },
  };
});
const USUAL: Case = { name: '', rows: 3, inner: 256, glu: 'silu', bias: false, bits: 4, up: UP, down: DOWN };
const OTHERS: Case[] = [
  {
    ...USUAL,
    name: 'a last workgroup that is half empty',
    inner: 192,
    up: { ...UP, subgroups: 64 },
    down: { ...DOWN, across: 1 },
  },
  {
    ...USUAL,
    name: 'two pieces of 64 of a workgroup',
    rows: 2,
    up: { ...UP, subgroups: 64 },
    down: { ...DOWN, pieces: 2, planes: 1 },
  },
  { ...USUAL, name: 'codes of 8 bits', rows: 2, bits: 8 },
  {
    ...USUAL,
    name: 'codes of 8 bits, pieces of 64, one plane',
    bits: 8,
    up: { ...UP, subgroups: 32 },
    down: { ...DOWN, pieces: 2, planes: 1 },
  },
  { ...USUAL, name: 'four lanes along K, in turns', inner: 512, down: { ...DOWN, across: 4, chunks: 2 } },
];
/** Sizes as large GPUs get them. */
const OF_32: Case[] = [
  {
    ...USUAL,
    name: 'subgroups of 32, sums in registers',
    inner: 1024,
    lanes: 32,
    up: { across: 8, pieces: 1, each: 4, subgroups: 8, splits: 1, chunks: 1, planes: 1 },
    down: { across: 4, pieces: 2, each: 2, subgroups: 4, splits: 2, chunks: 0, planes: 1 },
  },
  {
    ...USUAL,
    name: 'subgroups of 32, sums together',
    rows: 2,
    inner: 1024,
    lanes: 32,
    up: { across: 4, pieces: 1, each: 2, subgroups: 8, splits: 2, chunks: 0, planes: 2 },
    down: { across: 4, pieces: 1, each: 2, subgroups: 4, splits: 2, chunks: 2, planes: 2 },
  },
];

describe('bytes handed on', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  let plainly: Capabilities;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice({ minLanes: 4 }));
    plainly = device.capabilities;
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** Both products, and what they make apart and hand in hand of x, and of a bias, of which one number may be another. */
  async function both(
    c: Case,
    given: {
      readonly x?: readonly [at: number, value: number];
      readonly bias?: readonly [at: number, value: number];
    } = {},
  ) {
    const { rows, inner, glu, bias: biased, bits } = c;
    const random = new Random(7);
    const format = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const;
    const gateUp = randomMatrix(random, 2 * inner, HIDDEN, format);
    const next = randomMatrix(random, HIDDEN, inner, {
      ...format,
      bits,
      groupSize: inner % 64 === 0 ? 64 : 32,
    });
    const [first, second] = [gateUp, next].map(({ source }) =>
      device.loadMatrix([source], { use: 'linear' }),
    );
    const [wide, narrow] = [(await first!) as GpuMatrix, (await second!) as GpuMatrix];
    const base = {
      rowKind: 'tokens',
      rows,
      outOffset: 0,
      residual: false,
      norm: null,
      glu: null,
      bias: false,
    } as const;
    const up: LinearShape = {
      ...base,
      n: 2 * inner,
      k: HIDDEN,
      weight: wide.shards[0]!.layout,
      xStride: HIDDEN,
      outStride: inner,
      norm: { eps: EPS },
      glu,
      bias: biased || given.bias !== undefined,
    };
    const down: LinearShape = {
      ...base,
      n: HIDDEN,
      k: inner,
      weight: narrow.shards[0]!.layout,
      xStride: inner,
      outStride: HIDDEN,
      residual: true,
    };
    const choices = [dp4aChoice(plainly, c.up, c.lanes), dp4aChoice(plainly, c.down, c.lanes)] as const;
    expect([linearFits(plainly, up, choices[0]), linearFits(plainly, down, choices[1])]).toEqual([
      true,
      true,
    ]);
    const form = formHanded(plainly, up, down, (shape) => (shape === up ? choices[0] : choices[1]));
    if (form === null || form === 'halves') throw new Error(`${c.name} hands no bytes on`);

    const x = random.normals(rows * HIDDEN);
    const gain = Float32Array.from(random.normals(HIDDEN), (v) => 1 + 0.3 * v);
    const bias = up.bias ? random.normals(2 * inner) : new Float32Array(2 * inner);
    const residual = random.normals(rows * HIDDEN);
    if (given.x !== undefined) x[given.x[0]] = given.x[1];
    if (given.bias !== undefined) bias[given.bias[0]] = given.bias[1];
    const made = { bytes: rows * inner * form.planes, terms: ((rows * inner) / (32 * form.pieces)) * 8 };
    const shared = {
      x: uploadTo(raw, x),
      norm: uploadTo(raw, gain),
      bias: uploadTo(raw, bias),
      residual: uploadTo(raw, residual),
    };
    const [wideRoles, narrowRoles] = [wide, narrow].map(({ shards: [shard] }) => ({
      codes: shard!.codes,
      metas: shard!.metas!,
    }));
    const own = { scratchBytes: emptyOn(raw, made.bytes), scratchTerms: emptyOn(raw, made.terms) };
    const handed = { scratchHanded: emptyOn(raw, made.bytes), scratchHandedTerms: emptyOn(raw, made.terms) };
    const [gated, out] = [emptyOn(raw, rows * inner * 4), emptyOn(raw, rows * HIDDEN * 4)];
    const run = (shape: LinearShape, at: 0 | 1, roles: Record<string, GPUBuffer>) =>
      runKernel(
        raw,
        linearKernel(plainly, shape, choices[at]),
        rows,
        roles,
        c.lanes === undefined ? undefined : emulateSubgroups,
      );
    const values = await run(up, 0, { ...shared, ...wideRoles, out: gated });
    const apart = await run(down, 1, { ...shared, ...narrowRoles, ...own, x: gated, out });
    await run({ ...up, outHanded: form }, 0, { ...shared, ...wideRoles, ...handed, out });
    const together = await run({ ...down, xHanded: form }, 1, { ...shared, ...narrowRoles, ...handed, out });
    const bytesOf = async (roles: Record<string, GPUBuffer>) => {
      const [bytes, terms] = await Promise.all(Object.values(roles).map((buffer) => wordsOf(raw, buffer)));
      return { bytes: bytes!, terms: new Float32Array(terms!.buffer) };
    };
    const [wanted, got] = [await bytesOf(own), await bytesOf(handed)];
    for (const buffer of [...Object.values({ ...shared, ...own, ...handed }), gated, out]) buffer.destroy();

    const normed = reference.rmsNorm(x, gain, rows, HIDDEN, EPS);
    const sums = reference.linear(normed, gateUp.values, rows, HIDDEN, 2 * inner, bias);
    const between = reference.glu(sums, rows, inner, glu);
    const expected = reference.linear(between, next.values, rows, inner, HIDDEN, undefined, residual);
    return { form, values, apart, together, wanted, got, expected };
  }

  it.each([...FORMS, ...OTHERS, ...OF_32])('are those of a launch of its own: $name', async (c) => {
    const { form, values, apart, together, wanted, got, expected } = await both(c);
    expect(values.every(Number.isFinite)).toBe(true);
    expect(new Set(got.bytes).size).toBeGreaterThan(20);
    expect(got.bytes).toEqual(wanted.bytes);
    expect(new Uint32Array(got.terms.buffer)).toEqual(new Uint32Array(wanted.terms.buffer));
    expect(new Uint32Array(together.buffer)).toEqual(new Uint32Array(apart.buffer));
    expect(worstRow(together, expected, c.rows, HIDDEN)).toBeLessThan(dp4aBound(form.planes));
  });

  it('of a row that went wrong say so, and its neighbours are as they were', async () => {
    const usual = await both(USUAL);
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const { got, together, apart } = await both(USUAL, { x: [HIDDEN + 5, value] });
      for (const results of [together, apart])
        for (let r = 0; r < USUAL.rows; r++) {
          const [row, before] = [results, usual.together].map((all) =>
            all.slice(r * HIDDEN, (r + 1) * HIDDEN),
          );
          if (r === 1) expect(row!.every(Number.isNaN)).toBe(true);
          else expect(row).toEqual(before);
        }
      expect(got.terms.filter(Number.isNaN)).toHaveLength((2 * USUAL.inner) / 32);
    }
  });

  it('of one feature that went wrong poison their piece', async () => {
    const pieces = {
      ...USUAL,
      up: { ...SHARED, subgroups: 64 },
      down: { ...DOWN, pieces: 2, planes: 1 },
    } as const;
    for (const [c, value] of [
      [USUAL, Number.NaN],
      [pieces, Number.NEGATIVE_INFINITY],
    ] as const) {
      // Of the ups.
      const { got, wanted, together, form } = await both(c, { bias: [c.inner + 70, value] });
      expect(got.terms).toEqual(wanted.terms);
      // Scale and sum of one piece of each row.
      expect(got.terms.filter(Number.isNaN)).toHaveLength(2 * c.rows);
      expect(got.terms).toHaveLength((2 * c.rows * c.inner) / 32 / form.pieces);
      expect(together.every(Number.isNaN)).toBe(true);
    }
  });

  it('declines what does not make whole pieces of them', () => {
    const shape: LinearShape = {
      rowKind: 'tokens',
      rows: 2,
      n: 512,
      k: HIDDEN,
      weight: { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' },
      xStride: HIDDEN,
      outStride: 256,
      outOffset: 0,
      bias: false,
      residual: false,
      norm: null,
      glu: 'silu',
    };
    const layout = { rows: 2, k: 256, bits: 4, pieces: 1, planes: 1, across: 2, chunkSteps: 4 } as const;
    const fits = (more: object, sizes: Partial<Dp4aSizes> = {}): boolean =>
      linearFits(
        plainly,
        { ...shape, outHanded: { ...layout, ...more } },
        dp4aChoice(plainly, { ...UP, ...sizes }),
      );
    expect(fits({})).toBe(true);
    expect(fits({ pieces: 2 })).toBe(false);
    expect(fits({ pieces: 2 }, { subgroups: 32 })).toBe(true);
    expect(fits({}, { subgroups: 8 })).toBe(false);
    expect(fits({}, { subgroups: 24 })).toBe(false);
    expect(fits({ rows: 4 })).toBe(false);
    expect(fits({ k: 512 })).toBe(false);
  });

  it('are handed on in a program, over layers, of steps of fewer rows than their bucket too', async () => {
    const random = new Random(41);
    const format = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const;
    const inner = 512;
    const gateUp = randomMatrix(random, 2 * inner, HIDDEN, format);
    const down = randomMatrix(random, HIDDEN, inner, format);
    const gain = random.normals(HIDDEN);
    const norm = await device.loadVector(vectorSource(gain));
    const [wide, narrow] = [
      await device.loadMatrix([gateUp.source], { use: 'linear' }),
      await device.loadMatrix([down.source], { use: 'linear' }),
    ];
    const recorded = (keeps: boolean) =>
      record((ops) => {
        const x = ops.input('tokens', HIDDEN);
        let y = x;
        for (let layer = 0; layer < 2; layer++) {
          const gated = ops.glu(ops.linear(ops.rmsNorm(y, norm, EPS), wide), 'silu');
          if (keeps) ops.keep(gated);
          y = ops.linear(gated, narrow, y);
        }
        return { x, y: ops.keep(y) };
      });
    // dp4a takes both products, whatever their size.
    const dp4a: Capabilities = {
      ...plainly,
      tuned: {
        linear: ({ glu, rows }) => {
          if (rows > 8) return undefined;
          const planes = rows > 2 ? 1 : 2;
          return dp4aChoice(plainly, { ...(glu === null ? DOWN : UP), planes });
        },
        decode: () => undefined,
      },
    };
    Object.assign(device, { capabilities: dp4a });
    const run = async (keeps: boolean) => {
      const { graph, tensors } = recorded(keeps);
      return withProgram(device, graph, null, async (program) => {
        const results: Float32Array[] = [];
        for (const rows of [8, 1, 2, 3, 5, 8]) {
          program.write(tensors.x, new Random(rows).normals(rows * HIDDEN));
          await program.submit(rowsStep(rows));
          results.push(await program.read(tensors.y, rows));
        }
        return { results, labels: (program as WebGpuProgram).describe(4, 0) };
      });
    };
    try {
      const [apart, together] = [await run(true), await run(false)];
      const makes = apart.labels.filter((label) => label === `bytes [${inner}]`);
      expect(makes).toHaveLength(2);
      expect(together.labels.map((label) => label.replace(' to bytes', ''))).toEqual(
        apart.labels
          .filter((label) => label !== `bytes [${inner}]`)
          .map((label) => label.replace(' to bytes', '')),
      );
      expect(
        together.labels.filter((label) => label.startsWith('dp4a-') && label.endsWith(' to bytes')),
      ).toHaveLength(2);
      together.results.forEach((got, i) => {
        const rows = got.length / HIDDEN;
        expect(new Uint32Array(got.buffer), `${rows} rows`).toEqual(
          new Uint32Array(apart.results[i]!.buffer),
        );
        let y: ArrayLike<number> = new Random(rows).normals(rows * HIDDEN);
        for (let layer = 0; layer < 2; layer++) {
          const normed = reference.rmsNorm(y, gain, rows, HIDDEN, EPS);
          const sums = reference.linear(normed, gateUp.values, rows, HIDDEN, 2 * inner);
          const gated = reference.glu(sums, rows, inner, 'silu');
          y = reference.linear(gated, down.values, rows, inner, HIDDEN, undefined, y);
        }
        expect(worstRow(got, y, rows, HIDDEN), `${rows} rows`).toBeLessThan(rows > 2 ? 4e-2 : 2e-4);
      });
    } finally {
      Object.assign(device, { capabilities: plainly });
    }
  });
});
