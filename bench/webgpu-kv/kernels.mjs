// The kernels under test, by config.

import { built } from '../options.mjs';
import { bench, features, lanes } from './context.mjs';

const { bytesFits } = await built('device/webgpu/kernels/attend-bytes-plan.js');
const { bytesStage } = await built('device/webgpu/kernels/attend-bytes.js');
const { decodeFits } = await built('device/webgpu/kernels/attend-decode-plan.js');
const { decodeStage } = await built('device/webgpu/kernels/attend-decode.js');
const { quadsFits } = await built('device/webgpu/kernels/attend-quads-plan.js');
const { quadsStage } = await built('device/webgpu/kernels/attend-quads.js');

export const found = features.matrices.find(
  (x) => x.component === 'i8' && x.M === 16 && x.N === 8 && x.K === 32,
);
export const matrix = found && { m: 16, n: 8, k: 32, component: 'i8', result: 'i32' };
export const configOf = (config) => ({
  subgroupSize: lanes,
  storageBuffers: bench.device.limits.maxStorageBuffersPerShaderStage,
  f16: features.f16,
  matrix,
  ...config,
});
/** The kernel of a config: on matrices of bytes if it says so. */
export const isBytes = (config) => config.bytes === true;
export const BYTES = { bytes: true };
/** A size of the common kernel: two splits an item. */
export const WIDE = { threads: 128, unroll: 4, valueUnroll: 8, split: 512 };
/** By quads if it says so. */
const isQuads = (config) => config.quads === true;
export const fits = (shape, config) =>
  isQuads(config)
    ? quadsFits(shape, lanes, features.workgroupBytes)
    : isBytes(config)
      ? found !== undefined && bytesFits(shape, configOf(config), features.workgroupBytes)
      : decodeFits(shape, configOf(config), features.workgroupBytes);
export const stageOf = (shape, config) =>
  isQuads(config)
    ? quadsStage(shape, lanes)
    : isBytes(config)
      ? bytesStage(shape)
      : decodeStage(shape, configOf(config));
export const label = (c) =>
  Object.entries(c)
    .map(
      ([k, v]) =>
        `${{ threads: 't', unroll: 'u', valueUnroll: 'v', keyDims: 'kd', valueDims: 'vd' }[k] ?? k}${v === true ? '' : v}`,
    )
    .join(' ');

/** Attention by quads. */
export const QUADS = { quads: true };
