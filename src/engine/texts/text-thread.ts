/** A thread that works on texts, as it is seen from outside: started when it is needed, stopped when its task takes too long. */

import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { deserializeError, KvantError } from '../../errors.js';
import { missingModule, threadFlags, workerUrl } from '../../worker-url.js';
import { notPlain } from '../not-plain.js';
import type { TextOrigin } from './text-origin.js';
import { CONTROL, type ToTextWorker, type WorkerSetup } from './text-task.js';
import type { FromTextWorker } from './text-worker.js';

export interface ThreadTask extends ToTextWorker {
  readonly transfer: readonly ArrayBuffer[];
  /** Milliseconds of computing time. */
  readonly budgetMs: number;
  readonly done: (value: unknown) => void;
  /** `error`: why; null where the task was told to stop. */
  readonly failed: (error: KvantError | null) => void;
}

export interface ThreadOptions {
  readonly origin: TextOrigin;
  readonly polite: boolean;
  /** Told when it can take a task again. */
  readonly onFree: () => void;
  /** Without a task for so long it ends, and its memory is free. */
  readonly idleMs: number;
  readonly heapMb: number;
}

/** What a thread has to say after it was told to stop, before it is ended: most tasks ask often, one within the engine cannot. */
const GRACE_MS = 500;
/** Until the text side of the model is there. */
const START_MS = 60_000;

export class TextThread {
  readonly #options: ThreadOptions;
  readonly #control = new Int32Array(new SharedArrayBuffer(4));
  #worker: Worker | null = null;
  #task: ThreadTask | null = null;
  /** Set while an ended thread is not gone yet: what it is at within the engine it finishes first. */
  #leaving: Promise<unknown> | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The text side is there, and the task runs. */
  #begun = false;
  /** Ends the thread, for good. */
  #closed = false;

  constructor(options: ThreadOptions) {
    this.#options = options;
  }

  get free(): boolean {
    return this.#task === null && this.#leaving === null && !this.#closed;
  }

  /** Only while it is free. */
  run(task: ThreadTask): void {
    this.#task = task;
    this.#begun = false;
    clearTimeout(this.#timer);
    Atomics.store(this.#control, 0, CONTROL.GO);
    const { module, task: name, argument, transfer } = task;
    try {
      this.#worker ??= this.#start();
      this.#worker.ref();
      this.#worker.postMessage({ module, task: name, argument } satisfies ToTextWorker, [...transfer]);
    } catch (error) {
      // Later: whoever gave the task is not done with that yet.
      queueMicrotask(() =>
        this.#settle(() => task.failed(error instanceof KvantError ? error : notPlain(error))),
      );
      return;
    }
    this.#timer = setTimeout(() => this.#kill(tooSlowToStart()), START_MS);
  }

  /** Stops what it is at: at once if it asks, else within half a second. */
  stop(error: KvantError | null = null): void {
    const task = this.#task;
    if (task === null) return;
    Atomics.store(this.#control, 0, CONTROL.STOP);
    this.#task = { ...task, done: () => task.failed(error), failed: () => task.failed(error) };
    // While it loads it goes on: the next one finds it loaded.
    if (this.#begun) this.#grace(error);
  }

  #grace(error: KvantError | null): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#kill(error), GRACE_MS);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.stop();
    this.#kill(null);
    await this.#leaving;
  }

  #start(): Worker {
    const { origin, polite, heapMb } = this.#options;
    const workerData: WorkerSetup = {
      origin,
      polite,
      control: this.#control.buffer as SharedArrayBuffer,
    };
    const worker = new Worker(workerUrl('./text-worker.js', import.meta.url), {
      ...threadFlags(),
      workerData,
      // What needs more ends the thread, not the process.
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 16 },
    });
    worker.on('message', (message: FromTextWorker) => {
      if (worker === this.#worker) this.#receive(message);
    });
    // What it said was lost on the way: nothing more comes of the task.
    worker.on('messageerror', (error) => {
      if (worker === this.#worker) this.#kill(notPlain(error));
    });
    worker.on('error', (error) => {
      if (worker === this.#worker) this.#kill(crashed(error));
    });
    worker.on('exit', () => {
      if (worker === this.#worker) this.#kill(crashed(null));
    });
    return worker;
  }

  #receive(message: FromTextWorker): void {
    const task = this.#task;
    if (task === null) return;
    switch (message.type) {
      case 'begun':
        this.#begun = true;
        if (Atomics.load(this.#control, 0) === CONTROL.GO) this.#limit(task.budgetMs, message.thread);
        else this.#grace(null);
        return;
      case 'done':
        this.#settle(() => task.done(message.value));
        return;
      case 'failed':
        this.#settle(() => task.failed(deserializeError(message.error)));
        return;
    }
  }

  /** Lets the task compute for so long, whatever else the machine does meanwhile where the system tells. */
  #limit(budgetMs: number, thread: number | null): void {
    const time = (): number => (thread === null ? null : threadMs(thread)) ?? performance.now();
    const began = time();
    const look = (): void => {
      const left = budgetMs - (time() - began);
      if (left <= 0) this.stop(tooCostly(`took more than ${budgetMs / 1000} s of computing time`));
      else this.#timer = setTimeout(look, Math.max(left, 10));
    };
    clearTimeout(this.#timer);
    this.#timer = setTimeout(look, budgetMs);
  }

  #settle(tell: () => void): void {
    this.#task = null;
    clearTimeout(this.#timer);
    this.#worker?.unref();
    if (this.#worker !== null) {
      this.#timer = setTimeout(() => this.#kill(null), this.#options.idleMs);
      this.#timer.unref();
    }
    tell();
    if (this.free) this.#options.onFree();
  }

  /** Ends the thread, and what it was at with the error. */
  #kill(error: KvantError | null): void {
    const [worker, task] = [this.#worker, this.#task];
    this.#worker = null;
    this.#task = null;
    clearTimeout(this.#timer);
    if (worker !== null) {
      const leaving = worker.terminate().finally(() => {
        if (this.#leaving !== leaving) return;
        this.#leaving = null;
        if (this.free) this.#options.onFree();
      });
      this.#leaving = leaving;
    }
    task?.failed(error);
  }
}

/** Milliseconds that a thread of this process has computed; null where the system does not say. */
function threadMs(thread: number): number | null {
  try {
    // The first number: nanoseconds that it ran.
    return Number(readFileSync(`/proc/self/task/${thread}/schedstat`, 'utf8').split(' ')[0]) / 1e6;
  } catch {
    return null;
  }
}

function tooCostly(what: string): KvantError {
  return new KvantError('prompt-too-costly', `Making tokens of the text ${what}.`, {
    kind: 'invalid-request',
    fix: 'Send less text, or break up very long words and runs of the same character.',
  });
}

function tooSlowToStart(): KvantError {
  return new KvantError('tokenizer-crashed', `The tokenizer's thread did not start within ${START_MS} ms.`, {
    fix: 'Look at what else the machine does.',
  });
}

function crashed(error: unknown): KvantError {
  if ((error as { code?: unknown } | null)?.code === 'ERR_WORKER_OUT_OF_MEMORY')
    return tooCostly('took too much memory');
  const missing = missingModule(error);
  if (missing !== null) return missing;
  const what = error instanceof Error ? error.message : String(error ?? 'it ended');
  return new KvantError('tokenizer-crashed', `The tokenizer's thread ended: ${what}.`, {
    fix: 'Send the request again; if it happens again, report it with the log.',
    cause: error,
  });
}
