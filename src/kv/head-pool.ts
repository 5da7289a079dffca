/**
 * A float head in the books. On the device its blocks are float-start blocks of the full group's pool, and the first entries of
 * the same table. The books have a cache group for it, with a pool, tables and a free list of its own, beside the full group; the
 * latter has blocks for those positions too, which are never written.
 */

import { type KvCaches, type KvPool, type KvPoolSpec, kvFloatLayers } from '../device/kv.js';

/** The pools of the cache groups, in their order (groups.ts): those of the device, and of the float head. */
export function groupPools({ pools }: KvCaches): readonly KvPool[] {
  const [full, ...others] = pools;
  const { floatStart, blockTokens } = full!.spec;
  if (!floatStart?.head) return pools;
  const head = Math.floor(floatStart.head / blockTokens);
  const own: KvPoolSpec = { ...full!.spec, floatStart: null };
  const float: KvPoolSpec = {
    ...own,
    blocks: floatStart.blocks,
    layers: kvFloatLayers(own.layers, floatStart.dtype),
  };
  return [new PoolView(full!, own, 0, head), ...others, new PoolView(full!, float, own.blocks, 0)];
}

/** Blocks of a device's pool from `firstBlock` on, in tables from entry `firstEntry` on. */
class PoolView implements KvPool {
  readonly spec: KvPoolSpec;
  readonly #device: KvPool;
  readonly #firstBlock: number;
  readonly #firstEntry: number;

  constructor(device: KvPool, spec: KvPoolSpec, firstBlock: number, firstEntry: number) {
    this.#device = device;
    this.spec = spec;
    this.#firstBlock = firstBlock;
    this.#firstEntry = firstEntry;
  }

  get bytes(): number {
    return this.#device.bytes;
  }

  get storage(): string {
    return this.#device.storage;
  }

  setBlocks(slot: number, first: number, blocks: Uint32Array): void {
    const skip = Math.max(0, this.#firstEntry - first);
    if (skip < blocks.length) this.#device.setBlocks(slot, first + skip, this.#ids(blocks.subarray(skip)));
  }

  async convert(from: Uint32Array, to: Uint32Array): Promise<void> {
    await this.#device.convert(this.#ids(from), this.#ids(to));
  }

  async copy(from: Uint32Array, to: Uint32Array): Promise<void> {
    await this.#device.copy(this.#ids(from), this.#ids(to));
  }

  async read(blocks: Uint32Array): Promise<Uint8Array[]> {
    return this.#device.read(this.#ids(blocks));
  }

  async write(blocks: Uint32Array, bytes: readonly Uint8Array[]): Promise<void> {
    await this.#device.write(this.#ids(blocks), bytes);
  }

  async prepare(use: 'copy' | 'transfer'): Promise<void> {
    await this.#device.prepare(use);
  }

  /** The device's pool is its owner's to dispose of. */
  dispose(): void {}

  #ids(blocks: Uint32Array): Uint32Array {
    return this.#firstBlock === 0 ? blocks : blocks.map((block) => block + this.#firstBlock);
  }
}
