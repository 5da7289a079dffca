/** A feature slab on the GPU: a buffer of rows, each padded as activations are. */
import { KvantError } from '../../errors.js';
import {
  checkFeaturePlace,
  type FeaturePlace,
  type FeatureSlab,
  type FeatureSlabSpec,
} from '../feature-slab.js';
import type { Allocator } from './allocator.js';
import { USAGE } from './constants.js';
import { internalFault } from './faults.js';
import { strideOf } from './resources.js';

export interface FeatureSlabHost {
  readonly device: GPUDevice;
  readonly allocator: Allocator;
  /** Bytes of the largest binding. */
  readonly bindingBytes: number;
}

export class GpuFeatureSlab implements FeatureSlab {
  readonly rows: number;
  readonly cols: number;
  readonly bytes: number;
  readonly buffer: GPUBuffer;
  readonly #host: FeatureSlabHost;
  readonly #stride: number;
  #disposed = false;

  constructor(host: FeatureSlabHost, { rows, cols }: FeatureSlabSpec) {
    this.#host = host;
    this.rows = rows;
    this.cols = cols;
    this.#stride = strideOf(cols);
    this.bytes = rows * this.#stride * 4;
    if (this.bytes > host.bindingBytes)
      throw new KvantError(
        'device-out-of-memory',
        `The feature slab takes ${this.bytes} bytes, a binding of this GPU holds ${host.bindingBytes}.`,
        { kind: 'device', where: 'features', fix: 'Keep fewer rows of features.' },
      );
    this.buffer = host.allocator.create(
      'features',
      this.bytes,
      USAGE.STORAGE | USAGE.COPY_DST | USAGE.COPY_SRC,
    );
  }

  write(first: number, data: Float32Array): void {
    const { cols } = this;
    const rows = data.length / cols;
    checkFeaturePlace(this, { first, rows }, cols);
    const stride = this.#stride;
    let source = data as Float32Array<ArrayBuffer>;
    if (stride !== cols) {
      source = new Float32Array(rows * stride);
      for (let r = 0; r < rows; r++) source.set(data.subarray(r * cols, (r + 1) * cols), r * stride);
    }
    this.#host.device.queue.writeBuffer(this.buffer, first * stride * 4, source);
  }

  /** Copies rows of a tensor of so many columns. */
  take(tensor: GPUBuffer, cols: number, place: FeaturePlace): void {
    checkFeaturePlace(this, place, cols);
    const { first, rows, column = 0, from: top = 0 } = place;
    if (column % 4 !== 0)
      throw new KvantError('shape-mismatch', `Features from column ${column}, which is no multiple of 4.`);
    const [from, to] = [strideOf(cols), this.#stride];
    const encoder = this.#host.device.createCommandEncoder();
    if (from === to)
      encoder.copyBufferToBuffer(tensor, top * to * 4, this.buffer, first * to * 4, rows * to * 4);
    else
      for (let r = 0; r < rows; r++)
        encoder.copyBufferToBuffer(
          tensor,
          (top + r) * from * 4,
          this.buffer,
          ((first + r) * to + column) * 4,
          cols * 4,
        );
    this.#host.device.queue.submit([encoder.finish()]);
  }

  dispose(): void {
    if (!this.#disposed) this.#host.allocator.destroy(this.buffer);
    this.#disposed = true;
  }
}

export function ownSlab(slab: FeatureSlab): GpuFeatureSlab {
  if (slab instanceof GpuFeatureSlab) return slab;
  throw internalFault('A feature slab of another device was given to a WebGPU program', 'features');
}
