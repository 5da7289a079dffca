/** Loads an engine for a command: progress on stderr, Ctrl-C abandons it. */

import { existsSync } from 'node:fs';
import { Engine, type ShapeOptions } from '../engine/engine.js';
import { modelName } from '../engine/model-name.js';
import type {
  EngineInfo,
  EngineOptions,
  KvGroupInfo,
  KvLayerInfo,
  LoadPhase,
  LoadProgress,
  LogEntry,
} from '../engine/types.js';
import { untilInterrupted } from './interrupt.js';
import { layersNamed } from './layer-names.js';
import type { LoadLog } from './log.js';
import { formatBytes, ProgressBar } from './progress.js';

const LABELS: Readonly<Record<LoadPhase, string>> = {
  download: 'Fetching',
  text: 'Tokenizer',
  weights: 'Loading',
  tune: 'Tuning',
  compile: 'Preparing',
};

/** `before`: what is refused of the model's configuration alone. */
export function loadEngine(
  model: string,
  options: EngineOptions,
  log?: LoadLog,
  before: (options: EngineOptions) => Promise<void> = async () => {},
): Promise<Engine> {
  return loading(model, options, log, async (all) => {
    await before(all);
    return await Engine.load(model, all);
  });
}

/** Made-up weights in the sizes of a known model. */
export function loadShape(name: string, options: ShapeOptions, log?: LoadLog): Promise<Engine> {
  return loading(name, options, log, (all) => Engine.loadShape(name, all));
}

const LOG_EVERY_MS = 5000;

async function loading<T extends EngineOptions>(
  model: string,
  options: T,
  log: LoadLog | undefined,
  load: (options: T) => Promise<Engine>,
): Promise<Engine> {
  const bar = new ProgressBar();
  // Where the model lies is nobody's business who reads the log.
  const name = existsSync(model) ? modelName(model, model) : model;
  // A log that is not read by a person is JSON lines: the progress is told in such, now and then.
  const told = log?.isLevelEnabled('info') === true && !process.stderr.isTTY;
  let toldAt = performance.now();
  const tell = ({ phase, done, total, unit, item }: LoadProgress): void => {
    if (performance.now() - toldAt < LOG_EVERY_MS) return;
    toldAt = performance.now();
    log?.info({ model: name, phase, done, total, unit, item }, 'loading');
  };
  log?.info({ model: name }, 'loading model');
  try {
    const engine = await untilInterrupted((signal) =>
      load({
        ...options,
        signal,
        ...(log === undefined ? {} : { onLog: engineLog(log, bar) }),
        onProgress: (p) => (told ? tell(p) : bar.update({ ...p, label: LABELS[p.phase] })),
      }),
    );
    bar.done();
    log?.info(loaded(engine.info), 'model loaded');
    return engine;
  } finally {
    bar.done();
  }
}

/** What is in force, whatever was asked for. */
function loaded(info: EngineInfo): object {
  return {
    model: info.name,
    architecture: info.model.architecture,
    weightBytes: info.model.weightBytes,
    device: info.device.name,
    deviceReason: info.deviceReason,
    tuning: info.tuning,
    kv: info.kv.layers.map(layerFormat),
    ...kvReasons(info.kv.layers),
    kvBlocks: info.kv.blocks,
    kvGroups: info.kv.groups.map(groupLine),
    kvBytes: info.kv.bytes,
    memory: info.memory,
    ms: Math.round(info.loadMs),
  };
}

/** `f16`, `turbo3/turbo4`, or `f32 state`. */
function layerFormat({ kind, key, value }: KvLayerInfo): string {
  if (kind === 'recurrent') return `${key} state`;
  return key === value ? key : `${key}/${value}`;
}

/** Why layers have another format than was asked for: `{"it is the last full layer": "layer 59"}`. */
function kvReasons(layers: readonly KvLayerInfo[]): { readonly kvReasons?: Record<string, string> } {
  const by = new Map<string, number[]>();
  for (const { layer, reason } of layers)
    if (reason !== undefined) by.set(reason, [...(by.get(reason) ?? []), layer]);
  if (by.size === 0) return {};
  return { kvReasons: Object.fromEntries([...by].map(([reason, own]) => [reason, layersNamed(own)])) };
}

/** `3 layers, full: 512 blocks of 24 B a token`, or `2 layers, recurrent: 12 states of 30.0 KiB`. */
export function groupLine({ layers, window, head, blocks, bytesPerToken, stateBytes }: KvGroupInfo): string {
  const count = `${layers.length} ${layers.length === 1 ? 'layer' : 'layers'}`;
  if (stateBytes > 0) return `${count}, recurrent: ${blocks} states of ${formatBytes(stateBytes)}`;
  const kind =
    head !== undefined ? `first ${head} tokens` : window === null ? 'full' : `sliding window ${window}`;
  return `${count}, ${kind}: ${blocks} blocks, ${bytesPerToken} B a token`;
}

/** Passes the engine's log entries on, each on a line of its own. */
function engineLog(log: LoadLog, bar: ProgressBar): (entry: LogEntry) => void {
  return ({ level, message, fields }) => {
    bar.clear();
    log[level](fields, message);
  };
}
