/** How the caller reaches the engine's host: on a thread of its own, or on this one. */

import { KvantError } from '../errors.js';
import { workerUrl } from '../worker-url.js';
import type { EngineInternals } from './engine-internals.js';
import { EngineHost } from './host.js';
import type { FromHost, ToHost } from './messages.js';

export interface Transport {
  post(message: ToHost): void;
  /** Frees the thread. Only after `closed` or `failed`, or to abandon everything. */
  end(): Promise<void>;
}

export interface TransportEvents {
  readonly onMessage: (message: FromHost) => void;
  /** The thread is gone without having been asked to go. */
  readonly onCrash: (error: KvantError) => void;
}

export async function workerTransport(
  events: TransportEvents,
  { onWorker, workerScript }: Pick<EngineInternals, 'onWorker' | 'workerScript'> = {},
): Promise<Transport> {
  const { Worker } = await import('node:worker_threads');
  // `node --input-type=module -e …`: a thread that runs a file refuses this flag, so it inherits none.
  const evaluated = process.execArgv.some((flag) => flag.startsWith('--input-type'));
  const script = workerScript ?? workerUrl('./worker.js', import.meta.url);
  const worker = new Worker(script, evaluated ? { execArgv: [] } : {});
  onWorker?.(worker);
  let ending = false;
  let crash: KvantError | null = null;
  const crashed = (what: string, cause?: unknown): void => {
    if (ending || crash !== null) return;
    crash = new KvantError('engine-crashed', `The engine's thread ended: ${what}.`, {
      kind: 'device',
      fix: 'Load the engine again; if it happens again, report it with the log.',
      ...(cause === undefined ? {} : { cause }),
    });
    events.onCrash(crash);
  };
  worker.on('message', events.onMessage);
  worker.on('error', (error) => crashed(error instanceof Error ? error.message : String(error), error));
  worker.on('exit', (code) => crashed(`exit code ${code}`));
  return {
    post: (message) => worker.postMessage(message),
    end: async () => {
      ending = true;
      await worker.terminate();
    },
  };
}

/** Everything on the calling thread. Messages are delivered later, never within `post`. */
export function inProcessTransport(
  events: TransportEvents,
  makeDevice?: EngineInternals['makeDevice'],
): Transport {
  const host = new EngineHost((message) => queueMicrotask(() => events.onMessage(message)), makeDevice);
  return {
    post: (message) => queueMicrotask(() => host.receive(message)),
    end: async () => {},
  };
}
