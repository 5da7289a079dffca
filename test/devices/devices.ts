/**
 * The devices under test. Every op suite runs on each of them.
 *
 * `KVANT_TEST_DEVICES=cpu|webgpu` picks one kind. WebGPU runs on SwiftShader unless `KVANT_TEST_GPU=1` says that a
 * real GPU is to be used; either way a missing adapter is a failure, not a skip.
 */
import { existsSync } from 'node:fs';
import type { Device } from '../../src/device/device.js';
import { everyCase } from '../setup/every-case.js';
import { sharedGpu } from '../setup/shared-gpu.js';

export interface DeviceSpec {
  readonly name: string;
  readonly kind: 'cpu' | 'webgpu';
  readonly precision: 'default' | 'reference';
  /** Results must not depend on batch or chunking by a single bit. */
  readonly bitwise: boolean;
  /** Slow: suites take a pairwise cover of their grid. */
  readonly slow: boolean;
  /**
   * `alone`: shares nothing with other devices of the test file, on a software adapter either. `host`: of a GPU, the device beside it that
   * holds experts in host memory.
   */
  create(alone?: boolean, host?: Device): Promise<Device>;
}

const realGpu = process.env.KVANT_TEST_GPU === '1';
const SWIFTSHADER = '/usr/lib/chromium/vk_swiftshader_icd.json';

function cpu(name: string, options: object, precision: 'default' | 'reference' = 'default'): DeviceSpec {
  return {
    name: `cpu ${name}`,
    kind: 'cpu',
    precision,
    bitwise: true,
    slow: false,
    create: async () =>
      (await import('../../src/device/cpu/index.js')).createCpuDevice({ ...options, precision }),
  };
}

function webgpu(
  name: string,
  options: object,
  precision: 'default' | 'reference',
  bitwise: boolean,
): DeviceSpec {
  return {
    name: `webgpu ${name}`,
    kind: 'webgpu',
    precision,
    bitwise,
    slow: !realGpu,
    create: async (alone = false, host = undefined) => {
      if (!realGpu) {
        if (!existsSync(SWIFTSHADER)) {
          throw new Error(
            `${SWIFTSHADER} is missing: install Debian's package "chromium" (apt-get install chromium)`,
          );
        }
        process.env.VK_ICD_FILENAMES = SWIFTSHADER;
        process.env.XDG_RUNTIME_DIR ??= '/tmp';
      }
      const { createWebGpuDevice } = await import('../../src/device/webgpu/index.js');
      const gpu = realGpu || alone ? undefined : await sharedGpu();
      const beside = host === undefined ? {} : { host };
      return createWebGpuDevice({ ...options, ...beside, precision, gpu, allowSoftware: !realGpu });
    },
  };
}

const all: readonly DeviceSpec[] = [
  cpu('relaxed', { threads: 2 }),
  cpu('simd128', { threads: 2, simd: 'simd128' }),
  cpu('reference', { threads: 2 }, 'reference'),
  webgpu('default', {}, 'default', false),
  webgpu('reference', {}, 'reference', false),
  webgpu('deterministic', { deterministic: true }, 'default', true),
];

const wanted = process.env.KVANT_TEST_DEVICES?.split(',');

export const devices: readonly DeviceSpec[] = all.filter(
  (d) => wanted === undefined || wanted.includes(d.kind),
);

/**
 * For suites of the sampler, of KV formats and of every shape of attention. On a software adapter the WebGPU kinds run the same kernels there: the kind
 * that is held to the most stands for all. On a GPU they differ, and all are tested.
 */
export const kernelDevices: readonly DeviceSpec[] = devices.filter(
  (d) => !d.slow || d.name === 'webgpu deterministic',
);

/**
 * Kernels on subgroups leave narrow subgroups, as a software adapter has them, to the portable ones. Here they do not:
 * their text and what is fused into them is tested where there is no GPU. On a GPU `default` has them.
 */
export const narrowSubgroups: readonly DeviceSpec[] =
  realGpu || (wanted !== undefined && !wanted.includes('webgpu'))
    ? []
    : [webgpu('narrow subgroups', { minLanes: 4 }, 'default', false)];

/** Whether a cover of pairs is enough: on a slow device, and where the same source is compiled to other instructions alone. */
export const inPairs = ({ slow, name }: DeviceSpec): boolean =>
  slow || (!everyCase && name === 'cpu simd128');

/**
 * Relative error that the features of a tower may have. Where sums have no one order, a GPU takes matrices of halves. Of Gemma 4, whose
 * scores are not divided by √headDim, they lose most: up to 7.1e-3 on an H100, others up to 2.1e-3.
 */
export function featureBound({ kind, precision, bitwise }: DeviceSpec, family = ''): number {
  if (!realGpu || kind !== 'webgpu' || precision !== 'default' || bitwise) return 1e-5;
  return family.includes('gemma4') ? 1e-2 : 3e-3;
}

/** All combinations of the axes, or a cover in which every pair of values meets at least once. */
export function grid<T extends Record<string, readonly unknown[]>>(
  axes: T,
  pairs: boolean,
): { [K in keyof T]: T[K][number] }[] {
  type Point = { [K in keyof T]: T[K][number] };
  const names = Object.keys(axes) as (keyof T & string)[];
  let points: Point[] = [{} as Point];
  for (const name of names)
    points = points.flatMap((p) => axes[name]!.map((v) => ({ ...p, [name]: v }) as Point));
  if (!pairs) return points;
  const pairsOf = (p: Point): string[] =>
    names.flatMap((a, i) =>
      names.slice(i + 1).map((b) => `${a}=${JSON.stringify(p[a])}&${b}=${JSON.stringify(p[b])}`),
    );
  const pairsOfEach = points.map(pairsOf);
  const missing = new Set(pairsOfEach.flat());
  const chosen: Point[] = [];
  while (missing.size > 0) {
    let best = 0;
    let gain = -1;
    for (let i = 0; i < pairsOfEach.length; i++) {
      const g = pairsOfEach[i]!.filter((pair) => missing.has(pair)).length;
      if (g > gain) [best, gain] = [i, g];
    }
    for (const pair of pairsOfEach[best]!) missing.delete(pair);
    chosen.push(points[best]!);
  }
  return chosen;
}
