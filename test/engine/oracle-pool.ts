/**
 * The paged cache of the oracle's device: of each position it keeps the token itself. Block tables are plain shared memory, and one that is
 * written while a step still reads it is an error.
 */
import type { KvPool, KvPoolSpec } from '../../src/device/kv.js';
import { quantised } from './oracle-model.js';
import type { LoggedStep } from './oracle-steps.js';

/** What a pool asks of its device. */
interface PoolDevice {
  readonly log: readonly LoggedStep[];
  readonly pools: Set<OraclePool>;
  /** Runs something after the steps submitted so far and ahead of later ones. */
  inOrder(work: () => void): Promise<void>;
}

export class OraclePool implements KvPool {
  readonly storage = 'oracle';
  readonly spec: KvPoolSpec;
  readonly bytes: number;
  readonly tables: Uint32Array;
  /** `[blocks · blockTokens]` the token stored at each position. */
  readonly store: Int32Array;
  readonly #device: PoolDevice;

  constructor(spec: KvPoolSpec, device: PoolDevice) {
    this.spec = spec;
    this.tables = new Uint32Array(spec.slots * spec.maxBlocksPerSlot);
    const blocks = spec.blocks + (spec.floatStart?.blocks ?? 0);
    this.store = new Int32Array(blocks * spec.blockTokens).fill(-1);
    this.bytes = this.store.byteLength;
    this.#device = device;
  }

  convert(from: Uint32Array, to: Uint32Array): Promise<void> {
    const { spec } = this;
    if (from.length !== to.length) throw new Error('convert: from and to differ in length');
    if (from.some((block) => !this.isFloatStart(block) || block >= spec.blocks + spec.floatStart!.blocks))
      throw new Error('convert: not a float-start block');
    if (to.some((block) => this.isFloatStart(block))) throw new Error('convert: to a float-start block');
    const [sources, targets] = [from.slice(), to.slice()];
    return this.#device.inOrder(() => {
      for (let i = 0; i < sources.length; i++)
        for (let t = 0; t < spec.blockTokens; t++)
          this.store[targets[i]! * spec.blockTokens + t] = quantised(
            this.store[sources[i]! * spec.blockTokens + t]!,
          );
    });
  }

  copy(from: Uint32Array, to: Uint32Array): Promise<void> {
    if (from.length !== to.length) throw new Error('copy: from and to differ in length');
    if (from.some((block, i) => this.isFloatStart(block) !== this.isFloatStart(to[i]!)))
      throw new Error('copy: between float-start blocks and others');
    const [sources, targets] = [from.slice(), to.slice()];
    const { blockTokens } = this.spec;
    return this.#device.inOrder(() => {
      sources.forEach((block, i) => {
        this.store.copyWithin(targets[i]! * blockTokens, block * blockTokens, (block + 1) * blockTokens);
      });
    });
  }

  /** A block is its tokens, four bytes each. */
  async read(blocks: Uint32Array): Promise<Uint8Array[]> {
    const ids = blocks.slice();
    const { blockTokens } = this.spec;
    let out: Uint8Array[] = [];
    await this.#device.inOrder(() => {
      out = Array.from(
        ids,
        (id) => new Uint8Array(this.store.slice(id * blockTokens, (id + 1) * blockTokens).buffer),
      );
    });
    return out;
  }

  write(blocks: Uint32Array, bytes: readonly Uint8Array[]): Promise<void> {
    const ids = blocks.slice();
    const { blockTokens } = this.spec;
    return this.#device.inOrder(() => {
      ids.forEach((id, i) => {
        this.store.set(new Int32Array(bytes[i]!.slice().buffer), id * blockTokens);
      });
    });
  }

  async prepare(): Promise<void> {}

  isFloatStart(block: number): boolean {
    return block >= this.spec.blocks;
  }

  /** Stores a token as the kind of its block wants it. */
  put(slot: number, position: number, token: number): void {
    const at = this.at(slot, position);
    const floatStart = this.spec.floatStart && this.isFloatStart(Math.floor(at / this.spec.blockTokens));
    this.store[at] = this.spec.floatStart && !floatStart ? quantised(token) : token;
  }

  setBlocks(slot: number, first: number, blocks: Uint32Array): void {
    const { maxBlocksPerSlot, blockTokens, slots } = this.spec;
    if (slot >= slots || first + blocks.length > maxBlocksPerSlot) throw new Error('setBlocks out of range');
    for (const step of this.#device.log) {
      if (step.settled) continue;
      for (const sequence of step.sequences) {
        const reads = Math.ceil((sequence.position + sequence.length) / blockTokens);
        if (sequence.slot === slot && reads > first)
          throw new Error(`entry ${first} of slot ${slot} is written while a step reads ${reads}`);
      }
    }
    this.tables.set(blocks, slot * maxBlocksPerSlot + first);
  }

  at(slot: number, position: number): number {
    const { maxBlocksPerSlot, blockTokens } = this.spec;
    const block = this.tables[slot * maxBlocksPerSlot + Math.floor(position / blockTokens)]!;
    return block * blockTokens + (position % blockTokens);
  }

  blocksOf(slot: number, tokens: number): number[] {
    const { maxBlocksPerSlot, blockTokens } = this.spec;
    const first = slot * maxBlocksPerSlot;
    return [...this.tables.subarray(first, first + Math.ceil(tokens / blockTokens))];
  }

  dispose(): void {
    this.#device.pools.delete(this);
  }
}
