/** Loading on the engine's thread: device, weights, KV pool, program, core, in this order, undone if one fails. */

import type { Device, ProgramLimits } from '../device/device.js';
import type { Graph, RowKind } from '../device/graph.js';
import type { KvCaches } from '../device/kv.js';
import { KvantError } from '../errors.js';
import { placesOf } from '../kv/groups.js';
import { defaultKvFormat } from '../kv/policy.js';
import type { KvCacheSizing } from '../kv/sizing.js';
import type { ModelFacts } from '../models/facts.js';
import { withoutHead } from '../models/family.js';
import { checkHostExperts, hostMatrices } from '../models/host-experts.js';
import { loadModel } from '../models/load.js';
import { type OpenModel, openModel } from '../models/open.js';
import {
  type Quantization,
  type ResolvedWeights,
  resolveWeights,
  sourceBytes,
} from '../models/resolve-weights.js';
import type { Notice } from '../notice.js';
import type { TokenTable } from '../text/token-bytes.js';
import { autotune } from './autotune.js';
import { EngineCore } from './core.js';
import { type ChosenDevice, chooseDevice } from './device-choice.js';
import { encoderConfig } from './embedding/encoder-config.js';
import { Grammars } from './grammars.js';
import { contextRaise, floatsBeside, openCache, planCache, sizeCache } from './host-cache.js';
import { describeHost, memoryTaken } from './host-description.js';
import { DEFAULT_BLOCK_TOKENS, schedulerConfig } from './host-options.js';
import { loadKeyCentres, namedCalibration } from './key-centres.js';
import { betterFormats, settleKvPlan } from './kv-plan.js';
import { memoryWarning } from './memory-use.js';
import type { HostConfig, HostInfo, HostText } from './messages.js';
import { planBuckets } from './plan-buckets.js';
import { openPrefixes } from './prefix/prefix-options.js';
import { preparePlans } from './prepare-plans.js';
import type { ChoiceEvent } from './sequence.js';
import { checkGivenTokenizer } from './tokenizer-check.js';
import type { EngineLimits, LoadProgress, LogEntry, TuningInfo } from './types.js';
import { VisionEncoder } from './vision/encoder.js';
import { axesOf, featureSlab } from './vision/feature-room.js';
import { FeatureStore } from './vision/feature-store.js';
import { roomForPicture, withoutCutPictures, withRoomForPictures } from './vision/whole-pictures.js';

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
  readonly grammars: Grammars;
  readonly info: HostInfo;
  /** Closes the core and frees everything. Once more without `drain`: ends what the first still waits for. */
  close(drain: boolean): Promise<void>;
}

/**
 * Weights are loaded while the text side is still on its way. Errors: whatever checkpoint, model, device and KV sizing
 * refuse, and what `text` rejects with.
 */
export async function loadHost(
  given: HostConfig,
  text: Promise<HostText>,
  callbacks: HostCallbacks,
): Promise<LoadedHost> {
  const { signal, onProgress, onLog } = callbacks;
  // Both at once; whatever is wrong with the weights is told first.
  const opening = (callbacks.makeDevice ?? (() => chooseDevice(given)))();
  const opened = await openBoth(openWeights(given), opening);
  await using weights = opened.weights;
  const { chosen } = opened;
  const { device } = chosen;
  const undo: (() => unknown)[] = [() => device[Symbol.asyncDispose]()];
  try {
    signal?.throwIfAborted();
    const results = resultsOf(given, weights.definition.facts, lacksHead(weights));
    const read = results.head ? weights.definition : withoutHead(weights.definition);
    const float = defaultKvFormat(device.info);
    const source = { calibration: given.kvCalibration, layers: read.facts.cache, float, onLog };
    const settled = { ...given, kv: await settleKvPlan(given.kv, source) };
    const planning = read.facts.encoder ? encoderConfig(settled, read.facts, device.info.kind) : settled;
    const kv = planCache(planning, read.facts.cache, device.info, read.facts.maxPositions);
    const definition = withoutCutPictures(read, kv.floatStart !== null, onLog);
    const config = withRoomForPictures(planning, definition, device.info.kind, onLog);
    const { facts, layout } = definition;
    // A file that does not fit is refused before weights are read.
    checkHostExperts(device.info, config.cpuExperts ?? 0);
    const hosted = hostMatrices(layout, facts, config.cpuExperts ?? 0);
    const named = await namedCalibration(config, kv.layers, device, onLog);
    const quantize = quantization(config);
    const resolved = resolveWeights(weights.source, layout, quantize);
    tellNotices(weights.notices, resolved.left, onLog);
    const bytes = weightBytes(resolved, hosted);
    const planned = sizeCache(config, kv, device.info, facts, bytes);
    const blockTokens = config.blockTokens ?? DEFAULT_BLOCK_TOKENS;
    const places = placesOf(kv.groups);
    const model = await loadModel(weights.source, definition, device, {
      ...(quantize === undefined ? {} : { quantize }),
      cpuExperts: config.cpuExperts ?? 0,
      kvFormat: (_, index) => kv.layers[index]!,
      kvTokens: (layer) => {
        const { group } = places[layer]!;
        return planned.blocks[group]! * (kv.groups[group]!.state ? 1 : blockTokens);
      },
      kvFloats: floatsBeside(kv, planned, blockTokens),
      maxContext: planned.maxContext,
      rotary: definition.vision !== null,
      onProgress: (done, total, item) => onProgress({ phase: 'weights', done, total, unit: 'bytes', item }),
      ...(signal === undefined ? {} : { signal }),
    });
    signal?.throwIfAborted();
    let tuning: TuningInfo | null = null;
    const tuneFor = async (graph: Graph, most: ProgramLimits, caches: KvCaches): Promise<void> => {
      tuning = await autotune(config, device, graph, most, caches, { onProgress, onLog, signal });
    };
    const calibration =
      named === 'auto'
        ? await (await import('./auto-calibration.js')).autoCalibration(config, model, device, onLog, signal)
        : named;
    const better = betterFormats(kv, facts.cache, calibration ?? {}, float);
    if (better !== undefined) onLog(better);
    const centres = calibration === null ? [] : await loadKeyCentres(model, device, kv, calibration);
    const slab = featureSlab(model, device, planned.maxContext, config.imageCacheBytes);
    if (slab !== null) undo.push(() => slab.dispose());
    const opened = await openCache(config, model, device, kv, planned, tuneFor, centres, slab, results);
    const { sizing, limits, caches, program } = opened;
    undo.push(() => {
      for (const pool of caches.pools) pool.dispose();
    });
    undo.push(() => program.dispose());
    const encoder = slab === null ? null : new VisionEncoder(device, model);
    if (encoder !== null) undo.push(() => encoder.dispose());
    const plans = planBuckets(limits.maxBatchTokens, limits.maxRows).map(
      ({ tokens, outputs }) =>
        () =>
          program.prepare(tokens, outputs),
    );
    if (encoder !== null && slab !== null) plans.push(...(await encoder.plansFor(slab.rows)));
    await preparePlans(plans, onProgress, signal);

    const { tokenTable, eosIds } = await text;
    if (config.weights.kind === 'folder')
      checkGivenTokenizer(config.weights, tokenTable?.size ?? 0, facts.vocabSize);
    const raise = contextRaise(config, kv, device.info, facts, bytes, planned, sizing);
    const info = {
      ...describeHost(config, eosIds, model, chosen, kv, sizing, limits, tuning, calibration?.digest ?? null),
      memory: memoryTaken(model, device, kv, sizing, blockTokens),
      contextRaise: raise,
      hidden: results.hidden,
      pooling: given.embedding?.pooling ?? null,
      writes: results.head,
    };
    const tight = memoryWarning(info.memory, isQuantized(resolved));
    if (tight !== null) onLog(tight);
    if (sizing.limitedBy !== 'nothing') onLog(poolIsSmall(sizing, limits));
    const prefixes = config.prefixCache
      ? await openPrefixes(config, model.facts, device, kv, caches, calibration?.digest ?? null, onLog)
      : null;
    const table = tokenTable ?? emptyTable();
    const grammars = new Grammars(table, info.eosIds, model.facts.vocabSize);
    const scheduler = schedulerConfig(
      limits,
      device.info.kind,
      blockTokens,
      kv.floatStart?.start ?? 0,
      kv.groups,
    );
    const core = new EngineCore({
      device,
      program,
      caches,
      tokenTable: table,
      eosIds: info.eosIds,
      vocabSize: facts.vocabSize,
      limits,
      contextRaise: raise,
      scheduler,
      prefixes,
      hidden: results.hidden,
      whole: facts.encoder,
      vision:
        slab === null || encoder === null
          ? null
          : {
              features: new FeatureStore(slab, encoder),
              mergeSize: axesOf(model),
              ahead: roomForPicture(model, scheduler),
            },
      onEvents: callbacks.onEvents,
      onFault: callbacks.onFault,
      ...(config.resourceDebug ? { onStep: resourceLog(device, onLog) } : {}),
    });
    let closing: Promise<void> | null = null;
    const close = (drain: boolean): Promise<void> => {
      const ended = core.close({ drain });
      // Closed again: only what the first close still waits for may end sooner.
      if (closing !== null) ended.catch(() => {});
      closing ??= ended.finally(() => freeAll(undo));
      return closing;
    };
    return { core, grammars, info, close };
  } catch (error) {
    await freeAll(undo).catch(() => {});
    throw error;
  }
}

/** What steps bring: hidden states of last tokens or of all, and tokens where there is a head. */
function resultsOf(
  { embedding }: HostConfig,
  { encoder }: ModelFacts,
  bare: boolean,
): { readonly hidden: RowKind | null; readonly head: boolean } {
  if (encoder) return { hidden: 'tokens', head: false };
  if (embedding === null) return { hidden: null, head: true };
  return { hidden: embedding.pooling === 'last' ? 'outputs' : 'tokens', head: embedding.writes && !bare };
}

/** A model saved without what it was trained to write with (`Qwen3Model`): it makes embeddings alone. */
function lacksHead({ definition, source }: OpenModel): boolean {
  const { facts, layout } = definition;
  const heads = layout.matrices.filter(({ kind }) => kind === 'head');
  return (
    /Model$/.test(facts.architecture) &&
    heads.some(({ parts }) => parts.every(({ name }) => !source.has(name)))
  );
}

async function openBoth(
  openingWeights: Promise<OpenModel>,
  openingDevice: Promise<ChosenDevice>,
): Promise<{ readonly weights: OpenModel; readonly chosen: ChosenDevice }> {
  const [weights, chosen] = await Promise.allSettled([openingWeights, openingDevice]);
  if (weights.status === 'fulfilled' && chosen.status === 'fulfilled')
    return { weights: weights.value, chosen: chosen.value };
  if (chosen.status === 'fulfilled')
    await chosen.value.device[Symbol.asyncDispose]().then(
      () => {},
      // What is wrong with the weights is told first.
      () => {},
    );
  if (weights.status === 'rejected') throw weights.reason;
  await weights.value[Symbol.asyncDispose]();
  throw (chosen as PromiseRejectedResult).reason;
}

/** The last first. What cannot be freed does not keep the rest; the first error is thrown in the end. */
async function freeAll(undo: (() => unknown)[]): Promise<void> {
  const errors: unknown[] = [];
  for (const free of undo.splice(0).reverse()) {
    try {
      await free();
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors[0];
}

export async function openWeights(config: HostConfig): Promise<OpenModel> {
  const { weights } = config;
  if (weights.kind === 'shape') {
    if (config.hfOverrides !== undefined)
      throw new KvantError('invalid-option', 'hfOverrides needs a model with a config.json.', {
        kind: 'invalid-request',
        where: 'hfOverrides',
        fix: 'Leave it out.',
      });
    const { name, vocab } = weights;
    const { RandomWeights, shapeModel } = await import('../models/shapes.js');
    return {
      source: new RandomWeights(),
      definition: shapeModel(name, vocab === undefined ? {} : { vocab }),
      notices: [],
      [Symbol.asyncDispose]: async () => {},
    };
  }
  return await openModel(weights.path, config.hfOverrides, weights.mmproj);
}

export function quantization(config: HostConfig): Quantization | undefined {
  return config.quantize === undefined ? undefined : { bits: config.quantize, groupSize: QUANTIZE_GROUP };
}

/** Names shown of those that are left. */
const SHOWN_NAMES = 5;

/** What is odd about the model and was read all the same. */
function tellNotices(
  notices: readonly Notice[],
  left: readonly string[],
  onLog: (entry: LogEntry) => void,
): void {
  for (const notice of notices) onLog({ level: 'warn', ...notice });
  if (left.length === 0) return;
  const message = 'the checkpoint holds tensors that the model has no use for; they are left out';
  onLog({ level: 'warn', message, fields: { count: left.length, tensors: left.slice(0, SHOWN_NAMES) } });
}

/** On the device: but for those that stay in host memory. */
function weightBytes({ matrices }: ResolvedWeights, hosted: ReadonlySet<string>): number {
  let bytes = 0;
  for (const { spec, parts } of matrices)
    if (!hosted.has(spec.key)) for (const part of parts) bytes += sourceBytes(part);
  return bytes;
}

function isQuantized({ matrices }: ResolvedWeights): boolean {
  return matrices.some(({ parts }) => parts.some(({ format }) => format.kind !== 'float'));
}

function poolIsSmall(sizing: KvCacheSizing, limits: EngineLimits): LogEntry {
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
