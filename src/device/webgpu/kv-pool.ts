/**
 * KV blocks on the GPU: for each layer one buffer of keys and one of values, `[blocks, kvHeads, blockTokens]`
 * vectors and what goes with them (kernels/kv-layout.ts), so that what one head reads of a block lies together; beside
 * them the block tables `[slots, maxBlocksPerSlot]` and the last sampled token of each slot. FloatStart blocks follow the
 * others where a side is kept in the float-start format anyway, and have a buffer of their own where it is not.
 */

import { KvantError } from '../../errors.js';
import {
  badHeads,
  isFloatKv,
  type KvCaches,
  type KvLayerSpec,
  type KvPool,
  type KvPoolSpec,
  kvFormatName,
  kvUnusable,
  MAX_HEAD_DIM,
} from '../kv.js';
import { checkBlocks, checkCopy, checkWrite } from '../kv-block.js';
import { type StateShape, stateBytes } from '../state.js';
import type { Allocator } from './allocator.js';
import { USAGE } from './constants.js';
import type { Faults } from './faults.js';
import { codecOf } from './kernels/kv-formats/list.js';
import type { KvLayout } from './kernels/kv-formats/side.js';
import { kvLayout, kvTables } from './kernels/kv-layout.js';
import { KvConverter } from './kv-converter.js';
import { KvMover } from './kv-mover.js';
import type { Pipelines } from './pipelines.js';
import { ATTENTION_SPLIT } from './step-buffer.js';
import type { StepOrder } from './step-order.js';

export interface KvPoolHost {
  readonly device: GPUDevice;
  readonly allocator: Allocator;
  readonly pipelines: Pipelines;
  readonly faults: Faults;
  /** Bytes of the largest binding. */
  readonly bindingBytes: number;
  /** What is moved stands behind the steps before it. */
  readonly order: StepOrder;
}

/** Keys or values of a layer. */
export interface SideCache {
  readonly buffer: GPUBuffer;
  readonly layout: KvLayout;
  /** Blocks in `buffer`. */
  readonly blocks: number;
  /** FloatStart blocks, where they have a buffer of their own. */
  readonly floatStart: GPUBuffer | null;
  /**
   * Blocks of a float head lie at the end of `buffer`, as floats: so many blocks of floats begin before the first of them. Absent
   * without a head, and where the side is float and they are among its blocks.
   */
  readonly headFirst?: number;
}

export interface LayerCache {
  readonly keys: SideCache;
  readonly values: SideCache;
}

export class GpuKvPool implements KvPool {
  readonly storage = 'webgpu-5';
  readonly spec: KvPoolSpec;
  readonly layers: readonly LayerCache[];
  /** u32 `[slots, maxBlocksPerSlot]`. */
  readonly tables: GPUBuffer;
  /** u32 `[slots + 1]`; the last takes what is drawn for no slot. */
  readonly lastToken: GPUBuffer;
  /** Something has been stored, by a step or otherwise. */
  used = false;
  readonly #queue: GPUQueue;
  readonly #allocator: Allocator;
  readonly #host: KvPoolHost;
  readonly #bytes: number;
  readonly #convert: KvConverter | null;
  #mover: KvMover | null = null;
  #disposed = false;

  /** Whether there was room is known when a program is compiled on the pool. */
  constructor(host: KvPoolHost, spec: KvPoolSpec) {
    const { device, allocator, bindingBytes } = host;
    this.spec = spec;
    this.#host = host;
    this.#queue = device.queue;
    this.#allocator = allocator;
    checkSpec(spec);
    checkHead(spec);
    const made: GPUBuffer[] = [];
    const create = (label: string, bytes: number): GPUBuffer => {
      if (bytes > bindingBytes) {
        throw new KvantError(
          'device-out-of-memory',
          `The KV pool needs ${bytes} bytes for ${label}, a binding of this GPU holds ${bindingBytes}.`,
          { kind: 'device', where: label, fix: 'Use fewer KV blocks, or store the cache in fewer bits.' },
        );
      }
      const buffer = allocator.create(label, bytes, USAGE.STORAGE | USAGE.COPY_DST | USAGE.COPY_SRC);
      made.push(buffer);
      return buffer;
    };
    try {
      const side = (layer: KvLayerSpec, i: number, which: 'key' | 'value'): SideCache => {
        const format = layer[which];
        const { floatStart } = spec;
        const place = { headDim: layer.headDim, kvHeads: layer.kvHeads, blockTokens: spec.blockTokens };
        const shared = floatStart != null && isFloatKv(format) && format.dtype === floatStart.dtype;
        const blocks = spec.blocks + (shared ? floatStart.blocks : 0);
        const layout = kvLayout(format, { ...place, blocks });
        const label = `${which === 'key' ? 'keys' : 'values'} of layer ${i}`;
        const float =
          floatStart && kvLayout({ kind: 'float', dtype: floatStart.dtype }, { ...place, blocks: 1 });
        const headFirst =
          float && floatStart.head && !shared ? Math.ceil(layout.bytes / float.bytes) : undefined;
        const buffer = create(
          label,
          headFirst === undefined ? layout.bytes : (headFirst + floatStart!.blocks) * float!.bytes,
        );
        const tables = kvTables(format, layer.headDim, which);
        if (tables.length > 0)
          this.#queue.writeBuffer(buffer, layout.tablesAt * 4, tables as Float32Array<ArrayBuffer>);
        if (headFirst !== undefined) return { buffer, layout, blocks, floatStart: null, headFirst };
        if (!float || shared) return { buffer, layout, blocks, floatStart: null };
        const apart = create(`floatStart ${label}`, float.bytes * floatStart!.blocks);
        return { buffer, layout, blocks, floatStart: apart };
      };
      this.layers = spec.layers.map((layer, i) =>
        layer.state === undefined
          ? {
              keys: side(layer, i, 'key'),
              values:
                layer.valueDim === undefined
                  ? side(layer, i, 'value')
                  : noSide(spec.blocks, create(`no values of layer ${i}`, NONE.bytes)),
            }
          : stateCache(layer.state, spec.blocks, (bytes) => create(`states of layer ${i}`, bytes)),
      );
      this.tables = create('block tables', spec.slots * spec.maxBlocksPerSlot * 4);
      this.lastToken = create('last tokens', (spec.slots + 1) * 4);
      this.#convert =
        spec.floatStart == null || spec.floatStart.head
          ? null
          : new KvConverter(
              host,
              { ...spec, floatStart: spec.floatStart },
              this.layers,
              (label, bytes, usage) => {
                const buffer = allocator.create(label, bytes, usage);
                made.push(buffer);
                return buffer;
              },
            );
    } catch (error) {
      for (const buffer of made) allocator.destroy(buffer);
      throw error;
    }
    this.#bytes = made.reduce((sum, b) => sum + b.size, 0);
  }

  /** Settles when what moves blocks from one kind to the other is compiled, and has run: on a block that holds nothing yet. */
  async compiled(): Promise<void> {
    await this.#convert?.compiled;
    if (!this.used && !this.#disposed)
      await this.#convert?.run(Uint32Array.of(this.spec.blocks), Uint32Array.of(0));
  }

  get bytes(): number {
    return this.#bytes + (this.#mover?.bytes ?? 0);
  }

  setBlocks(slot: number, first: number, blocks: Uint32Array): void {
    const { slots, maxBlocksPerSlot } = this.spec;
    const count = this.spec.blocks + (this.spec.floatStart?.blocks ?? 0);
    if (slot < 0 || slot >= slots || first < 0 || first + blocks.length > maxBlocksPerSlot) {
      throw badTable(
        `entries [${first}, ${first + blocks.length}) of slot ${slot} are outside the block table`,
      );
    }
    for (const block of blocks) if (block >= count) throw badTable(`block ${block} of ${count}`);
    if (blocks.length === 0) return;
    const offset = (slot * maxBlocksPerSlot + first) * 4;
    this.#queue.writeBuffer(this.tables, offset, blocks as Uint32Array<ArrayBuffer>);
  }

  async convert(from: Uint32Array, to: Uint32Array): Promise<void> {
    const { blocks } = this.spec;
    const end = blocks + (this.spec.floatStart?.blocks ?? 0);
    if (from.length !== to.length) throw badTable(`${from.length} blocks into ${to.length}`);
    for (const id of from)
      if (id < blocks || id >= end)
        throw badTable(`block ${id} is not floatStart: those are ${blocks} to ${end - 1}`);
    for (const id of to)
      if (id >= blocks) throw badTable(`block ${id} is floatStart, or there is none: ${blocks}`);
    this.used = true;
    const convert = this.#convert;
    if (from.length === 0 || convert === null) return;
    const [own, into] = [from.slice(), to.slice()];
    await this.#host.order.submit(() => convert.run(own, into));
  }

  async copy(from: Uint32Array, to: Uint32Array): Promise<void> {
    checkCopy(this.spec, from, to);
    this.used = true;
    if (from.length === 0) return;
    const [own, into] = [from.slice(), to.slice()];
    await this.#host.order.submit(() => this.#moves().copy(own, into));
  }

  async read(blocks: Uint32Array): Promise<Uint8Array[]> {
    checkBlocks(this.spec, 'read', blocks);
    if (blocks.length === 0) return [];
    const own = blocks.slice();
    return this.#host.order.submit(() => this.#moves().read(own));
  }

  async write(blocks: Uint32Array, bytes: readonly Uint8Array[]): Promise<void> {
    checkWrite(this.spec, blocks, bytes);
    this.used = true;
    if (blocks.length === 0) return;
    const own = blocks.slice();
    await this.#host.order.submit(() => this.#moves().write(own, bytes));
  }

  async prepare(use: 'copy' | 'transfer'): Promise<void> {
    await this.#moves().prepare(use);
  }

  dispose(): void {
    this.#disposed = true;
    for (const { keys, values } of this.layers) {
      for (const { buffer, floatStart } of [keys, values]) {
        this.#allocator.destroy(buffer);
        if (floatStart !== null) this.#allocator.destroy(floatStart);
      }
    }
    this.#allocator.destroy(this.tables);
    this.#allocator.destroy(this.lastToken);
    this.#convert?.dispose();
    this.#mover?.dispose();
  }

  #moves(): KvMover {
    if (this.#disposed) throw disposed();
    this.#mover ??= new KvMover(this.#host, this.spec, this.layers);
    return this.#mover;
  }
}

/** Whether all pools are of this device. */
export function areGpuCaches(caches: KvCaches | null): caches is KvCaches<GpuKvPool> | null {
  return caches === null || caches.pools.every((pool) => pool instanceof GpuKvPool);
}

/** A layer with state has it in the place of keys. What moves blocks binds values as well: a vector of nothing. */
/** The layout of a side that holds nothing. */
const NONE: KvLayout = { words: 0, groups: 0, metaHeads: 0, metaAt: 0, tablesAt: 0, bytes: 16 };

function noSide(blocks: number, buffer: GPUBuffer): SideCache {
  return { buffer, layout: NONE, blocks, floatStart: null };
}

function stateCache(shape: StateShape, blocks: number, create: (bytes: number) => GPUBuffer): LayerCache {
  const words = stateBytes(shape) / 4;
  const all = words * blocks;
  return {
    keys: {
      buffer: create(all * 4),
      layout: { ...NONE, words, metaAt: all, tablesAt: all, bytes: all * 4 },
      blocks,
      floatStart: null,
    },
    values: noSide(blocks, create(NONE.bytes)),
  };
}

/** Tokens of the longest float head: those of a split of attention. */
const MOST_HEAD = ATTENTION_SPLIT;

/** Errors: `kv-pool-unsupported`, for a float head that kernels cannot read. */
function checkHead({ floatStart, layers }: KvPoolSpec): void {
  if (!floatStart?.head) return;
  const { head, dtype } = floatStart;
  if (head > MOST_HEAD)
    throw new KvantError(
      'kv-pool-unsupported',
      `A float head of ${head} tokens: the GPU keeps ${MOST_HEAD} at most.`,
      { kind: 'unsupported', where: 'kvFloatHead', fix: `Give a head of up to ${MOST_HEAD} tokens.` },
    );
  for (const { state, key, value } of layers)
    for (const format of state === undefined ? [key, value] : []) {
      const fits = isFloatKv(format) ? format.dtype === dtype : codecOf(format).element(format) === 'u32';
      if (!fits)
        throw new KvantError(
          'kv-pool-unsupported',
          `A float head of ${dtype} before ${kvFormatName(format)}: the GPU keeps no such two in a buffer.`,
          {
            kind: 'unsupported',
            where: 'kvFloatHead',
            fix: 'Leave the head out, or keep both sides quantised.',
          },
        );
    }
}

function checkSpec(spec: KvPoolSpec): void {
  const { blockTokens } = spec;
  if (blockTokens < 16 || blockTokens > 64 || (blockTokens & (blockTokens - 1)) !== 0) {
    throw misuse(`blocks of ${blockTokens} tokens: 16, 32 or 64 are possible`);
  }
  for (const layer of spec.layers) {
    const { headDim, valueDim, key, value, state } = layer;
    if (state !== undefined) continue;
    const bad = badHeads(layer);
    if (bad !== undefined)
      throw misuse(`${bad}: a head_dim of multiples of 4 up to ${MAX_HEAD_DIM} is possible`);
    for (const format of [key, value]) {
      const takes =
        valueDim === undefined
          ? codecOf(format).takes(format, headDim)
          : kvUnusable(format, layer) === undefined;
      if (!takes)
        throw misuse(
          `${kvFormatName(format)} for a head_dim of ${headDim}: multiples of 8 up to 256 are possible`,
        );
    }
  }
}

function disposed(): KvantError {
  return new KvantError('disposed', 'The KV pool has been disposed of.', { fix: 'Create it again.' });
}

function badTable(message: string): KvantError {
  return new KvantError('bad-block-table', `KV pool: ${message}.`, {
    fix: 'Take blocks from the pool that the table belongs to.',
  });
}

function misuse(message: string): KvantError {
  return new KvantError('kv-pool-unsupported', `KV pool: ${message}.`, {
    kind: 'unsupported',
    fix: 'Check the plan of the cache that the model made.',
  });
}
