import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random, worstRow } from '../../../../test/devices/numbers.js';
import * as reference from '../../../../test/devices/reference.js';
import { randomMatrix } from '../../../../test/devices/sources.js';
import { emulateSkinny } from '../../../../test/setup/emulate-halves.js';
import { casesOf } from '../../../../test/setup/every-case.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { MatrixFormat } from '../../weights.js';
import type { WebGpuDevice } from '../device.js';
import { type SkinnyConfig, skinnyFits, skinnyKernel, skinnyOrder } from './linear-skinny.js';
import type { LinearSpec } from './linear-spec.js';

const base: Omit<SkinnyConfig, 'bn' | 'bk' | 'subgroups' | 'depth' | 'buffers'> = {
  matrix: { m: 16, n: 16, k: 16, component: 'f16', result: 'f32' },
  subgroupSize: 1,
  workgroupBytes: 32768,
};

const affine = (bits: 4 | 8) => ({ kind: 'affine', bits, groupSize: 64, meta: 'f16' }) as const;

/** On a GPU the device suite has this kernel as it is. */
describe('the skinny kernel, halves and matrices emulated', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  // The second sizes, if any, add up in the order of the first.
  const cases = [
    [
      'short steps, a norm and a glu',
      { weight: affine(4), rows: 3, gated: true },
      { bn: 32, bk: 64, subgroups: 4, depth: 1, buffers: 1 },
      null,
    ],
    [
      'short steps of 8 bits, a residual',
      { weight: affine(8), rows: 5, gated: false },
      { bn: 16, bk: 64, subgroups: 4, depth: 2, buffers: 1 },
      { bn: 32, bk: 64, subgroups: 4, depth: 1, buffers: 2 },
    ],
    [
      'NVFP4: two scales of 32 columns',
      { weight: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'f32-e4m3' }, rows: 3, gated: false },
      { bn: 16, bk: 64, subgroups: 2, depth: 2, buffers: 1 },
      null,
    ],
    [
      'IQ4_NL, and its table',
      { weight: { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16' }, rows: 3, gated: false },
      { bn: 16, bk: 64, subgroups: 2, depth: 1, buffers: 2 },
      null,
    ],
    [
      'Q4_0',
      { weight: { kind: 'symmetric', bits: 4 }, rows: 5, gated: false },
      { bn: 16, bk: 64, subgroups: 2, depth: 2, buffers: 1 },
      null,
    ],
    [
      'Q8_0',
      { weight: { kind: 'symmetric', bits: 8 }, rows: 3, gated: false },
      { bn: 16, bk: 64, subgroups: 4, depth: 1, buffers: 2 },
      null,
    ],
    [
      'Q4_K',
      { weight: { kind: 'k-quant', bits: 4 }, rows: 3, gated: false },
      { bn: 16, bk: 64, subgroups: 2, depth: 2, buffers: 1 },
      null,
    ],
  ] as const;
  // The others are compiled for up to 40 s on a software adapter.
  it.each(casesOf<(typeof cases)[number]>(cases.slice(0, 1), cases.slice(1)))(
    '%s',
    async (_, { weight, rows, gated }, sizes, twin) => {
      const [n, k] = [40, weight.kind === 'k-quant' ? 512 : 128];
      const configs = [sizes, twin].flatMap((own): SkinnyConfig[] =>
        own === null ? [] : [{ ...base, ...own }],
      );
      expect(new Set(configs.map(skinnyOrder)).size).toBe(1);
      const width = gated ? n / 2 : n;
      const spec: LinearSpec = {
        n,
        k,
        weight,
        rows,
        xStride: k,
        outStride: width,
        outOffset: 0,
        x: 'f32',
        out: 'f32',
        bias: false,
        residual: gated ? null : 'f32',
        norm: gated ? { eps: 1e-5 } : null,
        glu: gated ? 'silu' : null,
      };
      for (const config of configs) expect(skinnyFits(spec, config)).toBe(true);
      const random = new Random(3 + weight.bits);
      const dtype = weight.kind === 'lut4' && weight.scale === 'f32-e4m3' ? 'f32' : 'f16';
      const format = { ...weight, ...(weight.kind === 'symmetric' ? { groupSize: 32 } : {}), dtype };
      const { source, values } = randomMatrix(random, n, k, format as MatrixFormat);
      const shard = (await device.loadMatrix([source], { use: 'linear' })).shards[0]!;
      const [x, residual, gain] = [random.normals(rows * k), random.normals(rows * width), random.normals(k)];
      const normed = gated ? reference.rmsNorm(x, gain, rows, k, 1e-5) : x;
      const product = reference.linear(normed, values, rows, k, n);
      const expected = gated
        ? reference.glu(product, rows, width, 'silu')
        : product.map((v, i) => v + residual[i]!);

      const out = raw.createBuffer({ size: rows * width * 4, usage: 128 | 4 | 8 });
      const roles: Record<string, GPUBuffer> = {
        x: uploadTo(raw, x),
        residual: uploadTo(raw, residual),
        norm: uploadTo(raw, gain),
        codes: shard.codes,
        metas: shard.metas!,
        out,
      };
      const run = async (config: SkinnyConfig): Promise<Float32Array> => {
        const kernel = skinnyKernel(spec, config);
        const pipeline = await raw.createComputePipelineAsync({
          layout: 'auto',
          compute: { module: raw.createShaderModule({ code: emulateSkinny(kernel.wgsl) }) },
        });
        const staging = raw.createBuffer({ size: out.size, usage: 1 | 8 });
        const encoder = raw.createCommandEncoder();
        encoder.clearBuffer(out);
        const pass = encoder.beginComputePass();
        pass.setPipeline(pipeline);
        const entries = kernel.bindings.map((name, binding) => ({
          binding,
          resource: { buffer: roles[name]! },
        }));
        pass.setBindGroup(0, raw.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
        pass.dispatchWorkgroups(...kernel.workgroups);
        pass.end();
        encoder.copyBufferToBuffer(out, 0, staging, 0, out.size);
        raw.queue.submit([encoder.finish()]);
        await staging.mapAsync(1);
        const got = new Float32Array(staging.getMappedRange()).slice();
        staging.destroy();
        return got;
      };
      const got = await run(configs[0]!);
      // x and weights are rounded to halves: 2⁻¹¹ each, over sums of 128.
      expect(worstRow(got, expected, rows, width)).toBeLessThan(3e-3);
      if (configs[1] !== undefined) expect(await run(configs[1])).toEqual(got);
    },
  );
});
