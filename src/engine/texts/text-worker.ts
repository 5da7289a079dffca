/** The script of a thread that works on texts: one task at a time. */

import { readlinkSync } from 'node:fs';
import { setPriority } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import { type SerializedError, serializeError } from '../../errors.js';
import { asKvantError } from '../core-errors.js';
import { ModelText } from '../model-text.js';
import { notPlain } from '../not-plain.js';
import { type TextTask, type ToTextWorker, Watch, type WorkerSetup } from './text-task.js';

export type FromTextWorker =
  /** The model's text side is there and the task begins. `thread`: the system's number of the thread, null where it has none. */
  | { readonly type: 'begun'; readonly thread: number | null }
  | { readonly type: 'done'; readonly value: unknown }
  | { readonly type: 'failed'; readonly error: SerializedError };

/** On Linux a thread has a priority of its own; elsewhere it would be the process's. */
const NICE = 10;

const port = parentPort;
if (port === null) throw new Error('text-worker.js runs as a worker thread only');
const { origin, polite, control } = workerData as WorkerSetup;
const watch = new Watch(new Int32Array(control));
const thread = threadNumber();
if (polite && process.platform === 'linux') {
  try {
    setPriority(0, NICE);
  } catch {
    // It then takes its time like any other thread.
  }
}
let text: Promise<ModelText> | null = null;

port.on('message', async ({ module, task, argument }: ToTextWorker) => {
  const post = (message: FromTextWorker, transfer: readonly ArrayBuffer[] = []): void =>
    port.postMessage(message, transfer);
  try {
    text ??= ModelText.forTasks(origin);
    // Tried again where it failed.
    text.catch(() => {
      text = null;
    });
    const [loaded, functions] = await Promise.all([
      text,
      import(/* webpackIgnore: true */ /* @vite-ignore */ module) as Promise<
        Record<string, TextTask<unknown, unknown>>
      >,
    ]);
    post({ type: 'begun', thread });
    watch.check();
    const { value, transfer } = functions[task]!(loaded, argument, watch);
    try {
      post({ type: 'done', value }, transfer);
    } catch (error) {
      throw notPlain(error);
    }
  } catch (error) {
    post({ type: 'failed', error: serializeError(asKvantError(error)) });
  }
});
// The task itself was lost on the way: too deep to be copied, for one.
port.on('messageerror', (error) =>
  port.postMessage({ type: 'failed', error: serializeError(notPlain(error)) } satisfies FromTextWorker),
);

function threadNumber(): number | null {
  try {
    return Number(/\d+$/.exec(readlinkSync('/proc/thread-self'))?.[0] ?? Number.NaN);
  } catch {
    return null;
  }
}
