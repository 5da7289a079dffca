/** The WebGPU device: Dawn in Node, `navigator.gpu` in a browser. */

import type { Device } from '../device.js';
import { chooseAdapter } from './adapter.js';
import { paceDawnTicks } from './dawn-ticks.js';
import { WebGpuDevice, type WebGpuDeviceOptions } from './device.js';

export { WebGpuDevice } from './device.js';

export interface CreateWebGpuDeviceOptions extends WebGpuDeviceOptions {
  /** Where adapters come from; `navigator.gpu` or Dawn if omitted. */
  readonly gpu?: GPU | undefined;
  /** Take an adapter that computes in software (SwiftShader). For tests. */
  readonly allowSoftware?: boolean;
  /** A GPU is taken if there is one, and nobody is told if not: nothing is written to the terminal where no driver is. */
  readonly unasked?: boolean;
  /** Part of the adapter's name. */
  readonly adapterName?: string | undefined;
}

/**
 * Opens the GPU.
 *
 * @throws KvantError `webgpu-missing` without the package `webgpu` in Node, `no-adapter` without a usable GPU.
 * @example
 * await using device = await createWebGpuDevice({ precision: 'reference' });
 */
export async function createWebGpuDevice(options: CreateWebGpuDeviceOptions = {}): Promise<Device> {
  const { gpu: given, allowSoftware = false, unasked = false, adapterName } = options;
  let fix = 'Use a browser with WebGPU, or the CPU device.';
  let gpu = given ?? (globalThis as { navigator?: { gpu?: GPU } }).navigator?.gpu;
  let unpace = (): void => {};
  if (gpu === undefined) {
    const node = await import('./node.js');
    gpu = await node.createNodeGpu(unasked);
    fix = node.LIBVULKAN_FIX;
    unpace = paceDawnTicks();
  }
  // Dawn lives as long as someone holds its GPU object: a given one is held for the device.
  const holder: { gpu: GPU | undefined } = { gpu };
  const release = (): void => {
    holder.gpu = undefined;
    unpace();
  };
  try {
    const adapter = await chooseAdapter(gpu, { allowSoftware, adapterName, noAdapterFix: fix });
    return await WebGpuDevice.create(gpu, adapter, options, release);
  } catch (error) {
    release();
    throw error;
  }
}
