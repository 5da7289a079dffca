import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import {
  type LinearBytesConfig,
  linearBytesFits,
  linearBytesKernel,
} from '../../src/device/webgpu/kernels/linear-bytes.js';
import { type LinearSpec, outCols } from '../../src/device/webgpu/kernels/linear-spec.js';
import { Random } from '../devices/numbers.js';
import { emulateBytes } from '../setup/emulate-bytes.js';
import { openTestDevice } from '../setup/swiftshader.js';

const CONFIG: LinearBytesConfig = {
  matrix: { m: 16, n: 16, k: 32, component: 'i8', result: 'i32' },
  subgroupSize: 32,
  subgroups: 2,
  parts: 1,
  tiles: 2,
  workgroupBytes: 49152,
};
const SPEC: LinearSpec = {
  n: 64,
  k: 256,
  weight: { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' },
  rows: 4,
  xStride: 256,
  outStride: 64,
  outOffset: 0,
  x: 'f32',
  out: 'f32',
  bias: false,
  residual: null,
  norm: null,
  glu: null,
};

interface Case {
  readonly name: string;
  readonly spec?: Partial<LinearSpec>;
  readonly config?: Partial<LinearBytesConfig>;
  /** Put into the first row of x. */
  readonly given?: number;
}

const CASES: readonly Case[] = [
  { name: 'four rows, two steps', spec: { k: 512, xStride: 512 } },
  { name: 'one row, a tile a workgroup', spec: { rows: 1 }, config: { tiles: 1 } },
  {
    name: 'two rows, a norm, one subgroup',
    spec: { rows: 2, norm: { eps: 1e-6 } },
    config: { subgroups: 1 },
  },
  { name: 'three rows, gate and up', spec: { rows: 3, norm: { eps: 1e-5 }, glu: 'silu', outStride: 32 } },
  { name: 'five rows', spec: { rows: 5, residual: 'f32' } },
  { name: 'eight rows, gate and up', spec: { rows: 8, norm: { eps: 1e-6 }, glu: 'gelu', outStride: 32 } },
  {
    name: 'features that fill no tile, a bias, elsewhere in wider rows',
    spec: { n: 52, bias: true, outStride: 80, outOffset: 16, xStride: 260 },
  },
  {
    name: 'eight rows in two turns along K',
    spec: { rows: 8, k: 512, xStride: 512 },
    config: { parts: 2 },
  },
  {
    name: 'two turns and a norm, three tiles',
    spec: { norm: { eps: 1e-6 }, n: 100, outStride: 100 },
    config: { parts: 2, tiles: 3, subgroups: 1 },
  },
  { name: 'codes of 8 bits', spec: { weight: { kind: 'affine', bits: 8, groupSize: 64, meta: 'f16' } } },
  {
    name: 'groups of 128, six rows',
    spec: { rows: 6, weight: { kind: 'affine', bits: 4, groupSize: 128, meta: 'f16' } },
  },
  { name: 'a NaN stays in its row', given: Number.NaN },
  { name: 'an infinity stays in its row', given: Number.POSITIVE_INFINITY, spec: { rows: 6 } },
];

const f16Of = (bits: number): number => {
  const exponent = (bits >> 10) & 31;
  const size = exponent === 0 ? (bits & 1023) * 2 ** -24 : (1 + (bits & 1023) / 1024) * 2 ** (exponent - 15);
  return bits & 0x8000 ? -size : size;
};

/** A GPU that has such matrices multiplies with them. Elsewhere they are loops, and what is tested is the arithmetic of places. */
describe('products of a few rows on matrices of bytes', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(CASES)('$name', async ({ spec: wanted = {}, config: sizes = {}, given }) => {
    const spec = { ...SPEC, ...wanted };
    const config = { ...CONFIG, ...sizes };
    expect(linearBytesFits(spec, config)).toBe(true);
    const { n, k, rows, xStride, outStride, outOffset, weight } = spec;
    if (weight.kind !== 'affine') throw new Error('codes are wanted');
    const { bits, groupSize } = weight;
    const width = outCols(spec);
    const random = new Random(3);
    const codes = Uint32Array.from({ length: (n * k * bits) / 32 }, () => random.uniform() * 2 ** 32);
    // Scales of 0.004 to 0.06 and biases of both signs.
    const metas = Uint32Array.from({ length: (n * k) / groupSize }, () => {
      const scale = 0x1c00 + Math.floor(random.uniform() * 0x1000);
      const bias = 0x2800 + Math.floor(random.uniform() * 0x800) + (random.uniform() < 0.7 ? 0x8000 : 0);
      return scale | (bias << 16);
    });
    // Groups of very different size.
    const x = Float32Array.from(random.normals(rows * xStride), (v, i) => v * 10 ** (((i >> 6) % 4) - 2));
    if (given !== undefined) x[5] = given;
    const norm = Float32Array.from(random.normals(k), (v) => 1 + 0.3 * v);
    const bias = random.normals(n);
    const residual = random.normals(rows * outStride);

    const upload = (data: Uint32Array | Float32Array): GPUBuffer => {
      const buffer = raw.createBuffer({ size: data.byteLength, usage: 128 | 8 });
      raw.queue.writeBuffer(buffer, 0, data as Uint32Array<ArrayBuffer>);
      return buffer;
    };
    const out = raw.createBuffer({ size: rows * outStride * 4, usage: 128 | 4 });
    const buffers: Record<string, GPUBuffer> = {
      x: upload(x),
      codes: upload(codes),
      metas: upload(metas),
      norm: upload(norm),
      bias: upload(bias),
      residual: upload(residual),
      out,
    };
    const kernel = linearBytesKernel(spec, config);
    const { matrices } = device.capabilities;
    const real = matrices.some((m) => m.component === 'i8' && m.m === 16 && m.n === 16 && m.k === 32);
    const module = raw.createShaderModule({ code: real ? kernel.wgsl : emulateBytes(kernel.wgsl) });
    const { messages } = await module.getCompilationInfo();
    expect(messages.map(({ lineNum, message }) => `${lineNum}: ${message}`)).toEqual([]);
    const pipeline = await raw.createComputePipelineAsync({ layout: 'auto', compute: { module } });
    const staging = raw.createBuffer({ size: out.size, usage: 1 | 8 });
    const encoder = raw.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    const entries = kernel.bindings.map((name, binding) => ({
      binding,
      resource: { buffer: buffers[name]! },
    }));
    pass.setBindGroup(0, raw.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
    pass.dispatchWorkgroups(...kernel.workgroups);
    pass.end();
    encoder.copyBufferToBuffer(out, 0, staging, 0, out.size);
    raw.queue.submit([encoder.finish()]);
    await staging.mapAsync(1);
    const got = new Float32Array(staging.getMappedRange().slice(0));
    for (const buffer of [...Object.values(buffers), staging]) buffer.destroy();

    const code = (row: number, column: number): number => {
      const bit = column * bits;
      return (codes[(row * k * bits) / 32 + (bit >> 5)]! >>> (bit & 31)) & (2 ** bits - 1);
    };
    for (let r = 0; r < rows; r++) {
      const own = Float64Array.from({ length: k }, (_, c) => x[r * xStride + c]!);
      if (spec.norm !== null) {
        const mean = own.reduce((sum, v) => sum + v * v, 0) / k;
        own.forEach((v, c) => {
          own[c] = (v / Math.sqrt(mean + spec.norm!.eps)) * norm[c]!;
        });
      }
      // What x rounds by, at most, in each group.
      const steps = Float64Array.from(
        { length: k / 64 },
        (_, g) =>
          own.subarray(64 * g, 64 * g + 64).reduce((most, v) => Math.max(most, Math.abs(v)), 0) / 65024,
      );
      const dot = (row: number): [value: number, error: number] => {
        let value = spec.bias ? bias[row]! : 0;
        let error = 0;
        for (let c = 0; c < k; c++) {
          const word = metas[((row * k + c) / groupSize) | 0]!;
          const w = f16Of(word & 0xffff) * code(row, c) + f16Of(word >>> 16);
          value += w * own[c]!;
          // The step, and f32 in what is many times as large as the result: the terms of scale and of bias.
          error +=
            f16Of(word & 0xffff) *
            (code(row, c) + (bits === 8 ? 128 : 0)) *
            (steps[c >> 6]! + Math.abs(own[c]!) * 2e-7);
        }
        return [value, error];
      };
      for (let f = 0; f < width; f++) {
        let [value, error] = dot(f);
        if (spec.glu !== null) {
          const [up, more] = dot(f + width);
          const gate = spec.glu === 'silu' ? value / (1 + Math.exp(-value)) : value * phi(value);
          error = 1.2 * error * Math.abs(up) + Math.abs(gate) * more + 3e-7 * Math.abs(value * up);
          value = gate * up;
        }
        const to = r * outStride + outOffset + f;
        if (spec.residual !== null) value += residual[to]!;
        if (given !== undefined && r === 0) expect(Number.isFinite(got[to]), `feature ${f}`).toBe(false);
        else
          expect(Math.abs(got[to]! - value), `row ${r}, feature ${f}: ${got[to]} for ${value}`).toBeLessThan(
            error + 1e-6,
          );
      }
      // Nothing is written beside.
      for (let f = 0; f < outStride; f++)
        if (f < outOffset || f >= outOffset + width) expect(got[r * outStride + f]).toBe(0);
    }
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
