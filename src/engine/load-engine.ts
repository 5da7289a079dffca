/**
 * What loads an engine: options are checked, the model is located, its text is loaded here while the engine's thread loads
 * weights and device, and what was loaded is described.
 */

import type { Worker } from 'node:worker_threads';
import { type ArgumentKind, checkArgument, checkOption, FLAG, TEXT } from '../arguments.js';
import { KvantError } from '../errors.js';
import { checkSampling } from '../sampling/params.js';
import type { ContextRaise } from './core-errors.js';
import { readRankingHead } from './embedding/ranking-head.js';
import { type EmbeddingSettings, readEmbeddingSettings } from './embedding/settings.js';
import type { RankingHead } from './embedding/vectors.js';
import { EngineClient } from './engine-client.js';
import type { EngineInternals } from './engine-internals.js';
import { hostConfig } from './host-config.js';
import { checkOptions } from './host-options.js';
import type { EmbeddingPlan, HostInfo, WeightOrigin } from './messages.js';
import type { ShapeOptions } from './method-options.js';
import { locatePlace } from './model-location.js';
import { modelName } from './model-name.js';
import type { ModelText } from './model-text.js';
import { SHAPE_OPTIONS } from './option-lists.js';
import { POOLINGS } from './pooling.js';
import type { TextPlace } from './texts/text-origin.js';
import { takeThread } from './thread.js';
import type { EmbeddingInfo, EngineInfo, EngineOptions } from './types.js';
import { openVision, type Vision } from './vision/open-vision.js';
import { checkLocalMedia } from './vision/picture-access.js';
import { epochNow } from './yield.js';

const MODEL: ArgumentKind = {
  ...TEXT,
  takes: 'the name of a model: a folder, a *.gguf file or a hub id such as "Qwen/Qwen3-0.6B"',
};
const SHAPE: ArgumentKind = { ...TEXT, takes: 'the name of a shape' };
const ROWS: ArgumentKind = {
  takes: 'a whole number above 0',
  accepts: (value) => Number.isSafeInteger(value) && (value as number) > 0,
};

/** What an engine is made of. */
export interface LoadedEngine {
  readonly client: EngineClient;
  readonly text: ModelText;
  readonly info: EngineInfo;
  readonly contextRaise: ContextRaise;
  /** Null for a model that reads text only. */
  readonly vision: Vision | null;
  /** What the checkpoint says of embeddings; null for nothing. */
  readonly embedding: EmbeddingSettings | null;
  /** What it ranks by; null for a model that has no such head. */
  readonly ranking: RankingHead | null;
}

/** What a checkpoint says that it is made for, besides writing. */
interface Purpose {
  readonly embedding: EmbeddingSettings | null;
  readonly ranking: RankingHead | null;
}

/** See `Engine.load`. */
export async function loadEngine(
  model: string,
  options: EngineOptions,
  internals: EngineInternals,
): Promise<LoadedEngine> {
  checkArgument('model', model, MODEL);
  checkOptions(options);
  const { signal, onProgress } = options;
  signal?.throwIfAborted();
  const thread = threadFor(options, internals);
  try {
    await checkFolders(options);
    await checkToolFormat(options);
    const place = await locatePlace(model, options);
    onProgress?.({ phase: 'text', done: 0, total: 1, unit: 'steps' });
    const text = (): Promise<ModelText> => loadText(place, options);
    const name = modelName(model, place.path);
    const ranking = await readRankingHead(place.path);
    const embedding = ranking === null ? await readEmbeddingSettings(place.path) : null;
    const purpose = { embedding, ranking };
    return await start(name, { kind: 'folder', ...place }, text, thread, options, internals, purpose);
  } catch (error) {
    await thread?.then(
      (worker) => worker.terminate(),
      () => {},
    );
    throw error;
  }
}

/** See `Engine.loadShape`. */
export async function loadShape(
  name: string,
  options: ShapeOptions,
  internals: EngineInternals,
): Promise<LoadedEngine> {
  checkArgument('name', name, SHAPE);
  checkOptions(options, SHAPE_OPTIONS, 'Engine.loadShape');
  if (options.tokenizer !== undefined) throw noTokenizerForShapes();
  await checkFolders(options);
  const { vocab, standInText = false } = options;
  checkOption('vocab', vocab, ROWS);
  checkOption('standInText', standInText, FLAG);
  const weights = { kind: 'shape', name, ...(vocab === undefined ? {} : { vocab }) } as const;
  const text = (): Promise<ModelText> => shapeText(name, vocab, standInText);
  return start(name, weights, text, threadFor(options, internals), options, internals);
}

async function start(
  name: string,
  weights: WeightOrigin,
  loadText: () => Promise<ModelText>,
  thread: Promise<Worker> | null,
  options: EngineOptions,
  internals: EngineInternals,
  { embedding, ranking }: Purpose = { embedding: null, ranking: null },
): Promise<LoadedEngine> {
  const startedAt = epochNow();
  const config = hostConfig(weights, options, embeddingPlan(options, embedding));
  const worker = await thread;
  const { client, info, text } = await EngineClient.start(config, loadText, worker, options, internals);
  const described = describe(name, weights, text, options, info, embedding, epochNow() - startedAt);
  const vision = await openVision(weights, info, options, text);
  return { client, text, info: described, contextRaise: info.contextRaise, vision, embedding, ranking };
}

/** A model that is made for embeddings has no use for a head; another makes them where it is asked to. */
function embeddingPlan({ pooling }: EngineOptions, settings: EmbeddingSettings | null): EmbeddingPlan | null {
  if (settings !== null)
    return { pooling: pooling ?? settings.pooling, writes: false, maxTokens: settings.maxTokens };
  return pooling === undefined ? null : { pooling, writes: true, maxTokens: null };
}

/** Enough to have the template for tools chosen. */
const ANY_TOOLS = [{}];

function noTokenizerForShapes(): KvantError {
  return new KvantError('invalid-option', 'Made-up weights take no tokenizer.', {
    kind: 'invalid-request',
    where: 'tokenizer',
    fix: 'Leave it out; `standInText` makes one up.',
  });
}

async function shapeText(name: string, vocab: number | undefined, standIn: boolean): Promise<ModelText> {
  const { ModelText } = await import('./model-text.js');
  if (!standIn) return ModelText.none();
  const { shapeModel } = await import('../models/shapes.js');
  return ModelText.standIn(shapeModel(name, vocab === undefined ? {} : { vocab }).facts.vocabSize);
}

/** Folders are found fit for their use before anything is fetched or loaded. Errors: `prefix-cache-dir-unusable`, `invalid-option`. */
async function checkFolders({ prefixCacheDir, allowedLocalMediaPath }: EngineOptions): Promise<void> {
  if (allowedLocalMediaPath !== undefined) await checkLocalMedia(allowedLocalMediaPath);
  if (prefixCacheDir === undefined) return;
  const { checkDiskFolder } = await import('../kv/disk/disk-folder.js');
  await checkDiskFolder(prefixCacheDir);
}

/** Errors: `invalid-option`, before anything is fetched. */
async function checkToolFormat({ toolFormat }: EngineOptions): Promise<void> {
  if (toolFormat === undefined) return;
  const { toolFormatNamed } = await import('../text/formats/formats.js');
  toolFormatNamed(toolFormat);
}

/** The thread starts while the model is looked for; null where none is wanted. */
function threadFor(
  { worker, sampling }: EngineOptions,
  { workerScript }: EngineInternals,
): Promise<Worker> | null {
  if (sampling !== undefined) checkSampling(sampling);
  if (worker === false) return null;
  const thread = takeThread(workerScript);
  thread.catch(() => {});
  return thread;
}

async function loadText(
  place: TextPlace,
  { onProgress, onLog, toolFormat }: EngineOptions,
): Promise<ModelText> {
  // Loaded when the thread has its work: tokenizer and templates come with many modules.
  const { ModelText } = await import('./model-text.js');
  const text = await ModelText.load(place, toolFormat);
  const { ignored, notices } = text;
  for (const notice of notices) onLog?.({ level: 'warn', ...notice });
  if (ignored.length > 0)
    onLog?.({ level: 'info', message: 'generation_config keys left out', fields: { keys: ignored } });
  onProgress?.({ phase: 'text', done: 1, total: 1, unit: 'steps' });
  return text;
}

function embeddingInfo(
  { hidden, pooling, hiddenSize, limits }: HostInfo,
  settings: EmbeddingSettings | null,
): EmbeddingInfo | null {
  if (hidden === null) return null;
  return {
    size: settings?.dense.at(-1)?.rows ?? hiddenSize,
    pooling,
    poolings: hidden === 'tokens' ? POOLINGS : ['last'],
    maxTokens: Math.min(settings?.maxTokens ?? Number.POSITIVE_INFINITY, limits.maxContext),
    tasks: Object.keys(settings?.prompts ?? {}),
    dimensions: settings?.dimensions ?? null,
  };
}

function describe(
  name: string,
  weights: WeightOrigin,
  text: ModelText,
  options: EngineOptions,
  info: HostInfo,
  embedding: EmbeddingSettings | null,
  loadMs: number,
): EngineInfo {
  return {
    name: options.name ?? name,
    model: {
      path: weights.kind === 'folder' ? weights.path : '',
      architecture: info.architecture,
      layers: info.layers,
      hiddenSize: info.hiddenSize,
      vocabSize: info.vocabSize,
      maxContext: info.modelContext,
      weightBytes: info.weightBytes,
      writes: info.writes,
      modalities: info.vision === null ? ['text'] : ['text', 'image'],
      hasChatTemplate: text.hasChatTemplate,
      toolFormat: text.hasChatTemplate ? text.toolFormat({ tools: ANY_TOOLS }).name : null,
      eosTokenIds: info.eosIds,
    },
    embedding: embeddingInfo(info, embedding),
    device: info.device,
    deviceReason: info.deviceReason,
    tuning: info.tuning,
    kv: info.kv,
    memory: info.memory,
    limits: info.limits,
    samplingDefaults: { ...text.defaults, ...options.sampling },
    loadMs,
  };
}
