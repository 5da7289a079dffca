/** The rope tables of a program: each lies once in every memory that turns by it. */
import type { RopeTable } from '../rope.js';
import type { DeviceMemory } from './memory.js';

/** Addresses of a rope table; 0 for axes it has not. */
export interface TablePlace {
  readonly fine: number;
  readonly coarse: number;
  readonly axes: number;
}

/** Of a program: bytes in a memory. */
export type Allocate = (memory: DeviceMemory, bytes: number) => number;

export class RopeTables {
  readonly #allocate: Allocate;
  readonly #places = new Map<DeviceMemory, Map<RopeTable, TablePlace>>();

  constructor(allocate: Allocate) {
    this.#allocate = allocate;
  }

  /** Where a table lies in a memory. */
  in(memory: DeviceMemory, rope: RopeTable): TablePlace {
    const tables = this.#places.get(memory) ?? new Map<RopeTable, TablePlace>();
    this.#places.set(memory, tables);
    let found = tables.get(rope);
    if (found === undefined) {
      const put = (data: Float32Array): number => {
        const at = this.#allocate(memory, data.byteLength);
        memory.f32(at, data.length).set(data);
        return at;
      };
      let axes = 0;
      if (rope.axes) {
        axes = this.#allocate(memory, rope.axes.length * 4);
        memory.u32(axes, rope.axes.length).set(rope.axes);
      }
      found = { fine: put(rope.fine), coarse: put(rope.coarse), axes };
      tables.set(rope, found);
    }
    return found;
  }
}
