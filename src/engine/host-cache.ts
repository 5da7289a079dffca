/** The KV cache at load: its format, its size, and the pool and program that are made for it. */

import type { Device, DeviceInfo, DeviceKind, Program, ProgramLimits } from '../device/device.js';
import type { FeatureSlab } from '../device/feature-slab.js';
import type { Graph, KeyCentre } from '../device/graph.js';
import {
  type KvCaches,
  type KvFloatStartSpec,
  type KvLayerSpec,
  type KvPool,
  kvBlockBytes,
} from '../device/kv.js';
import { KvantError } from '../errors.js';
import { placesOf } from '../kv/groups.js';
import { readKvOptions } from '../kv/options.js';
import { defaultKvFormat, groupLayers, type KvLayerShape, type KvPlan, planKvLayers } from '../kv/policy.js';
import { headBlocks, rowBlocks } from '../kv/retention.js';
import {
  floatStartBlockBytes,
  type KvCacheRequest,
  type KvCacheSizing,
  type KvSizingGroup,
  kvSequenceBytes,
  reachOf,
  sizeKvCache,
  spareFloatBytes,
} from '../kv/sizing.js';
import type { ModelFacts } from '../models/facts.js';
import type { BuildGraphOptions, KvFloats, Model } from '../models/load.js';
import { STEPS_IN_FLIGHT } from './core.js';
import type { ContextRaise } from './core-errors.js';
import { hostConfig } from './host-config.js';
import { DEFAULT_BLOCK_TOKENS, DEFAULT_MAX_ROWS, engineLimits } from './host-options.js';
import type { HostConfig } from './messages.js';
import type { EngineLimits, EngineOptions } from './types.js';

/** Share of what weights leave of the device's memory that the cache may take. */
const CACHE_SHARE = { cpu: 0.5, webgpu: 0.85 } as const;
/** What the cache takes unasked, as long as one sequence of full length fits. */
const CACHE_DEFAULT_BYTES = 4 * 2 ** 30;
/** An encoder keeps K and V until their step has retired: those of the steps under way, and of one that is filled. */
const ENCODER_STEPS = STEPS_IN_FLIGHT + 1;
/** Snapshots of recurrent state unasked: so many for each row, in so many bytes at most. */
const SNAPSHOTS_A_ROW = 2;
const SNAPSHOT_DEFAULT_BYTES = 2 ** 30;
/** WebGPU binds at most 2 GiB − 4 at once. */
const WEBGPU_BINDING_BYTES = 2 ** 31 - 4;

/** Tokens of its longest float tail, as a rule: adapters of few bindings have none. */
const WEBGPU_TAIL_TOKENS = 256;

/** What of a device says how large a cache may be. */
export type SizedDevice = Pick<DeviceInfo, 'kind' | 'memoryBytes'>;

/** Formats of every layer. Errors: those of `readKvOptions` and `planKvLayers`. */
export function planCache(
  config: Pick<HostConfig, 'kv' | 'maxContext' | 'blockTokens'>,
  layers: readonly KvLayerShape[],
  device: Pick<DeviceInfo, 'precision' | 'floatHeads' | 'floatTails'>,
  modelContext: number,
): KvPlan {
  const context = config.maxContext ?? modelContext;
  const { blockTokens = DEFAULT_BLOCK_TOKENS } = config;
  return planKvLayers(
    layers,
    readKvOptions(config.kv),
    defaultKvFormat(device),
    context,
    blockTokens,
    device,
  );
}

/**
 * The size the cache shall have. Without `kvMemory`: what the rows and context that were asked for need, or, if
 * none were, a modest default; never more than the device is known to have. Errors: see `sizeKvPool`.
 */
export function sizeCache(
  config: HostConfig,
  kv: KvPlan,
  device: SizedDevice,
  model: ModelFacts,
  weightBytes: number,
): KvCacheSizing {
  const { blockTokens, groups, ...request } = sizingOf(config, kv, device, model);
  const context = config.maxContext ?? model.maxPositions;
  const sequence = kvSequenceBytes(groups, blockTokens, context, kv.floatStart);
  const rows = model.encoder
    ? sequence * ENCODER_STEPS * Math.ceil((config.maxBatchTokens ?? context) / context)
    : config.maxContext === undefined
      ? Math.max(CACHE_DEFAULT_BYTES, sequence)
      : sequence * request.maxRows;
  const spare = (group: KvSizingGroup): number =>
    (group.snapshotBytes ?? 0) + spareFloatBytes(group, blockTokens, request.maxRows);
  const wanted = groups.reduce((sum, group) => sum + spare(group), rows);
  const available = Math.min(wanted, memoryLeft(device, weightBytes));
  return sizeKvCache({ ...request, blockTokens, groups, available });
}

/** The cache that an engine makes where nothing but formats is asked for. */
export interface DefaultCache {
  /** Of all sequences together, in the layers that keep everything. */
  readonly kvTokens: number;
  readonly kvBytes: number;
  /** Of each cache group, without the float blocks of sequences that are not quantised yet. */
  readonly groupBytes: readonly number[];
  readonly batchTokens: number;
  readonly maxRows: number;
  /** Longest sequence. */
  readonly maxContext: number;
}

/** What devices of a kind do with float heads and tails, told without one. */
export function floatsOf(kind: DeviceKind): Pick<DeviceInfo, 'floatHeads' | 'floatTails'> {
  // A head is kept on both, but unasked on the CPU alone.
  return kind === 'cpu'
    ? { floatHeads: true, floatTails: Number.POSITIVE_INFINITY }
    : { floatTails: WEBGPU_TAIL_TOKENS };
}

/** What `Engine.load` will make, told without a device. Errors: those of {@link planCache} and {@link sizeCache}. */
export function defaultCache(
  options: EngineOptions,
  model: ModelFacts,
  layers: readonly KvLayerShape[],
  device: SizedDevice,
  weightBytes: number,
): DefaultCache {
  const config = hostConfig({ kind: 'folder', path: '' }, options);
  const kv = planCache(
    config,
    layers,
    { precision: options.precision ?? 'default', ...floatsOf(device.kind) },
    model.maxPositions,
  );
  const { blocks, bytes, maxContext } = sizeCache(config, kv, device, model, weightBytes);
  const blockTokens = config.blockTokens ?? DEFAULT_BLOCK_TOKENS;
  return {
    kvTokens: blocks[0]! * blockTokens,
    kvBytes: bytes,
    groupBytes: sizingGroups(config, kv, device.kind).map(
      ({ layers: own }, group) => blocks[group]! * kvBlockBytes(own, blockTokens),
    ),
    batchTokens: engineLimits(config, device.kind, maxContext).maxBatchTokens,
    maxRows: config.maxRows ?? DEFAULT_MAX_ROWS,
    maxContext,
  };
}

/**
 * What of the options would have to be larger for sequences to be longer than they are in the cache that was planned and then
 * `opened`; nothing where the model or the device has no more.
 */
export function contextRaise(
  config: HostConfig,
  kv: KvPlan,
  device: DeviceInfo,
  model: ModelFacts,
  weightBytes: number,
  planned: KvCacheSizing,
  opened: KvCacheSizing,
): ContextRaise {
  if (opened.maxContext >= model.maxPositions) return [];
  const request = sizingOf(config, kv, device, model);
  const { blockTokens, groups } = request;
  const available = memoryLeft(device, weightBytes);
  // A pool that was made smaller than planned is all that there was room for.
  const longest =
    opened === planned
      ? sizeKvCache({ ...request, maxContext: undefined, maxRows: 1, available }).maxContext
      : reachOf(opened.blocks[0]!, groups[0]!.rowBlocks, model.maxPositions, blockTokens);
  const asked = config.maxContext === undefined ? [] : (['maxContext'] as const);
  if (longest > opened.maxContext) return asked;
  return config.kvMemory === undefined ? [] : [...asked, 'kvMemory'];
}

/** What is asked of the cache, but for the memory that there is. */
function sizingOf(
  config: HostConfig,
  kv: KvPlan,
  device: SizedDevice,
  model: ModelFacts,
): Omit<KvCacheRequest, 'available'> {
  return {
    groups: sizingGroups(config, kv, device.kind),
    floatStart: kv.floatStart,
    blockTokens: config.blockTokens ?? DEFAULT_BLOCK_TOKENS,
    modelContext: model.maxPositions,
    maxContext: config.maxContext,
    maxRows: config.maxRows ?? DEFAULT_MAX_ROWS,
    kvMemory: config.kvMemory,
    ...(device.kind === 'webgpu' ? { maxPlaneBytes: WEBGPU_BINDING_BYTES } : {}),
  };
}

/** Bytes that the cache may have beside the weights, as far as is known. */
function memoryLeft({ memoryBytes, kind }: SizedDevice, weightBytes: number): number {
  if (memoryBytes === undefined) return Number.POSITIVE_INFINITY;
  return Math.max(0, (memoryBytes - weightBytes) * CACHE_SHARE[kind]);
}

/** Bytes for snapshots of recurrent state: what is asked for, or some for each row. */
function snapshotBytes(
  { prefixCache, prefixSnapshotBytes, maxRows = DEFAULT_MAX_ROWS }: HostConfig,
  layers: readonly KvLayerSpec[],
): number {
  if (!prefixCache) return 0;
  const some = SNAPSHOTS_A_ROW * maxRows * kvBlockBytes(layers, 1);
  return prefixSnapshotBytes ?? Math.min(some, SNAPSHOT_DEFAULT_BYTES);
}

/** The cache groups with their layers' formats, and what a row holds of each at once. */
function sizingGroups(config: HostConfig, kv: KvPlan, device: DeviceKind): KvSizingGroup[] {
  const { maxBatchTokens } = engineLimits(config, device, 0);
  const blockTokens = config.blockTokens ?? DEFAULT_BLOCK_TOKENS;
  return kv.groups.map((group) => {
    const layers = groupLayers(kv, group);
    if (group.state) return { layers, rowBlocks: 1, snapshotBytes: snapshotBytes(config, layers) };
    return {
      layers,
      ...(group.head === undefined
        ? {
            rowBlocks: rowBlocks(group.window, blockTokens, maxBatchTokens),
            ...(group.tail ? { tail: true } : {}),
          }
        : { rowBlocks: headBlocks(group.head, Number.POSITIVE_INFINITY, blockTokens), head: true }),
    };
  });
}

export interface OpenCache {
  readonly sizing: KvCacheSizing;
  readonly limits: EngineLimits;
  readonly caches: KvCaches;
  readonly program: Program;
}

/**
 * Makes the pools and the program. A GPU does not say how much memory it has: where nobody fixed the size, pools
 * that find no room are made half as large until they do. `beforeCompile` is given what is about to be compiled; `centres`: of the keys, by layer; `features`: of pictures;
 * `results`: what steps bring.
 * Errors: `device-out-of-memory`.
 */
export async function openCache(
  config: HostConfig,
  model: Model,
  device: Device,
  kv: KvPlan,
  planned: KvCacheSizing,
  beforeCompile: (graph: Graph, limits: ProgramLimits, caches: KvCaches) => Promise<void> = async () => {},
  centres: readonly (KeyCentre | null)[] = [],
  features: FeatureSlab | null = null,
  results: Pick<BuildGraphOptions, 'hidden' | 'head'> = {},
): Promise<OpenCache> {
  const blockTokens = config.blockTokens ?? DEFAULT_BLOCK_TOKENS;
  const groups = sizingGroups(config, kv, device.info.kind);
  let sizing = planned;
  for (;;) {
    const limits = engineLimits(config, device.info.kind, sizing.maxContext);
    const pools: KvPool[] = [];
    try {
      groups.forEach(({ layers }, group) => {
        if (kv.groups[group]!.head !== undefined) return;
        const floatStart = group > 0 ? null : floatBlocks(kv, sizing);
        pools.push(
          device.createKvPool({
            layers,
            blocks: sizing.blocks[group]!,
            blockTokens,
            slots: limits.maxRows,
            maxBlocksPerSlot: sizing.blocksPerSequence,
            ...(floatStart === null ? {} : { floatStart }),
          }),
        );
      });
      const caches: KvCaches = { pools, layers: placesOf(kv.groups) };
      const program = await compile(
        model,
        device,
        caches,
        limits,
        { centres, features, ...results },
        beforeCompile,
      );
      return { sizing, limits, caches, program };
    } catch (error) {
      for (const pool of pools) pool.dispose();
      const smaller = halved(sizing, groups, kv, blockTokens);
      const full = error instanceof KvantError && error.code === 'device-out-of-memory';
      const enough = smaller.maxContext >= (config.maxContext ?? (kv.floatStart?.start ?? 0) + 1);
      if (!full || config.kvMemory !== undefined || smaller.blocks.some((blocks) => blocks < 1) || !enough)
        throw error;
      sizing = smaller;
    }
  }
}

/** The float blocks in the pool of the first group: of its head, or of what sequences start in. */
function floatBlocks(
  { floatStart, floatHead, groups }: KvPlan,
  sizing: KvCacheSizing,
): KvFloatStartSpec | null {
  if (floatHead !== null) {
    const blocks = sizing.blocks[groups.findIndex(({ head }) => head !== undefined)]!;
    return { blocks, dtype: floatHead.dtype, head: floatHead.tokens };
  }
  return floatStart === null ? null : { blocks: sizing.floatStartBlocks, dtype: floatStart.dtype };
}

/** The floats that layers keep beside their formats: a head's, or what sequences start in, and a tail's. */
export function floatsBeside(kv: KvPlan, sizing: KvCacheSizing, blockTokens: number): readonly KvFloats[] {
  const first = floatBlocks(kv, sizing);
  const tail = kv.groups.findIndex((group) => group.tail);
  const floats: KvFloats[] = [];
  if (first !== null)
    floats.push({ dtype: first.dtype, tokens: first.blocks * blockTokens, layers: kv.groups[0]!.layers });
  if (kv.floatTail !== null && tail >= 0) {
    const tokens = sizing.blocks[tail]! * blockTokens;
    floats.push({ dtype: kv.floatTail.dtype, tokens, layers: kv.groups[tail]!.layers });
  }
  return floats;
}

function halved(
  sizing: KvCacheSizing,
  groups: readonly KvSizingGroup[],
  { floatStart }: KvPlan,
  blockTokens: number,
): KvCacheSizing {
  const { layers, rowBlocks: most } = groups[0]!;
  const whole = Math.ceil(sizing.maxContext / blockTokens);
  const blocks = sizing.blocks.map((count, group) => {
    const half = Math.floor(count / 2);
    // Of what slides there is always enough for one row.
    return group === 0 ? half : Math.max(Math.min(whole, groups[group]!.rowBlocks), half);
  });
  const floatStartBlocks = Math.max(sizing.floatStartPerSequence, Math.floor(sizing.floatStartBlocks / 2));
  const floatStartBytes =
    floatStart === null ? 0 : floatStartBlocks * floatStartBlockBytes(layers, floatStart.dtype, blockTokens);
  const maxContext = reachOf(blocks[0]!, most, sizing.maxContext, blockTokens);
  const bytes = groups.reduce(
    (sum, group, i) => sum + blocks[i]! * kvBlockBytes(group.layers, blockTokens),
    floatStartBytes,
  );
  return {
    ...sizing,
    blocks,
    floatStartBlocks,
    bytes,
    maxContext,
    blocksPerSequence: Math.ceil(maxContext / blockTokens),
    limitedBy: 'device-memory',
  };
}

async function compile(
  model: Model,
  device: Device,
  caches: KvCaches,
  limits: EngineLimits,
  parts: Pick<BuildGraphOptions, 'centres' | 'features' | 'hidden' | 'head'>,
  before: (graph: Graph, limits: ProgramLimits, caches: KvCaches) => Promise<void>,
): Promise<Program> {
  const { graph } = model.buildGraph(parts);
  const most: ProgramLimits = {
    maxTokens: limits.maxBatchTokens,
    maxOutputs: limits.maxRows,
    maxSequences: limits.maxRows,
    maxContext: limits.maxContext,
    inFlight: STEPS_IN_FLIGHT,
  };
  await before(graph, most, caches);
  return device.compile(graph, most, caches);
}
