/** How many blocks the KV pool gets, and how long a sequence may then be. */

import { type FloatKv, type KvLayerSpec, kvBlockBytes, kvFloatLayers, kvSideBytes } from '../device/kv.js';
import { stateBytes } from '../device/state.js';
import { KvantError } from '../errors.js';
import type { KvFloatStartPlan } from './policy.js';
import { ALL_BLOCKS } from './retention.js';

export interface KvSizingRequest {
  readonly layers: readonly KvLayerSpec[];
  /** Absent or null: no sequence is ever float-start. */
  readonly floatStart?: KvFloatStartPlan | null;
  readonly blockTokens: number;
  /** Most blocks that a row holds at once (retention.ts); default: as many as it has tokens for. */
  readonly rowBlocks?: number;
  /** Longest context the model was made for. */
  readonly modelContext: number;
  /** What was asked for; at most `modelContext`. */
  readonly maxContext: number | undefined;
  readonly maxRows: number;
  /** Bytes asked for. */
  readonly kvMemory: number | undefined;
  /** Bytes the device has for the cache, where that is known. Not looked at beside `kvMemory`. */
  readonly available: number | undefined;
  /** Most bytes of one layer's keys, or of its values, that the device can address, where that is known. */
  readonly maxPlaneBytes?: number;
  /** Bytes of other groups' pools, taken off what there is already, and what there was. For errors. */
  readonly besides?: number;
  readonly whole?: number;
}

export interface KvSizing {
  readonly blocks: number;
  /** Blocks for sequences that are not quantised yet, and how many one of them needs. */
  readonly floatStartBlocks: number;
  readonly floatStartPerSequence: number;
  /** Of both kinds. */
  readonly bytes: number;
  /** Longest sequence: as asked for, or what the pool can hold if that is less. */
  readonly maxContext: number;
  /** Length of a block table. */
  readonly blocksPerSequence: number;
  /** What kept the pool smaller than `maxRows` sequences of `maxContext`. */
  readonly limitedBy: 'nothing' | 'kv-memory' | 'device-memory';
}

/**
 * As much as `maxRows` sequences of full length have, as far as memory goes; where it does not, float-start and other blocks
 * are cut alike, but one float-start sequence always fits. A pool that cannot hold one sequence of full length shortens the
 * context if nobody asked for it, and is an error if somebody did, or if no sequence would come of age.
 * Errors: `context-too-long`, `kv-memory-too-small` (both invalid-request).
 */
export function sizeKvPool(request: KvSizingRequest): KvSizing {
  const {
    layers,
    floatStart = null,
    blockTokens,
    rowBlocks = ALL_BLOCKS,
    modelContext,
    maxContext,
    maxRows,
    kvMemory,
    available,
  } = request;
  if (maxContext !== undefined && maxContext > modelContext)
    throw new KvantError(
      'context-too-long',
      `A context of ${maxContext} tokens was asked for; the model was made for ${modelContext}.`,
      { kind: 'invalid-request', where: 'maxContext', fix: `Ask for at most ${modelContext}.` },
    );
  const context = maxContext ?? modelContext;
  const whole = Math.ceil(context / blockTokens);
  const perSequence = Math.min(whole, rowBlocks);
  const floatStartPer = floatStart === null ? 0 : Math.ceil(floatStart.start / blockTokens);
  // What rows with windows do not hold of their sequences, the prefix cache may keep.
  const wanted = whole * maxRows;
  const wantedFloatStart = floatStartPer * maxRows;

  const blockBytes = Math.max(1, kvBlockBytes(layers, blockTokens));
  const floatStartBytes =
    floatStart === null ? 0 : floatStartBlockBytes(layers, floatStart.dtype, blockTokens);
  const widest = widestPlane(layers, blockTokens);
  const widestFloatStart =
    floatStart === null ? 0 : widestPlane(kvFloatLayers(layers, floatStart.dtype), blockTokens);
  const memory = kvMemory ?? available ?? Number.POSITIVE_INFINITY;
  const plane = request.maxPlaneBytes ?? Number.POSITIVE_INFINITY;
  const share = Math.min(
    1,
    memory / (wanted * blockBytes + wantedFloatStart * floatStartBytes),
    plane / (wanted * widest + wantedFloatStart * widestFloatStart),
  );
  const floatStartBlocks = Math.max(floatStartPer, Math.floor(wantedFloatStart * share));
  const blocks = Math.min(
    wanted,
    Math.floor((memory - floatStartBlocks * floatStartBytes) / blockBytes),
    Math.floor((plane - floatStartBlocks * widestFloatStart) / widest),
  );

  const least = floatStart === null ? 1 : floatStart.start + 1;
  if (blocks * blockTokens < least || (blocks < perSequence && maxContext !== undefined)) {
    const tokens = maxContext ?? Math.min(context, Math.max(least, blockTokens));
    const { besides = 0, whole: given = memory } = request;
    const need =
      Math.min(Math.ceil(tokens / blockTokens), rowBlocks) * blockBytes +
      floatStartPer * floatStartBytes +
      besides;
    const has = Math.max(0, Math.min(given, Math.floor(plane / widest) * blockBytes + besides));
    const fixes = [
      ...(maxContext === undefined ? [] : ['ask for a shorter context']),
      ...(floatStart === null ? [] : ['ask for a smaller quantizedKvStart']),
      `give the cache at least ${need} bytes`,
    ];
    throw new KvantError(
      'kv-memory-too-small',
      `A sequence of ${tokens} tokens needs ${need} bytes of KV cache${floatStart === null ? '' : `, the ${floatStart.start} it keeps as floats at first included`}; there are ${has}.`,
      {
        kind: 'invalid-request',
        where: kvMemory === undefined ? 'maxContext' : 'kvMemory',
        fix: `${fixes[0]![0]!.toUpperCase()}${fixes.join(', or ').slice(1)}.`,
      },
    );
  }
  const enough = blocks >= perSequence * maxRows && floatStartBlocks === wantedFloatStart;
  const reached = reachOf(blocks, rowBlocks, context, blockTokens);
  return {
    blocks,
    floatStartBlocks,
    floatStartPerSequence: floatStartPer,
    bytes: blocks * blockBytes + floatStartBlocks * floatStartBytes,
    maxContext: reached,
    blocksPerSequence: Math.ceil(reached / blockTokens),
    limitedBy: enough ? 'nothing' : kvMemory !== undefined ? 'kv-memory' : 'device-memory',
  };
}

/** Tokens that a sequence may have in a pool of so many blocks. */
export function reachOf(blocks: number, rowBlocks: number, context: number, blockTokens: number): number {
  return blocks >= rowBlocks ? context : Math.min(context, blocks * blockTokens);
}

/** Bytes of one block of a layer's keys or values, or of its state, the largest of all. */
function widestPlane(layers: readonly KvLayerSpec[], blockTokens: number): number {
  let bytes = 1;
  for (const layer of layers) {
    const { key, value, state } = layer;
    bytes = Math.max(
      bytes,
      state === undefined ? 0 : stateBytes(state),
      kvSideBytes(layer, 'key', key) * blockTokens,
      kvSideBytes(layer, 'value', value) * blockTokens,
    );
  }
  return bytes;
}

/** Bytes of one float-start block over all layers. */
export function floatStartBlockBytes(
  layers: readonly KvLayerSpec[],
  dtype: FloatKv['dtype'],
  blockTokens: number,
): number {
  return kvBlockBytes(kvFloatLayers(layers, dtype), blockTokens);
}

/** A cache group as sizing sees it. */
export interface KvSizingGroup {
  readonly layers: readonly KvLayerSpec[];
  /** Most blocks that a row holds at once (retention.ts). */
  readonly rowBlocks: number;
  /** It is the float head of the first group, whose device buffers it shares. */
  readonly head?: boolean;
  /** It is the float tail of the first group. */
  readonly tail?: boolean;
  /** Of recurrent layers, whose blocks are slots of state: bytes for snapshots, beside a slot for each row. */
  readonly snapshotBytes?: number;
}

/** Share of the memory that snapshots may have. */
const SNAPSHOT_SHARE = 1 / 4;

export interface KvCacheRequest extends Omit<KvSizingRequest, 'layers' | 'rowBlocks' | 'besides' | 'whole'> {
  /** The first one decides how long a sequence may be. */
  readonly groups: readonly KvSizingGroup[];
}

export interface KvCacheSizing extends Omit<KvSizing, 'blocks'> {
  /** Blocks of each group's pool. */
  readonly blocks: readonly number[];
}

/**
 * Sizes the pools of all groups. Sliding and recurrent groups first get what `maxRows` rows hold of them at once, less where
 * memory is short, but always what one row holds; recurrent ones then some slots for snapshots; the first group has the rest, and
 * says how long a sequence may be.
 * Errors: as of `sizeKvPool`.
 */
export function sizeKvCache(request: KvCacheRequest): KvCacheSizing {
  const { groups, blockTokens, modelContext, maxContext, maxRows, kvMemory, available } = request;
  const [first, ...others] = groups as [KvSizingGroup, ...KvSizingGroup[]];
  const plane = request.maxPlaneBytes ?? Number.POSITIVE_INFINITY;
  const whole = Math.ceil((maxContext ?? modelContext) / blockTokens);
  const memory = kvMemory ?? available ?? Number.POSITIVE_INFINITY;
  const each = others.map(({ layers, rowBlocks, head = false, tail = false }) => {
    const bytes = kvBlockBytes(layers, blockTokens);
    const least = Math.min(whole, rowBlocks);
    const widest = widestPlane(layers, blockTokens);
    // The prefix cache goes on nowhere without the floats that are read there.
    const most =
      head || tail
        ? Math.min(FLOATS_A_ROW * maxRows, Math.floor((memory * FLOATS_SHARE) / bytes / least))
        : maxRows;
    const wanted = Math.min(least * Math.max(maxRows, most), Math.floor(plane / widest));
    return { bytes, least, wanted, plane: head ? widest : 0 };
  });
  const wantedBytes = each.reduce((sum, { bytes, wanted }) => sum + bytes * wanted, 0);
  const snapshots = others.reduce((sum, { snapshotBytes = 0 }) => sum + snapshotBytes, 0);
  // Half of what there is at most, for the first group decides how long a sequence may be; or what that group has no use for. It
  // always keeps what one sequence of the context that was asked for takes.
  const left = Math.max(0, memory - leastBytes(request, first));
  const unused = memory - firstBytes(request, first, whole) - Math.min(snapshots, memory * SNAPSHOT_SHARE);
  const share = Math.min(1, Math.min(left, Math.max(memory / 2, unused)) / Math.max(1, wantedBytes));
  const ofRows = each.map(({ least, wanted }) => Math.max(least, Math.floor(wanted * share)));
  const bytesOf = (blocks: readonly number[]): number =>
    each.reduce((sum, { bytes }, i) => sum + bytes * blocks[i]!, 0);
  const rows = bytesOf(ofRows) <= left ? ofRows : each.map(({ least }) => least);
  const forSnapshots = Math.max(0, Math.min(memory * SNAPSHOT_SHARE, left - bytesOf(rows)));
  const blocks = each.map(({ bytes }, i) => {
    const { layers, snapshotBytes } = others[i]!;
    if (snapshotBytes === undefined) return rows[i]!;
    const spare = Math.min(snapshotBytes, forSnapshots) / bytes;
    const most = Math.floor(plane / widestPlane(layers, blockTokens));
    return Math.min(most, rows[i]! + Math.floor(spare));
  });
  const besides = bytesOf(blocks);
  const rest = (bytes: number | undefined): number | undefined =>
    bytes === undefined ? undefined : Math.max(0, bytes - besides);
  const sizing = sizeKvPool({
    ...request,
    ...first,
    kvMemory: rest(kvMemory),
    available: rest(available),
    maxPlaneBytes: plane - each.reduce((sum, group, i) => sum + group.plane * blocks[i]!, 0),
    besides,
    whole: memory,
  });
  const short = share < 1 && sizing.limitedBy === 'nothing';
  return {
    ...sizing,
    blocks: [sizing.blocks, ...blocks],
    bytes: sizing.bytes + besides,
    limitedBy: short ? (kvMemory !== undefined ? 'kv-memory' : 'device-memory') : sizing.limitedBy,
  };
}

/** Bytes of the first group without which the request is an error: of a sequence as long as was asked for, or that comes of age. */
function leastBytes(
  { floatStart = null, blockTokens, maxContext }: KvCacheRequest,
  { layers, rowBlocks }: KvSizingGroup,
): number {
  const tokens = maxContext ?? (floatStart === null ? 1 : floatStart.start + 1);
  return kvSequenceBytes([{ layers, rowBlocks }], blockTokens, tokens, floatStart);
}

/** Bytes of all that the first group can use: whole sequences in every row. */
function firstBytes(
  { floatStart = null, blockTokens, maxRows }: KvCacheRequest,
  { layers }: KvSizingGroup,
  whole: number,
): number {
  const sequence = whole * kvBlockBytes(layers, blockTokens);
  if (floatStart === null) return maxRows * sequence;
  const blocks = Math.ceil(floatStart.start / blockTokens);
  return maxRows * (sequence + blocks * floatStartBlockBytes(layers, floatStart.dtype, blockTokens));
}

/** Float heads, and tails, that are kept for each row, its own and those of prefixes; and the part of the memory that is enough for them. */
const FLOATS_A_ROW = 4;
const FLOATS_SHARE = 1 / 16;

/** Bytes for the heads and tails of prefixes, beside that of each row: 0 where the group is neither. */
export function spareFloatBytes(
  { layers, rowBlocks, head = false, tail = false }: KvSizingGroup,
  blockTokens: number,
  maxRows: number,
): number {
  return head || tail ? (FLOATS_A_ROW - 1) * maxRows * rowBlocks * kvBlockBytes(layers, blockTokens) : 0;
}

/** Bytes that one sequence of so many tokens holds at most, in whole blocks, and of the float-start ones it starts in. */
export function kvSequenceBytes(
  groups: readonly KvSizingGroup[],
  blockTokens: number,
  tokens: number,
  floatStart: KvFloatStartPlan | null = null,
): number {
  let bytes = 0;
  for (const { layers, rowBlocks } of groups)
    bytes += Math.min(Math.ceil(tokens / blockTokens), rowBlocks) * kvBlockBytes(layers, blockTokens);
  if (floatStart === null) return bytes;
  const { layers } = groups[0]!;
  return (
    bytes +
    Math.ceil(floatStart.start / blockTokens) * floatStartBlockBytes(layers, floatStart.dtype, blockTokens)
  );
}
