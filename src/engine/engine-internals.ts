import type { Worker } from 'node:worker_threads';
import type { HostCallbacks } from './host-load.js';

/** Hooks for tests and benchmarks; no part of the public contract. */
export interface EngineInternals {
  /** Instead of kvant's own choice. Only with `worker: false`: a device cannot cross threads. */
  readonly makeDevice?: NonNullable<HostCallbacks['makeDevice']>;
  /** The script of the engine's thread instead of kvant's own: for benchmarks with a device of their own. */
  readonly workerScript?: URL;
  /** Sees the engine's thread. */
  readonly onWorker?: (worker: Worker) => void;
}
