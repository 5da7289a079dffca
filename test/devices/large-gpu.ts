import type { Capabilities } from '../../src/device/webgpu/kernel.js';

const halves = (n: number) => ({ m: 16, n, k: 16, component: 'f16', result: 'f32' });

/** What a large GPU offers, for tests of what is chosen for one: the rules were measured on such. */
export const LARGE: Capabilities = {
  precision: 'default',
  deterministic: false,
  f16: true,
  subgroups: true,
  subgroupMinSize: 32,
  subgroupMaxSize: 32,
  packedDots: true,
  minLanes: 16,
  matrices: [halves(16), halves(8), { m: 16, n: 8, k: 32, component: 'i8', result: 'i32' }],
  workgroupBytes: 49152,
  workgroupThreads: 1024,
  bindingBytes: 2 ** 31 - 4,
  storageBuffers: 10,
};
