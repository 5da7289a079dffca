/** Rows of an activation, back on the host. */

import type { Allocator } from './allocator.js';
import { MAP_MODE_READ, USAGE } from './constants.js';
import type { Faults } from './faults.js';
import { strideOf } from './resources.js';

interface ReadHost {
  readonly device: GPUDevice;
  readonly allocator: Allocator;
  readonly faults: Faults;
}

/** `[rows, cols]`, without the padding that rows have on the device. */
export async function readRows(
  { device, allocator, faults }: ReadHost,
  buffer: GPUBuffer,
  rows: number,
  cols: number,
): Promise<Float32Array> {
  const out = new Float32Array(rows * cols);
  if (rows === 0) return out;
  const stride = strideOf(cols);
  const bytes = rows * stride * 4;
  const staging = allocator.create('read', bytes, USAGE.MAP_READ | USAGE.COPY_DST);
  try {
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, bytes);
    device.queue.submit([encoder.finish()]);
    try {
      await staging.mapAsync(MAP_MODE_READ, 0, bytes);
    } catch (error) {
      faults.check();
      throw error;
    }
    const data = new Float32Array(staging.getMappedRange(0, bytes));
    for (let r = 0; r < rows; r++) {
      out.set(data.subarray(r * stride, r * stride + cols), r * cols);
    }
    staging.unmap();
  } finally {
    allocator.destroy(staging);
  }
  faults.check();
  return out;
}
