import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random } from '../../../../test/devices/numbers.js';
import { emptyOn, uploadTo } from '../../../../test/setup/raw-buffers.js';
import { runKernel } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import { turboRotation } from '../../turboquant/rotation.js';
import type { WebGpuDevice } from '../device.js';
import { type Binding, declareBindings, type Stage } from '../kernel.js';
import { rotateOneText, rotateText } from './kv-rotate.js';
import { GROUPS_PARAMETER } from './rolled.js';

const THREADS = 64;

/** `scale · (M ⊗ H) x`, or with Mᵀ, by the definition, in float64. */
function rotated(headDim: number, x: Float32Array, inverse: boolean): Float64Array {
  const { base, matrix, power, scale } = turboRotation(headDim, 'key');
  const sign = (a: number, b: number): number => {
    let bits = a & b;
    let odd = 0;
    for (; bits !== 0; bits >>= 1) odd ^= bits & 1;
    return odd === 1 ? -1 : 1;
  };
  return Float64Array.from({ length: headDim }, (_, d) => {
    const [row, at] = [Math.floor(d / power), d % power];
    let sum = 0;
    for (let k = 0; k < base; k++)
      for (let j = 0; j < power; j++)
        sum += matrix[inverse ? k * base + row : row * base + k]! * sign(at, j) * x[k * power + j]!;
    return sum * scale;
  });
}

describe('the rotation of one vector', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  async function run(headDim: number, x: Float32Array, body: string): Promise<Float32Array> {
    const bindings: Binding[] = [
      { name: 'x', access: 'read', type: 'array<vec4<f32>>' },
      { name: 'base', access: 'read', type: 'array<f32>' },
      { name: 'out', access: 'read_write', type: 'array<vec4<f32>>' },
    ];
    const stage: Stage = {
      label: 'rotate',
      wgsl: `${declareBindings(bindings)}
var<workgroup> turned: array<vec4<f32>, ${headDim / 4}>;
${body}`,
      bindings,
      workgroups: (_, out) => out.fill(1),
    };
    const { matrix } = turboRotation(headDim, 'key');
    const roles = { x: uploadTo(raw, x), base: uploadTo(raw, matrix), out: emptyOn(raw, headDim * 4) };
    const got = await runKernel(raw, { stages: [stage] }, 1, roles);
    for (const buffer of Object.values(roles)) buffer.destroy();
    return got;
  }

  const main = (vectors: number, statements: string): string => `@compute @workgroup_size(${THREADS})
fn main(${GROUPS_PARAMETER}, @builtin(local_invocation_index) lid: u32) {
  var v = vec4<f32>();
  if (lid < ${vectors}u) { v = x[lid]; }
  // Never: the layout has what the text reads, and a rotation without a base matrix reads none.
  if (groups.x == 2u) { out[0] = vec4<f32>(base[0]); }
  ${statements}
}`;

  const dims = [16, 32, 64, 80, 96, 100, 112, 128, 256];
  it.each(dims.flatMap((headDim) => [false, true].map((inverse) => [headDim, inverse] as const)))(
    'is what it is of many, and right: head_dim %i, inverse %s',
    async (headDim, inverse) => {
      const vectors = headDim / 4;
      const x = Float32Array.from(new Random(headDim).normals(headDim));
      const common = { name: 'all', headDim, array: 'turned', matrix: (i: string) => `base[${i}]`, inverse };
      const one = rotateOneText({ ...common, value: 'v' });
      const many = rotateText({ ...common, rows: 1, threads: THREADS });
      const [got, other] = [
        await run(
          headDim,
          x,
          main(vectors, `${one.transform}\n  if (lid < ${vectors}u) { out[lid] = ${one.value}; }`),
        ),
        await run(
          headDim,
          x,
          `${many.functions}\n${main(
            vectors,
            `if (lid < ${vectors}u) { turned[lid] = v; }
  ${many.transform}
  if (lid < ${vectors}u) { out[lid] = ${many.cell('lid')}; }`,
          )}`,
        ),
      ];
      const wanted = rotated(headDim, x, inverse);
      const norm = Math.hypot(...wanted);
      expect(Math.hypot(...wanted.map((w, d) => got[d]! - w)) / norm).toBeLessThan(1e-6);
      expect(new Uint32Array(got.buffer)).toEqual(new Uint32Array(other.buffer));
    },
  );
});
