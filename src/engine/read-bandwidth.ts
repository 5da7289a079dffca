/** How fast the device at hand reads memory: what decoding from a large KV cache cannot be faster than. */
import type { Device } from '../device/device.js';

/** Far more than caches hold; on a GPU in software, where a pass takes seconds, only enough to pass for a figure. */
const BYTES = { cpu: 512 * 2 ** 20, webgpu: 1024 * 2 ** 20, software: 8 * 2 ** 20 } as const;

/** @returns bytes a second: of `rounds` the best on a CPU, the median on a GPU, where a disturbed one may look too fast */
export async function measureReadBandwidth(device: Device, rounds: number): Promise<number> {
  if (device.info.kind === 'webgpu') {
    const { WebGpuDevice } = await import('../device/webgpu/index.js');
    if (!(device instanceof WebGpuDevice)) return Number.NaN;
    const software = /swiftshader|llvmpipe/i.test(device.info.name);
    return device.measureReadBandwidth(software ? BYTES.software : BYTES.webgpu, software ? 1 : rounds);
  }
  const { measureReadBandwidth: measure } = await import('../device/cpu/read-bandwidth.js');
  const threads = Number.parseInt(device.info.name, 10);
  return measure({ threads, bytes: BYTES.cpu, rounds });
}

/** Operations a second of the matrices of a GPU; null where the device has none. */
export async function measureMatrixRate(device: Device, rounds: number): Promise<number | null> {
  if (device.info.kind !== 'webgpu') return null;
  const { WebGpuDevice } = await import('../device/webgpu/index.js');
  return device instanceof WebGpuDevice ? device.measureMatrixRate(rounds) : null;
}
