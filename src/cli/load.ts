/** Loads an engine for a command: progress on stderr, Ctrl-C abandons it. */
import { Engine } from '../engine/engine.js';
import type { EngineOptions, LoadPhase, LogEntry } from '../engine/types.js';
import { untilInterrupted } from './interrupt.js';
import { ProgressBar } from './progress.js';

const LABELS: Readonly<Record<LoadPhase, string>> = {
  download: 'Fetching',
  text: 'Tokenizer',
  weights: 'Loading',
  compile: 'Preparing',
};

export function loadEngine(
  model: string,
  options: EngineOptions,
  onLog?: (entry: LogEntry) => void,
): Promise<Engine> {
  return loading(options, onLog, (all) => Engine.load(model, all));
}

/** Made-up weights in the sizes of a known model. */
export function loadShape(
  name: string,
  options: EngineOptions & { readonly vocab?: number },
): Promise<Engine> {
  return loading(options, undefined, (all) => Engine.loadShape(name, all));
}

async function loading<T extends EngineOptions>(
  options: T,
  onLog: ((entry: LogEntry) => void) | undefined,
  load: (options: T) => Promise<Engine>,
): Promise<Engine> {
  const bar = new ProgressBar();
  // A log that is not read by a person is JSON lines: no progress between them, the log tells of loading.
  const drawn = onLog === undefined || process.stderr.isTTY;
  try {
    return await untilInterrupted((signal) =>
      load({
        ...options,
        signal,
        ...(onLog === undefined ? {} : { onLog }),
        onProgress: (p) =>
          drawn &&
          bar.update({
            label: LABELS[p.phase],
            done: p.done,
            total: p.total,
            unit: p.unit,
            ...(p.item === undefined ? {} : { item: p.item }),
          }),
      }),
    );
  } finally {
    bar.done();
  }
}
