import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import type { LinearShape } from '../../src/device/webgpu/kernel.js';
import { linearFits, linearKernel, linearOrder } from '../../src/device/webgpu/kernels/linear-choice.js';
import type { Dp4aConfig } from '../../src/device/webgpu/kernels/linear-dp4a-plan.js';
import { Random, worstRow } from '../devices/numbers.js';
import { casesOf, everyCase } from '../setup/every-case.js';
import { linearInputs } from '../setup/linear-inputs.js';
import { uploadTo } from '../setup/raw-buffers.js';
import { runKernel } from '../setup/run-kernel.js';
import { openTestDevice } from '../setup/swiftshader.js';

const Q4 = { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' } as const;
const SHAPE: LinearShape = {
  rowKind: 'tokens',
  rows: 4,
  n: 64,
  k: 512,
  weight: Q4,
  xStride: 512,
  outStride: 64,
  outOffset: 0,
  bias: false,
  residual: false,
  norm: null,
  glu: null,
};
type Sizes = Omit<Dp4aConfig, 'subgroupSize' | 'workgroupBytes'>;
const SIZES: Sizes = { across: 4, pieces: 1, each: 2, subgroups: 2, splits: 1, chunks: 1, planes: 2 };

interface Case {
  readonly name: string;
  readonly shape?: Partial<LinearShape>;
  readonly sizes?: Partial<Sizes>;
  /** Put into the first row of x. */
  readonly given?: number;
}

const norm = { eps: 1e-5 };
const CASES: readonly Case[] = [
  { name: 'four rows, x staged' },
  { name: 'one byte of x', sizes: { planes: 1 } },
  { name: 'x where it lies', sizes: { chunks: 0, planes: 1 } },
  { name: 'x staged in turns', sizes: { chunks: 2 }, shape: { rows: 3 } },
  { name: 'one row, one lane along K', shape: { rows: 1 }, sizes: { across: 1, each: 1 } },
  { name: 'two pieces, subgroups that share rows', sizes: { pieces: 2, splits: 2, across: 2 } },
  { name: 'one turn', shape: { k: 128, xStride: 128 }, sizes: { planes: 1 } },
  {
    name: 'gate and up in registers',
    shape: { rows: 5, norm, glu: 'silu', outStride: 32 },
    sizes: { each: 4, planes: 1 },
  },
  {
    name: 'gate and up of shared rows, a bias',
    shape: { rows: 2, norm, glu: 'gelu', bias: true, outStride: 32 },
    sizes: { splits: 2, chunks: 0 },
  },
  { name: 'eight rows and a residual', shape: { rows: 8, residual: true }, sizes: { splits: 2, planes: 1 } },
  {
    name: 'features that fill no tile, a bias, elsewhere in wider rows',
    shape: { n: 52, bias: true, outStride: 80, outOffset: 16, xStride: 516 },
  },
  {
    name: 'shared rows that fill no tile, a residual elsewhere',
    shape: { n: 37, residual: true, outStride: 72, outOffset: 8, norm },
    sizes: { splits: 2, each: 1 },
  },
  {
    name: 'codes of 8 bits',
    shape: { weight: { ...Q4, bits: 8 } },
    sizes: { pieces: 2, across: 2 },
  },
  {
    name: 'codes of 8 bits, one byte of x, metas of bf16',
    shape: { weight: { ...Q4, bits: 8, meta: 'bf16' }, rows: 2 },
    sizes: { planes: 1 },
  },
  { name: 'groups of 32', shape: { weight: { ...Q4, groupSize: 32 } } },
  { name: 'groups of 128, metas of bf16', shape: { weight: { ...Q4, groupSize: 128, meta: 'bf16' } } },
  { name: 'three turns', shape: { k: 384, xStride: 384, rows: 2 }, sizes: { planes: 1 } },
  ...[3, 6, 7, 11, 13].map((rows) => ({
    name: `${rows} rows, of which lanes have some each`,
    shape: { rows },
    sizes: { each: 1, planes: 1, splits: rows === 7 ? 2 : 1, chunks: rows === 6 ? 0 : 1 } as const,
  })),
  { name: 'sixteen rows', shape: { rows: 16 }, sizes: { each: 1, planes: 1 } },
  {
    name: 'a norm of a row that is too long to be held',
    shape: { n: 8, k: 16384, xStride: 16384, outStride: 8, rows: 2, norm },
    sizes: { chunks: 0, each: 1 },
  },
  { name: 'a NaN stays in its row', given: Number.NaN },
  { name: 'an infinity stays in its row', given: Number.POSITIVE_INFINITY, shape: { norm } },
  { name: 'a number that is next to the largest stays one', given: 3e38, sizes: { planes: 1 } },
];

const bf16Of = (bits: number): number => {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, bits << 16);
  return view.getFloat32(0);
};
const f16Of = (bits: number): number => {
  const exponent = (bits >> 10) & 31;
  const size = exponent === 0 ? (bits & 1023) * 2 ** -24 : (1 + (bits & 1023) / 1024) * 2 ** (exponent - 15);
  return bits & 0x8000 ? -size : size;
};

describe('products of a few rows by dp4a', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice({ minLanes: 4 }));
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });
  const choiceOf = (sizes: Partial<Sizes>) => {
    const { subgroupMaxSize: subgroupSize, workgroupBytes } = device.capabilities;
    return { family: 'dp4a', config: { ...SIZES, ...sizes, subgroupSize, workgroupBytes } } as const;
  };

  it.each(CASES)('$name', async ({ shape: wanted = {}, sizes = {}, given }) => {
    const shape: LinearShape = { ...SHAPE, ...wanted };
    const choice = choiceOf(sizes);
    expect(linearFits(device.capabilities, shape, choice)).toBe(true);
    const { n, k, rows, xStride, outStride, outOffset, weight } = shape;
    if (weight.kind !== 'affine') throw new Error('codes are wanted');
    const { bits, groupSize } = weight;
    const width = shape.glu === null ? n : n / 2;
    const random = new Random(3);
    const codes = Uint32Array.from({ length: (n * k * bits) / 32 }, () => random.uniform() * 2 ** 32);
    // Scales of some hundredths and biases of both signs, in either format.
    const bf16 = weight.meta === 'bf16';
    const metas = Uint32Array.from({ length: (n * k) / groupSize }, () => {
      const scale = (bf16 ? 0x3c00 : 0x1c00) + Math.floor(random.uniform() * (bf16 ? 0x100 : 0x1000));
      const size = (bf16 ? 0x3d80 : 0x2800) + Math.floor(random.uniform() * (bf16 ? 0x80 : 0x800));
      return scale | ((size + (random.uniform() < 0.7 ? 0x8000 : 0)) << 16);
    });
    const numberOf = bf16 ? bf16Of : f16Of;
    // Groups of very different size.
    const x = Float32Array.from(random.normals(rows * xStride), (v, i) => v * 10 ** (((i >> 6) % 4) - 2));
    if (given !== undefined) x[5] = given;
    const gain = Float32Array.from(random.normals(k), (v) => 1 + 0.3 * v);
    const bias = random.normals(n);
    const residual = random.normals(rows * outStride);
    const roles: Record<string, GPUBuffer> = {
      x: uploadTo(raw, x),
      codes: uploadTo(raw, codes),
      metas: uploadTo(raw, metas),
      norm: uploadTo(raw, gain),
      bias: uploadTo(raw, bias),
      residual: uploadTo(raw, residual),
      out: raw.createBuffer({ size: rows * outStride * 4, usage: 128 | 4 }),
    };
    const got = await runKernel(raw, linearKernel(device.capabilities, shape, choice), rows, roles);
    for (const buffer of Object.values(roles)) buffer.destroy();

    const code = (row: number, column: number): number => {
      const bit = column * bits;
      return (codes[(row * k * bits) / 32 + (bit >> 5)]! >>> (bit & 31)) & (2 ** bits - 1);
    };
    const { pieces, planes } = choice.config;
    const cols = 32 * pieces;
    const errors = { got: 0, all: 0 };
    for (let r = 0; r < rows; r++) {
      const own = Float64Array.from({ length: k }, (_, c) => x[r * xStride + c]!);
      if (shape.norm !== null) {
        const mean = own.reduce((sum, v) => sum + v * v, 0) / k;
        own.forEach((v, c) => {
          own[c] = (v / Math.sqrt(mean + shape.norm!.eps)) * gain[c]!;
        });
      }
      // Half a step of each piece is what x rounds by, at most.
      const steps = Float64Array.from(
        { length: k / cols },
        (_, p) =>
          own.subarray(cols * p, cols * (p + 1)).reduce((most, v) => Math.max(most, Math.abs(v)), 0) /
          (planes === 1 ? 254 : 65024),
      );
      const dot = (row: number): [value: number, error: number] => {
        let value = shape.bias ? bias[row]! : 0;
        let error = 0;
        for (let c = 0; c < k; c++) {
          const word = metas[((row * k + c) / groupSize) | 0]!;
          const [scale, offset] = [numberOf(word & 0xffff), numberOf(word >>> 16)];
          const w = scale * code(row, c) + offset;
          value += w * own[c]!;
          // f32 in what is many times as large as the result: the terms of scale and of bias.
          const terms = scale * (code(row, c) + (bits === 8 ? 128 : 0)) + Math.abs(offset);
          error += 1.001 * Math.abs(w) * steps[(c / cols) | 0]! + terms * Math.abs(own[c]!) * 4e-7;
        }
        return [value, error];
      };
      for (let f = 0; f < width; f++) {
        let [value, error] = dot(f);
        if (shape.glu !== null) {
          const [up, more] = dot(f + width);
          const gate = shape.glu === 'silu' ? value / (1 + Math.exp(-value)) : value * phi(value);
          error = 1.2 * error * (Math.abs(up) + more) + Math.abs(gate) * more + 3e-7 * Math.abs(value * up);
          value = gate * up;
        }
        const to = r * outStride + outOffset + f;
        if (shape.residual) value += residual[to]!;
        if (given !== undefined && r === 0 && !(Math.abs(given) < 1e39)) {
          expect(got[to], `feature ${f}`).toBeNaN();
          continue;
        }
        expect(Math.abs(got[to]! - value), `row ${r}, feature ${f}: ${got[to]} for ${value}`).toBeLessThan(
          error + 1e-6,
        );
        if (given !== undefined) continue;
        errors.got += (got[to]! - value) ** 2;
        errors.all += value ** 2;
      }
      // Nothing is written beside.
      for (let f = 0; f < outStride; f++)
        if (f < outOffset || f >= outOffset + width) expect(got[r * outStride + f]).toBe(0);
    }
    // What bytes lose of normal numbers, in the norm: most / 254 / √3, where 32 of them have a most of 2.1 to 2.4 deviations.
    if (given === undefined)
      expect(Math.sqrt(errors.got / errors.all)).toBeLessThan(planes === 1 ? 1e-2 : 5e-5);
  });

  const BLOCKS = [
    ['Q4_K', { kind: 'k-quant', bits: 4 }],
    ['NVFP4', { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'f32-e4m3' }],
  ] as const;
  const MORE_BLOCKS = [
    ['Q4_0', { kind: 'symmetric', bits: 4 }],
    ['Q8_0', { kind: 'symmetric', bits: 8 }],
    ['IQ4_XS', { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16-i8' }],
  ] as const;
  it.each(casesOf<(typeof BLOCKS | typeof MORE_BLOCKS)[number]>(BLOCKS, MORE_BLOCKS))(
    'has the scales of %s, in turns and in chunks',
    async (_, weight) => {
      const shape: LinearShape = { ...SHAPE, weight, rows: 3, k: 1024, xStride: 1024 };
      const { roles, expected } = await linearInputs(device, raw, shape, new Random(9));
      const kinds = [{ chunks: 2 }, { chunks: 0, splits: 2, across: 2 }] as const;
      for (const sizes of everyCase ? kinds : kinds.slice(weight.kind === 'lut4' ? 1 : 0).slice(0, 1)) {
        const choice = choiceOf(sizes);
        expect(linearFits(device.capabilities, shape, choice)).toBe(true);
        expect(linearFits(device.capabilities, shape, choiceOf({ ...sizes, pieces: 2 }))).toBe(false);
        const got = await runKernel(raw, linearKernel(device.capabilities, shape, choice), shape.rows, roles);
        expect(worstRow(got, expected, shape.rows, shape.n)).toBeLessThan(1e-4);
      }
      for (const buffer of Object.values(roles)) buffer.destroy();
    },
  );

  it('has the bits of its order, whoever computes them', async () => {
    const shape: LinearShape = { ...SHAPE, rows: 2, k: 1024, xStride: 1024 };
    const random = new Random(5);
    const roles: Record<string, GPUBuffer> = {
      x: uploadTo(raw, random.normals(2 * 1024)),
      codes: uploadTo(
        raw,
        Uint32Array.from({ length: 64 * 128 }, () => random.uniform() * 2 ** 32),
      ),
      metas: uploadTo(raw, new Uint32Array(64 * 16).fill(0xa4002400)),
      out: raw.createBuffer({ size: 2 * 64 * 4, usage: 128 | 4 }),
    };
    const kinds: readonly Partial<Sizes>[] = [
      {},
      { each: 1, subgroups: 1 },
      { chunks: 0, each: 4 },
      { chunks: 4 },
      { splits: 2 },
      { planes: 1 },
      { across: 2 },
      { pieces: 2 },
    ];
    const bits = new Map<string, string>();
    for (const sizes of kinds) {
      const choice = choiceOf(sizes);
      expect(linearFits(device.capabilities, shape, choice)).toBe(true);
      const order = linearOrder(device.capabilities, shape, choice);
      const got = await runKernel(raw, linearKernel(device.capabilities, shape, choice), 2, roles);
      const text = new Uint32Array(got.buffer).join();
      expect(bits.get(order) ?? text).toBe(text);
      bits.set(order, text);
    }
    expect(bits.size).toBe(5);
    expect(new Set(bits.values()).size).toBe(5);
    for (const buffer of Object.values(roles)) buffer.destroy();
  });

  it('declines what it has no kernel for', () => {
    const fits = (shape: Partial<LinearShape>, sizes: Partial<Sizes> = {}): boolean =>
      linearFits(device.capabilities, { ...SHAPE, ...shape }, choiceOf(sizes));
    expect(fits({})).toBe(true);
    expect(fits({ rows: 17 })).toBe(false);
    expect(fits({ k: 480, xStride: 480 })).toBe(false);
    expect(fits({ k: 384, xStride: 384 })).toBe(true);
    expect(fits({ k: 384, xStride: 384 }, { chunks: 2 })).toBe(false);
    expect(fits({ weight: { ...Q4, bits: 3 } })).toBe(false);
    expect(fits({ weight: { ...Q4, groupSize: 32 } }, { pieces: 2 })).toBe(false);
    expect(fits({ weight: { kind: 'float', dtype: 'bf16' } })).toBe(false);
    expect(fits({ glu: 'silu', outStride: 32 }, { each: 1 })).toBe(false);
    expect(fits({}, { splits: 3 })).toBe(false);
    expect(fits({ k: 16384, xStride: 16384, rows: 16 })).toBe(false);
  });
});

/** The normal distribution, by its series and by its continued fraction. */
function phi(v: number): number {
  const z = Math.abs(v);
  if (z > 6) return v > 0 ? 1 : 0;
  let sum = z;
  let term = z;
  for (let i = 1; i < 200; i++) {
    term *= (z * z) / (2 * i + 1);
    sum += term;
  }
  const half = (sum * Math.exp((-z * z) / 2)) / Math.sqrt(2 * Math.PI);
  return v > 0 ? 0.5 + half : 0.5 - half;
}
