/** Loading on the engine's thread: device, weights, KV pool, program, core, in this order, undone if one fails. */

import type { Device, Program } from '../device/device.js';
import { type KvPool, kvBlockBytes } from '../device/kv.js';
import { KvantError } from '../errors.js';
import { defaultKvFormat, type KvPlan, parseKvFormat, planKvLayers } from '../kv/policy.js';
import { type KvSizing, sizeKvPool } from '../kv/sizing.js';
import type { ModelConfig } from '../models/config.js';
import { familyOf, parseModelConfig } from '../models/families.js';
import {
  loadModel,
  type Model,
  type Quantization,
  resolveWeights,
  sourceBytes,
  type WeightSource,
} from '../models/load.js';
import { RandomWeights, shapeConfig } from '../models/shapes.js';
import type { TokenTable } from '../text/token-bytes.js';
import { Checkpoint } from '../weights/checkpoint.js';
import { EngineCore, STEPS_IN_FLIGHT } from './core.js';
import { type ChosenDevice, chooseDevice } from './device-choice.js';
import type { HostConfig, HostInfo } from './messages.js';
import { planBuckets } from './plan-buckets.js';
import type { ChoiceEvent } from './sequence.js';
import type { EngineLimits, LoadProgress, LogEntry } from './types.js';

export const DEFAULT_MAX_ROWS = 16;
export const DEFAULT_MAX_QUEUE = 256;
export const DEFAULT_BLOCK_TOKENS = 16;
/** A step should not keep decoding rows waiting: a CPU computes prompts far more slowly. */
const DEFAULT_BATCH_TOKENS = { cpu: 256, webgpu: 2048 } as const;
/** Share of what weights leave of the device's memory that the cache may take, and what it may take unasked. */
const CACHE_SHARE = { cpu: 0.5, webgpu: 0.85 } as const;
const CACHE_DEFAULT_BYTES = 4 * 2 ** 30;
/** Groups of this size are what MLX quantises with by default. */
const QUANTIZE_GROUP = 64;

export interface HostCallbacks {
  readonly onEvents: (events: readonly ChoiceEvent[]) => void;
  readonly onFault: (error: KvantError) => void;
  readonly onProgress: (progress: LoadProgress) => void;
  readonly onLog: (entry: LogEntry) => void;
  readonly signal?: AbortSignal;
  /** Instead of the devices that kvant has: for tests that look on. */
  readonly makeDevice?: () => Promise<ChosenDevice>;
}

export interface LoadedHost {
  readonly core: EngineCore;
  readonly info: HostInfo;
  /** Closes the core and frees everything. */
  close(drain: boolean): Promise<void>;
}

interface OpenWeights extends AsyncDisposable {
  readonly source: WeightSource;
  readonly config: ModelConfig;
}

/** Errors: whatever checkpoint, model, device and KV sizing refuse. */
export async function loadHost(config: HostConfig, callbacks: HostCallbacks): Promise<LoadedHost> {
  checkOptions(config);
  const { signal, onProgress, onLog } = callbacks;
  await using weights = await openWeights(config);
  signal?.throwIfAborted();
  const chosen = await (callbacks.makeDevice ?? (() => chooseDevice(config)))();
  const { device } = chosen;
  const undo: (() => unknown)[] = [() => device[Symbol.asyncDispose]()];
  try {
    const kv = planCache(config, weights.config, device);
    const sizing = sizeCache(config, weights, device, kv);
    const blockTokens = config.blockTokens ?? DEFAULT_BLOCK_TOKENS;
    const quantize = quantization(config);
    const model = await loadModel(weights.source, weights.config, device, {
      ...(quantize === undefined ? {} : { quantize }),
      kvFormat: (_, index) => kv.layers[index]!,
      kvTokens: sizing.blocks * blockTokens,
      maxContext: sizing.maxContext,
      onProgress: (done, total, item) => onProgress({ phase: 'weights', done, total, unit: 'bytes', item }),
      ...(signal === undefined ? {} : { signal }),
    });
    signal?.throwIfAborted();
    const limits = engineLimits(config, device, sizing.maxContext);
    const pool = device.createKvPool({
      layers: model.kvLayers,
      blocks: sizing.blocks,
      blockTokens,
      slots: limits.maxRows,
      maxBlocksPerSlot: sizing.blocksPerSequence,
    });
    undo.push(() => pool.dispose());
    const program = await compile(model, device, pool, limits);
    undo.push(() => program.dispose());
    await prepare(program, limits, onProgress, signal);

    const info = describe(config, model, chosen, kv, sizing, limits);
    if (sizing.limitedBy !== 'nothing') onLog(poolIsSmall(sizing, limits));
    const core = new EngineCore({
      device,
      program,
      pool,
      tokenTable: config.tokenTable ?? emptyTable(),
      eosIds: info.eosIds,
      vocabSize: weights.config.vocabSize,
      limits,
      scheduler: {
        maxBatchTokens: limits.maxBatchTokens,
        blockTokens,
        prefillReserve: Math.ceil(limits.maxBatchTokens / 4),
        minChunk: Math.min(32, limits.maxBatchTokens),
      },
      onEvents: callbacks.onEvents,
      onFault: callbacks.onFault,
      ...(config.resourceDebug ? { onStep: resourceLog(device, onLog) } : {}),
    });
    const close = async (drain: boolean): Promise<void> => {
      await core.close({ drain });
      for (const free of undo.reverse()) await free();
    };
    return { core, info, close };
  } catch (error) {
    for (const free of undo.reverse()) await free();
    throw error;
  }
}

async function openWeights(config: HostConfig): Promise<OpenWeights> {
  const { weights } = config;
  if (weights.kind === 'shape') {
    const { name, vocab } = weights;
    return {
      source: new RandomWeights(),
      config: shapeConfig(name, vocab === undefined ? {} : { vocab }),
      [Symbol.asyncDispose]: async () => {},
    };
  }
  const checkpoint = await Checkpoint.open(weights.path);
  try {
    return {
      source: checkpoint,
      config: parseModelConfig(checkpoint.config, `${weights.path}/config.json`),
      [Symbol.asyncDispose]: () => checkpoint.close(),
    };
  } catch (error) {
    await checkpoint.close();
    throw error;
  }
}

function quantization(config: HostConfig): Quantization | undefined {
  return config.quantize === undefined ? undefined : { bits: config.quantize, groupSize: QUANTIZE_GROUP };
}

function planCache(config: HostConfig, model: ModelConfig, device: Device): KvPlan {
  const format =
    config.kvFormat === undefined ? defaultKvFormat(device.info) : parseKvFormat(config.kvFormat);
  return planKvLayers(familyOf(model).layout(model).cache, format);
}

function sizeCache(config: HostConfig, weights: OpenWeights, device: Device, kv: KvPlan): KvSizing {
  const { kind, memoryBytes } = device.info;
  const resolved = resolveWeights(
    weights.source,
    familyOf(weights.config).layout(weights.config),
    quantization(config),
  );
  let weightBytes = 0;
  for (const { parts } of resolved.matrices) for (const part of parts) weightBytes += sourceBytes(part);
  const left = memoryBytes === undefined ? undefined : (memoryBytes - weightBytes) * CACHE_SHARE[kind];
  return sizeKvPool({
    layers: kv.layers,
    blockTokens: config.blockTokens ?? DEFAULT_BLOCK_TOKENS,
    modelContext: weights.config.maxPositions,
    maxContext: config.maxContext,
    maxRows: config.maxRows ?? DEFAULT_MAX_ROWS,
    kvMemory: config.kvMemory,
    available:
      left === undefined || kind === 'cpu'
        ? Math.min(left ?? CACHE_DEFAULT_BYTES, CACHE_DEFAULT_BYTES)
        : left,
    // WebGPU binds at most 2 GiB − 4 at once.
    ...(kind === 'webgpu' ? { maxLayerBytes: 2 ** 31 - 4 } : {}),
  });
}

function engineLimits(config: HostConfig, device: Device, maxContext: number): EngineLimits {
  return {
    maxContext,
    maxRows: config.maxRows ?? DEFAULT_MAX_ROWS,
    maxBatchTokens: config.maxBatchTokens ?? DEFAULT_BATCH_TOKENS[device.info.kind],
    maxQueue: config.maxQueue ?? DEFAULT_MAX_QUEUE,
  };
}

function compile(model: Model, device: Device, pool: KvPool, limits: EngineLimits): Promise<Program> {
  return device.compile(
    model.buildGraph().graph,
    {
      maxTokens: limits.maxBatchTokens,
      maxOutputs: limits.maxRows,
      maxSequences: limits.maxRows,
      maxContext: limits.maxContext,
      inFlight: STEPS_IN_FLIGHT,
    },
    pool,
  );
}

/** Makes the Plans that steps will need, so that none is made while rows wait. */
async function prepare(
  program: Program,
  limits: EngineLimits,
  onProgress: (progress: LoadProgress) => void,
  signal: AbortSignal | undefined,
): Promise<void> {
  const buckets = planBuckets(limits.maxBatchTokens, limits.maxRows);
  for (const [done, { tokens, outputs }] of buckets.entries()) {
    signal?.throwIfAborted();
    onProgress({ phase: 'compile', done, total: buckets.length, unit: 'plans' });
    await program.prepare(tokens, outputs);
  }
  onProgress({ phase: 'compile', done: buckets.length, total: buckets.length, unit: 'plans' });
}

function describe(
  config: HostConfig,
  model: Model,
  chosen: ChosenDevice,
  kv: KvPlan,
  sizing: KvSizing,
  limits: EngineLimits,
): HostInfo {
  const { architecture, layers, hiddenSize, vocabSize, maxPositions, eosTokenIds } = model.config;
  return {
    architecture,
    layers,
    hiddenSize,
    vocabSize,
    modelContext: maxPositions,
    weightBytes: model.parameterBytes,
    eosIds: config.eosIds ?? eosTokenIds,
    device: chosen.device.info,
    deviceReason: chosen.reason,
    kv: {
      layers: kv.info,
      blockTokens: config.blockTokens ?? DEFAULT_BLOCK_TOKENS,
      blocks: sizing.blocks,
      bytes: sizing.bytes,
      bytesPerToken: kvBlockBytes(kv.layers, 1),
    },
    limits,
  };
}

function poolIsSmall(sizing: KvSizing, limits: EngineLimits): LogEntry {
  return {
    level: 'info',
    message: 'the KV cache holds fewer tokens than all rows could use; rows may wait for blocks',
    fields: { blocks: sizing.blocks, bytes: sizing.bytes, limitedBy: sizing.limitedBy, ...limits },
  };
}

function resourceLog(device: Device, onLog: (entry: LogEntry) => void): (step: number, rows: number) => void {
  return (step, rows) => {
    const { buffers, bytes, plans } = device.stats();
    onLog({ level: 'info', message: 'resources', fields: { step, rows, buffers, bytes, plans } });
  };
}

/** For weights without a tokenizer: every id is empty. */
function emptyTable(): TokenTable {
  return {
    data: new Uint8Array(0),
    offsets: new Uint32Array(1),
    flags: new Uint8Array(0),
    size: 0,
    leadingCount: 0,
    leadingByte: 0,
  };
}

const WHOLE_NUMBERS = ['threads', 'kvMemory', 'maxContext', 'maxRows', 'maxBatchTokens'] as const;

function checkOptions(config: HostConfig): void {
  for (const name of WHOLE_NUMBERS) {
    const value = config[name];
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= 1))
      throw invalidOption(name, value, 'a whole number above 0');
  }
  const { maxQueue, blockTokens, quantize } = config;
  if (maxQueue !== undefined && !(Number.isSafeInteger(maxQueue) && maxQueue >= 0))
    throw invalidOption('maxQueue', maxQueue, 'a whole number');
  if (blockTokens !== undefined && ![16, 32, 64].includes(blockTokens))
    throw invalidOption('blockTokens', blockTokens, '16, 32 or 64');
  if (quantize !== undefined && quantize !== 4 && quantize !== 8)
    throw invalidOption('quantize', quantize, '4 or 8');
}

function invalidOption(name: string, value: unknown, takes: string): KvantError {
  return new KvantError('invalid-option', `\`${name}\` is ${String(value)}; it takes ${takes}.`, {
    kind: 'invalid-request',
    where: name,
    fix: `Give ${takes}, or leave it out.`,
  });
}
