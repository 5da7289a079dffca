/** CPU devices for the tests of a file: closed behind each test. */

import { afterEach } from 'vitest';
import { type CpuDeviceOptions, createCpuDevice } from '../../src/device/cpu/index.js';
import type { Device } from '../../src/device/device.js';

const opened: Device[] = [];
afterEach(async () => {
  for (const device of opened.splice(0)) await device[Symbol.asyncDispose]();
});

/** Two threads, unless the options say otherwise. */
export async function openCpu(options: CpuDeviceOptions = {}): Promise<Device> {
  const device = await createCpuDevice({ threads: 2, ...options });
  opened.push(device);
  return device;
}
