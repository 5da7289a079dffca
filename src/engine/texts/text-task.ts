/** What runs on a thread that works on texts: a function of a module, given the model's text side. */

import type { ModelText } from '../model-text.js';
import type { TextOrigin } from './text-origin.js';

export interface TaskResult<R> {
  readonly value: R;
  /** Buffers of the value that are handed over instead of copied. */
  readonly transfer?: readonly ArrayBuffer[];
}

/** Argument and result are plain data: they cross threads. */
export type TextTask<A, R> = (text: ModelText, argument: A, watch: Watch) => TaskResult<R>;

export const CONTROL = { GO: 0, STOP: 1 } as const;

/** Asked now and then by what takes long, whether its result is still wanted. */
export class Watch {
  readonly #control: Int32Array | null;

  /** Without a control block nobody can stop the task. */
  constructor(control: Int32Array | null = null) {
    this.#control = control;
  }

  /** Throws where it is not. */
  check(): void {
    if (this.#control !== null && Atomics.load(this.#control, 0) !== CONTROL.GO) throw new Stopped();
  }
}

/** The task was told to stop; who told it knows why. */
export class Stopped extends Error {
  override readonly name = 'Stopped';
}

export interface WorkerSetup {
  readonly origin: TextOrigin;
  /** It gives way to the threads that compute. */
  readonly polite: boolean;
  readonly control: SharedArrayBuffer;
}

export interface ToTextWorker {
  readonly module: string;
  readonly task: string;
  readonly argument: unknown;
}
