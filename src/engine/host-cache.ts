/** The KV cache at load: its format, its size, and the pool and program that are made for it. */

import type { Device, DeviceInfo, DeviceKind, Program, ProgramLimits } from '../device/device.js';
import type { Graph } from '../device/graph.js';
import { type KvPool, kvBlockBytes } from '../device/kv.js';
import { KvantError } from '../errors.js';
import { readKvOptions } from '../kv/options.js';
import { defaultKvFormat, type KvLayerShape, type KvPlan, planKvLayers } from '../kv/policy.js';
import { rowBlocks, widestWindow } from '../kv/retention.js';
import {
  type KvSizing,
  type KvSizingRequest,
  kvSequenceBytes,
  reachOf,
  sizeKvPool,
  youngBlockBytes,
} from '../kv/sizing.js';
import type { ModelConfig } from '../models/config.js';
import type { Model } from '../models/load.js';
import { STEPS_IN_FLIGHT } from './core.js';
import type { ContextRaise } from './core-errors.js';
import { DEFAULT_BLOCK_TOKENS, DEFAULT_MAX_ROWS, engineLimits } from './host-options.js';
import type { HostConfig } from './messages.js';
import type { EngineLimits } from './types.js';

/** Share of what weights leave of the device's memory that the cache may take. */
const CACHE_SHARE = { cpu: 0.5, webgpu: 0.85 } as const;
/** What the cache takes unasked, as long as one sequence of full length fits. */
const CACHE_DEFAULT_BYTES = 4 * 2 ** 30;
/** WebGPU binds at most 2 GiB − 4 at once. */
const WEBGPU_BINDING_BYTES = 2 ** 31 - 4;

/** Formats of every layer. Errors: those of `readKvOptions` and `planKvLayers`. */
export function planCache(
  config: Pick<HostConfig, 'kv' | 'maxContext'>,
  layers: readonly KvLayerShape[],
  device: DeviceInfo,
  modelContext: number,
): KvPlan {
  const context = config.maxContext ?? modelContext;
  return planKvLayers(layers, readKvOptions(config.kv), defaultKvFormat(device), context);
}

/**
 * The size the cache shall have. Without `kvMemory`: what the rows and context that were asked for need, or, if
 * none were, a modest default; never more than the device is known to have. Errors: see `sizeKvPool`.
 */
export function sizeCache(
  config: HostConfig,
  kv: KvPlan,
  device: DeviceInfo,
  model: ModelConfig,
  weightBytes: number,
): KvSizing {
  const { blockTokens, rowBlocks: most, ...request } = sizingOf(config, kv, device, model);
  const context = config.maxContext ?? model.maxPositions;
  const sequence = kvSequenceBytes(kv.layers, blockTokens, context, kv.young, most);
  const wanted =
    config.maxContext === undefined ? Math.max(CACHE_DEFAULT_BYTES, sequence) : sequence * request.maxRows;
  const available = Math.min(wanted, memoryLeft(device, weightBytes));
  return sizeKvPool({ ...request, blockTokens, rowBlocks: most, available });
}

/**
 * What of the options would have to be larger for sequences to be longer than they are in the cache that was planned and then
 * `opened`; nothing where the model or the device has no more.
 */
export function contextRaise(
  config: HostConfig,
  kv: KvPlan,
  device: DeviceInfo,
  model: ModelConfig,
  weightBytes: number,
  planned: KvSizing,
  opened: KvSizing,
): ContextRaise {
  if (opened.maxContext >= model.maxPositions) return [];
  const request = sizingOf(config, kv, device, model);
  const { blockTokens, rowBlocks: most } = request;
  const available = memoryLeft(device, weightBytes);
  // A pool that was made smaller than planned is all that there was room for.
  const longest =
    opened === planned
      ? sizeKvPool({ ...request, maxContext: undefined, maxRows: 1, available }).maxContext
      : reachOf(opened.blocks, most, model.maxPositions, blockTokens);
  const asked = config.maxContext === undefined ? [] : (['maxContext'] as const);
  if (longest > opened.maxContext) return asked;
  return config.kvMemory === undefined ? [] : [...asked, 'kvMemory'];
}

/** What is asked of the cache, but for the memory that there is. */
function sizingOf(
  config: HostConfig,
  kv: KvPlan,
  device: DeviceInfo,
  model: ModelConfig,
): Omit<KvSizingRequest, 'available'> & { readonly rowBlocks: number } {
  return {
    layers: kv.layers,
    young: kv.young,
    blockTokens: config.blockTokens ?? DEFAULT_BLOCK_TOKENS,
    rowBlocks: mostRowBlocks(config, kv, device.kind),
    modelContext: model.maxPositions,
    maxContext: config.maxContext,
    maxRows: config.maxRows ?? DEFAULT_MAX_ROWS,
    kvMemory: config.kvMemory,
    ...(device.kind === 'webgpu' ? { maxPlaneBytes: WEBGPU_BINDING_BYTES } : {}),
  };
}

/** Bytes that the cache may have beside the weights, as far as is known. */
function memoryLeft({ memoryBytes, kind }: DeviceInfo, weightBytes: number): number {
  if (memoryBytes === undefined) return Number.POSITIVE_INFINITY;
  return Math.max(0, (memoryBytes - weightBytes) * CACHE_SHARE[kind]);
}

/** Most blocks that a row holds at once. */
function mostRowBlocks(config: HostConfig, { windows }: KvPlan, device: DeviceKind): number {
  const { maxBatchTokens } = engineLimits(config, device, 0);
  return rowBlocks(widestWindow(windows), config.blockTokens ?? DEFAULT_BLOCK_TOKENS, maxBatchTokens);
}

export interface OpenCache {
  readonly sizing: KvSizing;
  readonly limits: EngineLimits;
  readonly pool: KvPool;
  readonly program: Program;
}

/**
 * Makes the pool and the program. A GPU does not say how much memory it has: where nobody fixed the size, a pool
 * that finds no room is made half as large until it does. `beforeCompile` is given what is about to be compiled.
 * Errors: `device-out-of-memory`.
 */
export async function openCache(
  config: HostConfig,
  model: Model,
  device: Device,
  kv: KvPlan,
  planned: KvSizing,
  beforeCompile: (graph: Graph, limits: ProgramLimits, pool: KvPool) => Promise<void> = async () => {},
): Promise<OpenCache> {
  const blockTokens = config.blockTokens ?? DEFAULT_BLOCK_TOKENS;
  let sizing = planned;
  for (;;) {
    const limits = engineLimits(config, device.info.kind, sizing.maxContext);
    let pool: KvPool | null = null;
    try {
      pool = device.createKvPool({
        layers: model.kvLayers,
        blocks: sizing.blocks,
        blockTokens,
        slots: limits.maxRows,
        maxBlocksPerSlot: sizing.blocksPerSequence,
        ...(kv.young === null ? {} : { young: { blocks: sizing.youngBlocks, dtype: kv.young.dtype } }),
      });
      return { sizing, limits, pool, program: await compile(model, device, pool, limits, beforeCompile) };
    } catch (error) {
      pool?.dispose();
      const smaller = halved(sizing, kv, blockTokens, mostRowBlocks(config, kv, device.info.kind));
      const full = error instanceof KvantError && error.code === 'device-out-of-memory';
      const enough = smaller.maxContext >= (config.maxContext ?? (kv.young?.start ?? 0) + 1);
      if (!full || config.kvMemory !== undefined || smaller.blocks < 1 || !enough) throw error;
      sizing = smaller;
    }
  }
}

function halved(sizing: KvSizing, { layers, young }: KvPlan, blockTokens: number, most: number): KvSizing {
  const blocks = Math.floor(sizing.blocks / 2);
  const youngBlocks = Math.max(sizing.youngPerSequence, Math.floor(sizing.youngBlocks / 2));
  const youngBytes = young === null ? 0 : youngBlocks * youngBlockBytes(layers, young.dtype, blockTokens);
  const maxContext = reachOf(blocks, most, sizing.maxContext, blockTokens);
  return {
    ...sizing,
    blocks,
    youngBlocks,
    bytes: blocks * kvBlockBytes(layers, blockTokens) + youngBytes,
    maxContext,
    blocksPerSequence: Math.ceil(maxContext / blockTokens),
    limitedBy: 'device-memory',
  };
}

async function compile(
  model: Model,
  device: Device,
  pool: KvPool,
  limits: EngineLimits,
  before: (graph: Graph, limits: ProgramLimits, pool: KvPool) => Promise<void>,
): Promise<Program> {
  const { graph } = model.buildGraph();
  const most: ProgramLimits = {
    maxTokens: limits.maxBatchTokens,
    maxOutputs: limits.maxRows,
    maxSequences: limits.maxRows,
    maxContext: limits.maxContext,
    inFlight: STEPS_IN_FLIGHT,
  };
  await before(graph, most, pool);
  return device.compile(graph, most, pool);
}
