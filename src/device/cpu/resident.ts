/** Weights as they lie in the memories of a CPU device. */
import { KvantError } from '../../errors.js';
import type { Matrix, Vector } from '../device.js';
import type { DeviceMemory, MemorySet } from './memory.js';
import type { PackedMatrix } from './pack.js';

export class CpuMatrix implements Matrix {
  readonly kind = 'matrix';
  readonly rows: number;
  readonly cols: number;
  readonly bytes: number;
  readonly memory: DeviceMemory;
  readonly packed: PackedMatrix;
  /** Address of what rows are gathered by, 0 if the matrix is only multiplied with. */
  readonly table: number;
  readonly set: MemorySet;

  constructor(set: MemorySet, memory: DeviceMemory, packed: PackedMatrix, table: number) {
    this.set = set;
    this.rows = packed.rows;
    this.cols = packed.cols;
    this.bytes = packed.bytes;
    this.memory = memory;
    this.packed = packed;
    this.table = table;
  }
}

/** Small, so it is held on the host too and copied to whichever memory wants it. */
export class CpuVector implements Vector {
  readonly kind = 'vector';
  readonly length: number;
  readonly memory: DeviceMemory;
  readonly set: MemorySet;
  readonly #data: Float32Array;
  readonly #places = new Map<DeviceMemory, number>();

  constructor(set: MemorySet, data: Float32Array, group: number) {
    this.set = set;
    this.length = data.length;
    this.#data = data.slice();
    const { memory, at } = set.allocate(data.length * 4, group);
    this.memory = memory;
    this.#put(memory, at);
  }

  at(memory: DeviceMemory): number {
    return this.#places.get(memory) ?? this.#put(memory, this.set.allocateIn(memory, this.length * 4).at);
  }

  #put(memory: DeviceMemory, at: number): number {
    memory.f32(at, this.length).set(this.#data);
    this.#places.set(memory, at);
    return at;
  }
}

export function ownMatrix(set: MemorySet, matrix: Matrix): CpuMatrix {
  if (matrix instanceof CpuMatrix && matrix.set === set) return matrix;
  throw foreign('matrix');
}

export function ownVector(set: MemorySet, vector: Vector): CpuVector {
  if (vector instanceof CpuVector && vector.set === set) return vector;
  throw foreign('vector');
}

export function foreign(what: string): KvantError {
  return new KvantError('foreign-object', `The graph names a ${what} of another device.`, {
    fix: 'Load weights and make pools on the device that compiles the graph.',
  });
}
