/** Blocks as bytes: the host copies them out of the store and into it, while the threads run on. */
import type { KvPoolSpec } from '../kv.js';
import { isFloatStartBlock, type KvPlane, kvPlanes } from '../kv-block.js';
import { SIDE_BYTES, SIDE_CODES, SIDE_META } from './kv-layout.js';
import type { CpuKvLayer } from './kv-pool.js';
import type { DeviceMemory } from './memory.js';

interface Place {
  readonly memory: DeviceMemory;
  /** Address of the plane of block 0. */
  readonly first: number;
  readonly plane: KvPlane;
}

export class BlockBytes {
  readonly #spec: KvPoolSpec;
  readonly #places: readonly [own: readonly Place[], floatStart: readonly Place[]];

  constructor(spec: KvPoolSpec, layers: readonly CpuKvLayer[]) {
    this.#spec = spec;
    const places = (floatStart: boolean): Place[] =>
      kvPlanes(spec, floatStart).map((plane) => {
        const { memory, store } = layers[plane.layer]!;
        const side = (plane.side === 'key' ? 0 : 1) + (floatStart ? 2 : 0);
        const at = store + side * SIDE_BYTES + (plane.part === 'codes' ? SIDE_CODES : SIDE_META);
        return { memory, first: memory.u32(at, 1)[0]!, plane };
      });
    this.#places = [places(false), places(true)];
  }

  read(block: number): Uint8Array {
    const places = this.#of(block);
    const last = places.at(-1)!.plane;
    const bytes = new Uint8Array(last.at + last.bytes);
    for (const place of places) bytes.set(at(place, block), place.plane.at);
    return bytes;
  }

  write(block: number, bytes: Uint8Array): void {
    for (const place of this.#of(block)) {
      const { plane } = place;
      at(place, block).set(bytes.subarray(plane.at, plane.at + plane.bytes));
    }
  }

  #of(block: number): readonly Place[] {
    return this.#places[isFloatStartBlock(this.#spec, block) ? 1 : 0];
  }
}

/** Addresses of block 0 may lie before the memory, where a plane begins with a later block: they wrap around at 4 GiB. */
function at({ memory, first, plane }: Place, block: number): Uint8Array<ArrayBufferLike> {
  return memory.u8((first + block * plane.bytes) % 2 ** 32, plane.bytes);
}
