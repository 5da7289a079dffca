/**
 * The engine's thread, started before there is anything for it to do: its modules load while the caller still looks for
 * the model and loads modules of its own.
 */

import type { Worker } from 'node:worker_threads';
import { threadFlags, workerUrl } from '../worker-url.js';

let early: Promise<Worker> | null = null;

/** How a thread ended. */
export interface ThreadEnd {
  readonly what: string;
  readonly cause?: unknown;
}

/** Of threads that ended before anybody listened to them: a model may be fetched for minutes in between. */
const ends = new WeakMap<Worker, ThreadEnd>();

/** How a thread of `takeThread` has ended; null while it runs. */
export function endOf(worker: Worker): ThreadEnd | null {
  return ends.get(worker) ?? null;
}

/** For commands that are about to load an engine: the next one finds its thread running. It keeps no process alive. */
export function startThreadEarly(): void {
  if (early !== null) return;
  const started = (async () => start(engineScript()))();
  early = started;
  const forget = (): void => {
    if (early === started) early = null;
  };
  started.then((worker) => {
    worker.unref();
    // The engine that would have taken it starts another, and says what is wrong with that.
    worker.once('error', forget);
    worker.once('exit', forget);
  }, forget);
}

/**
 * A thread for one engine, which ends it. `script` is run in place of the engine's own.
 * Throws at once, before a model is fetched: `bundled`, `package-incomplete`.
 */
export function takeThread(script?: URL): Promise<Worker> {
  if (script !== undefined) return start(script);
  const waiting = early;
  early = null;
  if (waiting === null) return start(engineScript());
  return waiting.then((worker) => {
    worker.ref();
    return worker;
  });
}

function engineScript(): URL {
  return workerUrl('./worker.js', import.meta.url);
}

async function start(script: URL): Promise<Worker> {
  const { Worker } = await import('node:worker_threads');
  const worker = new Worker(script, threadFlags());
  worker.on('error', (cause) =>
    ends.set(worker, { what: cause instanceof Error ? cause.message : String(cause), cause }),
  );
  worker.on('exit', (code) => {
    if (!ends.has(worker)) ends.set(worker, { what: `exit code ${code}` });
  });
  return worker;
}
