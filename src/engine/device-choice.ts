/** Which device to run on, and the words for why. */

import type { Device } from '../device/device.js';
import { KvantError } from '../errors.js';
import type { HostConfig } from './messages.js';

export interface ChosenDevice {
  readonly device: Device;
  readonly reason: string;
}

type Wanted = Pick<
  HostConfig,
  'device' | 'precision' | 'deterministic' | 'threads' | 'allowSoftwareGpu' | 'cpuExperts'
>;

/**
 * `auto` takes a real GPU, else the CPU. A software GPU is taken only where both it and `webgpu` are asked for:
 * the CPU device is faster. Errors: those of the device that was named; with `auto` those of the CPU.
 */
export async function chooseDevice(wanted: Wanted): Promise<ChosenDevice> {
  if (wanted.device === 'webgpu')
    return {
      device: await openGpu(wanted, { allowSoftware: wanted.allowSoftwareGpu ?? false }),
      reason: 'webgpu was asked for',
    };
  if (wanted.device === 'cpu') return { device: await openCpu(wanted), reason: 'cpu was asked for' };
  try {
    const device = await openGpu(wanted, { unasked: true });
    return { device, reason: `auto: there is a GPU (${device.info.name})` };
  } catch (error) {
    const why = error instanceof KvantError ? error.message : String(error);
    return { device: await openCpu(wanted), reason: `auto: no GPU can be used. ${why}` };
  }
}

// Loaded when used: neither device should cost those who use the other.

async function openGpu(
  wanted: Wanted,
  how: { readonly allowSoftware?: boolean; readonly unasked?: boolean },
): Promise<Device> {
  const { createWebGpuDevice } = await import('../device/webgpu/index.js');
  const { precision, deterministic, cpuExperts = 0 } = wanted;
  const host = cpuExperts > 0 ? await openCpu(wanted, true) : null;
  try {
    return await createWebGpuDevice({
      ...how,
      ...(precision === undefined ? {} : { precision }),
      ...(deterministic === undefined ? {} : { deterministic }),
      ...(host === null ? {} : { host }),
    });
  } catch (error) {
    await host?.[Symbol.asyncDispose]();
    throw error;
  }
}

async function openCpu(wanted: Wanted, besideGpu = false): Promise<Device> {
  const { createCpuDevice } = await import('../device/cpu/index.js');
  const { precision, threads } = wanted;
  return createCpuDevice({
    ...(precision === undefined ? {} : { precision }),
    ...(threads === undefined ? {} : { threads }),
    besideGpu,
  });
}
