/** Caches of sequences that own their blocks for good: of what runs without an engine. */

import type { Device } from '../device/device.js';
import {
  type KvCaches,
  type KvLayerSpec,
  type KvPlace,
  type KvPool,
  kvBlockBytes,
  kvFloatLayers,
} from '../device/kv.js';
import type { KvPlan } from '../kv/policy.js';

/** Where sequences are kept as floats until they hold so many tokens. */
export interface SlotFloatStart {
  readonly tokens: number;
  /** A sequence begins anew in its slot. */
  begin(slot: number): void;
  /** It holds `tokens`, and no step that writes them is under way: what it holds is converted. */
  convert(slot: number): Promise<void>;
}

export interface SlotCaches extends KvCaches {
  readonly bytes: number;
  readonly floatStart: SlotFloatStart | null;
  dispose(): void;
}

export interface SlotSizes {
  /** Sequences. */
  readonly slots: number;
  /** Positions of each. */
  readonly context: number;
  readonly blockTokens: number;
}

/** The layers that attend, and the recurrent ones, by number. */
function kinds(layers: readonly KvLayerSpec[]): readonly [attending: number[], recurrent: number[]] {
  const of = (recurrent: boolean): number[] =>
    layers.flatMap(({ state }, layer) => ((state !== undefined) === recurrent ? [layer] : []));
  return [of(false), of(true)];
}

const blocksOf = ({ context, blockTokens }: SlotSizes): number => Math.ceil(context / blockTokens);

/** Bytes that {@link slotCaches} takes, apart from a float head, tail and start: blocks for each position, and one state for each sequence. */
export function slotCacheBytes(layers: readonly KvLayerSpec[], sizes: SlotSizes): number {
  const [attending, recurrent] = kinds(layers).map((own) =>
    kvBlockBytes(
      own.map((layer) => layers[layer]!),
      sizes.blockTokens,
    ),
  ) as [number, number];
  return sizes.slots * (blocksOf(sizes) * attending + recurrent);
}

const NO_FLOATS = { floatHead: null, floatStart: null, floatTail: null, groups: [] };

/** Errors: those of the formats and of the device's memory. */
export function slotCaches(
  device: Device,
  layers: readonly KvLayerSpec[],
  sizes: SlotSizes,
  {
    floatHead: head,
    floatStart: start,
    floatTail,
    groups,
  }: Pick<KvPlan, 'floatHead' | 'floatStart' | 'floatTail' | 'groups'> = NO_FLOATS,
): SlotCaches {
  const { slots, blockTokens } = sizes;
  const perSlot = blocksOf(sizes);
  const headBlocks = head === null ? 0 : Math.min(perSlot, head.tokens / blockTokens);
  const own = perSlot - headBlocks;
  const shared = { blockTokens, slots, maxBlocksPerSlot: perSlot };
  const [attending, recurrent] = kinds(layers);
  const tail = groups.find((group) => group.tail);
  const specs = (of: readonly number[]): KvLayerSpec[] => of.map((layer) => layers[layer]!);
  const startBlocks = start === null ? 0 : Math.min(perSlot, Math.ceil(start.start / blockTokens));
  let floatStart: SlotFloatStart | null = null;
  const pools: KvPool[] = [];
  const dispose = (): void => {
    for (const pool of pools.splice(0)) pool.dispose();
  };
  try {
    if (attending.length > 0) {
      const pool = device.createKvPool({
        ...shared,
        layers: specs(attending),
        blocks: Math.max(1, slots * own),
        ...(head === null
          ? {}
          : { floatStart: { blocks: slots * headBlocks, dtype: head.dtype, head: head.tokens } }),
        ...(start === null ? {} : { floatStart: { blocks: slots * startBlocks, dtype: start.dtype } }),
      });
      pools.push(pool);
      if (start !== null) floatStart = startOf(pool, start.start, startBlocks, own);
      for (let slot = 0; slot < slots; slot++) {
        const blocks = Uint32Array.from({ length: perSlot }, (_, i) =>
          i < headBlocks ? pool.spec.blocks + slot * headBlocks + i : slot * own + i - headBlocks,
        );
        pool.setBlocks(slot, 0, blocks);
      }
    }
    if (recurrent.length > 0) {
      // A block is a state.
      const pool = device.createKvPool({ ...shared, layers: specs(recurrent), blocks: slots });
      pools.push(pool);
      for (let slot = 0; slot < slots; slot++) pool.setBlocks(slot, 0, Uint32Array.of(slot));
    }
    if (tail !== undefined) {
      // Nothing is given back here: as long as the sequence.
      const pool = device.createKvPool({
        ...shared,
        layers: kvFloatLayers(specs(tail.layers), floatTail!.dtype),
        blocks: slots * perSlot,
      });
      pools.push(pool);
      for (let slot = 0; slot < slots; slot++)
        pool.setBlocks(
          slot,
          0,
          Uint32Array.from({ length: perSlot }, (_, i) => slot * perSlot + i),
        );
    }
  } catch (error) {
    dispose();
    throw error;
  }
  const last = recurrent.length > 0 ? pools.length - (tail === undefined ? 1 : 2) : -1;
  return {
    pools,
    layers: layers.map(({ state }, layer): KvPlace => {
      if (state !== undefined) return { group: last, index: recurrent.indexOf(layer) };
      const place = { group: 0, index: attending.indexOf(layer) };
      const index = tail?.layers.indexOf(layer) ?? -1;
      return index < 0
        ? place
        : { ...place, tail: { group: pools.length - 1, index, tokens: tail!.window! } };
    }),
    bytes: pools.reduce((sum, pool) => sum + pool.bytes, 0),
    floatStart,
    dispose,
  };
}

/** `floats` blocks of a slot's sequence begin as floats, out of the `own` that it has in the formats of its layers. */
function startOf(pool: KvPool, tokens: number, floats: number, own: number): SlotFloatStart {
  const blocks = (first: number): Uint32Array => Uint32Array.from({ length: floats }, (_, i) => first + i);
  const floating = (slot: number): Uint32Array => blocks(pool.spec.blocks + slot * floats);
  return {
    tokens,
    begin: (slot) => pool.setBlocks(slot, 0, floating(slot)),
    convert: async (slot) => {
      const stored = blocks(slot * own);
      await pool.convert(floating(slot), stored);
      pool.setBlocks(slot, 0, stored);
    },
  };
}
