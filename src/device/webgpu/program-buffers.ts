/**
 * What a program has on the device besides weights and pool: activations, ids, the step, tables of rotation, joined norms,
 * numbers of shapes, scratch. All of it is made when the program is.
 */

import { KvantError } from '../../errors.js';
import type { ProgramLimits } from '../device.js';
import type { Graph, RowKind, Tensor } from '../graph.js';
import type { LifetimePlan } from '../lifetimes.js';
import type { RopeTable } from '../rope.js';
import type { Allocator } from './allocator.js';
import { USAGE } from './constants.js';
import type { PlanBuffers } from './plan.js';
import { type Part, strideOf } from './resources.js';

export interface BuffersHost {
  readonly device: GPUDevice;
  readonly allocator: Allocator;
  readonly capabilities: { readonly bindingBytes: number };
}

/** Errors: `tensor-not-kept`, for what a later node may have written over. */
export function requireKept({ kept }: Graph, tensor: Tensor): void {
  if (kept.includes(tensor)) return;
  throw new KvantError('tensor-not-kept', `Tensor ${tensor.id} was not kept.`, {
    where: 'read',
    fix: 'Call ops.keep on it while recording.',
  });
}

export class ProgramBuffers implements PlanBuffers {
  readonly scratch = new Map<string, GPUBuffer>();
  readonly #host: BuffersHost;
  readonly #limits: ProgramLimits;
  readonly #own: GPUBuffer[] = [];
  readonly #storages: readonly GPUBuffer[];
  readonly #storageOf: Int32Array;
  readonly #params = new Map<string, GPUBuffer>();
  readonly #ropes = new Map<RopeTable, GPUBuffer>();
  readonly #joined = new Map<string, GPUBuffer>();
  readonly #ids = new Map<GPUBuffer, number>();

  /** Whether there was room is known once the allocator has settled. What was made is freed if it throws. */
  constructor(host: BuffersHost, limits: ProgramLimits, lifetimes: LifetimePlan) {
    this.#host = host;
    this.#limits = limits;
    this.#storageOf = lifetimes.storageOf;
    const usage = USAGE.STORAGE | USAGE.COPY_DST | USAGE.COPY_SRC;
    try {
      this.#storages = lifetimes.storages.map((s) =>
        this.create(`activation ${s.id}`, this.maxRows(s.rows) * strideOf(s.cols) * 4, usage),
      );
    } catch (error) {
      this.free();
      throw error;
    }
  }

  create(label: string, bytes: number, usage: number): GPUBuffer {
    const { allocator, capabilities } = this.#host;
    if (usage & USAGE.STORAGE && bytes > capabilities.bindingBytes) {
      throw new KvantError(
        'device-out-of-memory',
        `${label} takes ${bytes} bytes, a binding of this GPU holds ${capabilities.bindingBytes}.`,
        { kind: 'device', where: label, fix: 'Use fewer tokens in a step or fewer output rows.' },
      );
    }
    const buffer = allocator.create(label, bytes, usage);
    this.#own.push(buffer);
    return buffer;
  }

  tensor(tensor: Tensor): GPUBuffer {
    const buffer = this.#storages[this.#storageOf[tensor.id] ?? -1];
    if (buffer !== undefined) return buffer;
    throw new KvantError('shape-mismatch', `Tensor ${tensor.id} is not of this graph.`, {
      where: 'tensor',
      fix: 'Use the tensors that were recorded with the graph.',
    });
  }

  /** Writes whole rows of a tensor, `[rows, cols]`, in the padded form that they have on the device. */
  write(tensor: Tensor, data: Float32Array): void {
    const rows = data.length / tensor.cols;
    const buffer = this.input(tensor, rows);
    const stride = strideOf(tensor.cols);
    let source = data as Float32Array<ArrayBuffer>;
    if (stride !== tensor.cols) {
      source = new Float32Array(rows * stride);
      for (let r = 0; r < rows; r++) {
        source.set(data.subarray(r * tensor.cols, (r + 1) * tensor.cols), r * stride);
      }
    }
    this.#host.device.queue.writeBuffer(buffer, 0, source);
  }

  /** The buffer that so many rows are written to. Errors: `shape-mismatch`. */
  input(tensor: Tensor, rows: number): GPUBuffer {
    if (Number.isInteger(rows) && rows >= 0 && rows <= this.maxRows(tensor.rows)) return this.tensor(tensor);
    throw new KvantError('shape-mismatch', `${rows * tensor.cols} numbers for rows of ${tensor.cols}.`, {
      where: 'write',
      fix: 'Write whole rows, no more than the program was compiled for.',
    });
  }

  /** The fine table, then the coarse one. */
  rope(table: RopeTable): GPUBuffer {
    let buffer = this.#ropes.get(table);
    if (buffer === undefined) {
      const { fine, coarse } = table;
      const { queue } = this.#host.device;
      const usage = USAGE.STORAGE | USAGE.COPY_DST;
      buffer = this.create('rope', fine.byteLength + coarse.byteLength, usage);
      queue.writeBuffer(buffer, 0, fine as Float32Array<ArrayBuffer>);
      queue.writeBuffer(buffer, fine.byteLength, coarse as Float32Array<ArrayBuffer>);
      this.#ropes.set(table, buffer);
    }
    return buffer;
  }

  /** The starts of vectors that do not change, one after the other. */
  joined(label: string, parts: readonly Part[]): GPUBuffer {
    const key = parts.map(({ buffer, bytes }) => `${this.#idOf(buffer)}:${bytes}`).join();
    let joined = this.#joined.get(key);
    if (joined === undefined) {
      const { device } = this.#host;
      const all = parts.reduce((sum, { bytes }) => sum + bytes, 0);
      joined = this.create(label, all, USAGE.STORAGE | USAGE.COPY_DST);
      const encoder = device.createCommandEncoder();
      let at = 0;
      for (const { buffer, bytes } of parts) {
        encoder.copyBufferToBuffer(buffer, 0, joined, at, bytes);
        at += bytes;
      }
      device.queue.submit([encoder.finish()]);
      this.#joined.set(key, joined);
    }
    return joined;
  }

  /** Layers of one shape share a buffer. */
  params(words: Uint32Array): GPUBuffer {
    const key = words.join();
    let buffer = this.#params.get(key);
    if (buffer === undefined) {
      buffer = this.create('params', words.byteLength, USAGE.UNIFORM | USAGE.COPY_DST);
      this.#host.device.queue.writeBuffer(buffer, 0, words as Uint32Array<ArrayBuffer>);
      this.#params.set(key, buffer);
    }
    return buffer;
  }

  addScratch(sizes: ReadonlyMap<string, number>): void {
    for (const [name, bytes] of sizes) this.scratch.set(name, this.create(name, bytes, USAGE.STORAGE));
  }

  maxRows(kind: RowKind): number {
    return kind === 'tokens' ? this.#limits.maxTokens : this.#limits.maxOutputs;
  }

  free(): void {
    for (const buffer of this.#own.splice(0)) this.#host.allocator.destroy(buffer);
  }

  #idOf(buffer: GPUBuffer): number {
    const id = this.#ids.get(buffer) ?? this.#ids.size;
    this.#ids.set(buffer, id);
    return id;
  }
}
