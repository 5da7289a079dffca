/** A feature slab in a memory of the CPU device. */
import {
  checkFeaturePlace,
  type FeaturePlace,
  type FeatureSlab,
  type FeatureSlabSpec,
} from '../feature-slab.js';
import type { Allocation, DeviceMemory, MemorySet } from './memory.js';
import { foreign } from './resident.js';

export class CpuFeatureSlab implements FeatureSlab {
  readonly rows: number;
  readonly cols: number;
  readonly bytes: number;
  readonly memory: DeviceMemory;
  /** Its address there. */
  readonly at: number;
  readonly set: MemorySet;
  #allocation: Allocation | null;

  constructor(set: MemorySet, { rows, cols, group = 0 }: FeatureSlabSpec) {
    this.set = set;
    this.rows = rows;
    this.cols = cols;
    this.bytes = rows * cols * 4;
    this.#allocation = set.allocate(this.bytes, group);
    this.memory = this.#allocation.memory;
    this.at = this.#allocation.at;
  }

  write(first: number, data: Float32Array): void {
    checkFeaturePlace(this, { first, rows: data.length / this.cols }, this.cols);
    this.memory.f32(this.at + first * this.cols * 4, data.length).set(data);
  }

  /** Copies rows of so many numbers that lie one behind the other. */
  take(memory: DeviceMemory, at: number, cols: number, place: FeaturePlace): void {
    checkFeaturePlace(this, place, cols);
    const { first, rows, column = 0, from = 0 } = place;
    for (let r = 0; r < rows; r++)
      this.memory
        .f32(this.at + ((first + r) * this.cols + column) * 4, cols)
        .set(memory.f32(at + (from + r) * cols * 4, cols));
  }

  dispose(): void {
    if (this.#allocation !== null) this.set.free(this.#allocation);
    this.#allocation = null;
  }
}

export function ownSlab(set: MemorySet, slab: FeatureSlab): CpuFeatureSlab {
  if (slab instanceof CpuFeatureSlab && slab.set === set) return slab;
  throw foreign('feature slab');
}
