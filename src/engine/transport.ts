/** How the caller reaches the engine's host: on a thread of its own, or on this one. */

import type { Worker } from 'node:worker_threads';
import { KvantError } from '../errors.js';
import { missingModule } from '../worker-url.js';
import type { EngineInternals } from './engine-internals.js';
import type { FromHost, ToHost } from './messages.js';
import { endOf } from './thread.js';

export interface Transport {
  /** `given`: buffers of the message that its sender does without from now on. */
  post(message: ToHost, given?: ArrayBuffer[]): void;
  /** Whether the thread keeps the process alive; at first it does. */
  hold(busy: boolean): void;
  /** Frees the thread. Only after `closed` or `failed`, or to abandon everything. */
  end(): Promise<void>;
}

export interface TransportEvents {
  readonly onMessage: (message: FromHost) => void;
  /** The thread is gone without having been asked to go. */
  readonly onCrash: (error: KvantError) => void;
}

/** On a thread that is the transport's from now on. */
export function workerTransport(
  events: TransportEvents,
  worker: Worker,
  onWorker?: EngineInternals['onWorker'],
): Transport {
  onWorker?.(worker);
  let ending = false;
  let crash: KvantError | null = null;
  const crashed = (what: string, cause?: unknown): void => {
    if (ending || crash !== null) return;
    crash =
      missingModule(cause) ??
      new KvantError('engine-crashed', `The engine's thread ended: ${what}.`, {
        kind: 'device',
        fix: 'Load the engine again; if it happens again, report it with the log.',
        ...(cause === undefined ? {} : { cause }),
      });
    events.onCrash(crash);
  };
  worker.on('message', events.onMessage);
  worker.on('error', (error) => crashed(error instanceof Error ? error.message : String(error), error));
  worker.on('exit', (code) => crashed(`exit code ${code}`));
  const over = endOf(worker);
  if (over !== null) queueMicrotask(() => crashed(over.what, over.cause));
  return {
    post: (message, given = []) => worker.postMessage(message, given),
    hold: (busy) => (busy ? worker.ref() : worker.unref()),
    end: async () => {
      ending = true;
      await worker.terminate();
    },
  };
}

/** Everything on the calling thread. Messages are delivered later, never within `post`. */
export async function inProcessTransport(
  events: TransportEvents,
  makeDevice?: EngineInternals['makeDevice'],
): Promise<Transport> {
  // Callers with a thread have no use for it here.
  const { EngineHost } = await import('./host.js');
  const host = new EngineHost((message) => queueMicrotask(() => events.onMessage(message)), makeDevice);
  return {
    post: (message) => queueMicrotask(() => host.receive(message)),
    // The device has something under way while a request has.
    hold: () => {},
    end: async () => {},
  };
}
