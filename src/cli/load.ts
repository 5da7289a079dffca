/** Loads an engine for a command: progress on stderr, Ctrl-C abandons it. */
import { Engine } from '../engine/engine.js';
import type { EngineOptions, LoadPhase, LogEntry } from '../engine/types.js';
import { ProgressBar } from './progress.js';

const LABELS: Readonly<Record<LoadPhase, string>> = {
  download: 'Fetching',
  text: 'Tokenizer',
  weights: 'Loading',
  compile: 'Preparing',
};

export async function loadEngine(
  model: string,
  options: EngineOptions,
  onLog?: (entry: LogEntry) => void,
): Promise<Engine> {
  const bar = new ProgressBar();
  // A log that is not read by a person is JSON lines: no progress between them, the log tells of loading.
  const drawn = onLog === undefined || process.stderr.isTTY;
  const abort = new AbortController();
  const interrupt = (): void => abort.abort();
  process.once('SIGINT', interrupt);
  try {
    return await Engine.load(model, {
      ...options,
      signal: abort.signal,
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
    });
  } finally {
    process.off('SIGINT', interrupt);
    bar.done();
  }
}
