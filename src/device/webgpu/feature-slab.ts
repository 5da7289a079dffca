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
import { declareBindings, type Stage } from './kernel.js';
import type { Pipelines } from './pipelines.js';
import { strideOf } from './resources.js';

const THREADS = 64;
const SCATTER_BINDINGS = [
  { name: 'rows', access: 'read', type: 'array<f32>' },
  { name: 'slab', access: 'read_write', type: 'array<f32>' },
  { name: 'params', access: 'uniform', type: 'array<vec4<u32>, 2>' },
] as const;

/** Columns and rows; where the first row begins and how far it is to the next, of the tensor and of the slab. */
const SCATTER: Stage = {
  label: 'rows of features',
  bindings: SCATTER_BINDINGS,
  wgsl: `${declareBindings(SCATTER_BINDINGS)}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let column = wid.x * ${THREADS}u + lid;
  let row = wid.y + wid.z * 65535u;
  if (column >= params[0].x || row >= params[0].y) { return; }
  slab[params[1].x + row * params[1].y + column] = rows[params[0].z + row * params[0].w + column];
}`,
  workgroups: () => {},
};

export interface FeatureSlabHost {
  readonly device: GPUDevice;
  readonly allocator: Allocator;
  readonly pipelines: Pipelines;
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
  readonly #groups = new Map<string, GPUBindGroup>();
  readonly #params: GPUBuffer;
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
    this.#params = host.allocator.create('rows of features', 32, USAGE.UNIFORM | USAGE.COPY_DST);
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
    if (rows === 0) return;
    const [from, to] = [strideOf(cols), this.#stride];
    const { device } = this.#host;
    const encoder = device.createCommandEncoder();
    if (from === to)
      encoder.copyBufferToBuffer(tensor, top * to * 4, this.buffer, first * to * 4, rows * to * 4);
    else this.#scatter(encoder, tensor, { cols, from, top, rows, at: first * to + column });
    device.queue.submit([encoder.finish()]);
  }

  /** Rows that lie farther apart in the slab, or closer: copies of single rows would take the host longer than the tower. */
  #scatter(
    encoder: GPUCommandEncoder,
    tensor: GPUBuffer,
    { cols, from, top, rows, at }: Record<'cols' | 'from' | 'top' | 'rows' | 'at', number>,
  ): void {
    const { device, pipelines } = this.#host;
    const words = [cols, rows, top * from, from, at, this.#stride, 0, 0];
    device.queue.writeBuffer(this.#params, 0, Uint32Array.from(words));
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipelines.get(SCATTER));
    pass.setBindGroup(0, pipelines.bindGroup(SCATTER, [tensor, this.buffer, this.#params], this.#groups));
    pass.dispatchWorkgroups(Math.ceil(cols / THREADS), Math.min(rows, 65535), Math.ceil(rows / 65535));
    pass.end();
  }

  dispose(): void {
    if (!this.#disposed) {
      this.#host.allocator.destroy(this.buffer);
      this.#host.allocator.destroy(this.#params);
    }
    this.#disposed = true;
  }
}

export function ownSlab(slab: FeatureSlab): GpuFeatureSlab {
  if (slab instanceof GpuFeatureSlab) return slab;
  throw internalFault('A feature slab of another device was given to a WebGPU program', 'features');
}
