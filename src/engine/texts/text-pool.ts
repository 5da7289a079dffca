/**
 * Threads that work on texts, for what would keep the caller's thread from everybody else: long prompts are rendered and made into
 * tokens here. Short ones have a thread of their own, so that none waits behind a long one; the other gives way to the threads that
 * compute. Both start when there is something for them and end when there was nothing for a while.
 *
 * Measured: docs/lab/2026-11-25-long-prompts.md.
 */

import { KvantError } from '../../errors.js';
import { onAbort } from '../abort.js';
import { shuttingDown } from '../core-errors.js';
import type { TextOrigin } from './text-origin.js';
import { TextQueue } from './text-queue.js';
import { TextThread } from './text-thread.js';

export interface TextJob {
  /** The built module that has the task. */
  readonly module: URL;
  /** The name that it exports the task (a TextTask) under. */
  readonly task: string;
  readonly argument: unknown;
  readonly transfer?: readonly ArrayBuffer[];
  /** Characters or bytes, as far as they are known. */
  readonly size: number;
  /** Whose it is; default that of all who do not say. */
  readonly share?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface TextPoolOptions {
  readonly origin: TextOrigin;
  /** Most characters that wait, where more than one text waits. */
  readonly maxWaiting?: number;
  /** Milliseconds without work after which a thread ends. */
  readonly idleMs?: number;
  /** Megabytes of heap of a thread. */
  readonly heapMb?: number;
  /** Milliseconds of computing time for a text of so many characters. */
  readonly budgetMs?: (size: number) => number;
}

/** Texts up to so many characters go by the thread for short ones. */
export const SHORT_TEXT = 65_536;
const MAX_WAITING = 2 ** 26;
/** Most texts that wait on one thread. */
const MAX_JOBS = 1024;
const IDLE_MS = 30_000;
/** A tokenizer of a large vocabulary twice, and what a text becomes on its way: more is no text that fits a context. */
const HEAP_MB = 1024;
/** What a text may cost: several times what the slowest kind does, for what takes longer grows faster than its length. */
const BUDGET = { MS: 2000, MS_PER_CHARACTER: 0.004 };

interface Job extends TextJob {
  readonly share: string;
  readonly resolve: (value: never) => void;
  readonly reject: (error: unknown) => void;
  readonly release: () => void;
}

export class TextPool {
  readonly #lanes: readonly Lane[];
  readonly #budgetMs: (size: number) => number;
  #closed: Promise<unknown> | null = null;

  constructor(options: TextPoolOptions) {
    const { budgetMs = (size) => BUDGET.MS + BUDGET.MS_PER_CHARACTER * size } = options;
    this.#budgetMs = budgetMs;
    this.#lanes = [new Lane(options, false), new Lane(options, true)];
  }

  /**
   * Runs a task and resolves with its value. Errors: the task's; `overloaded-texts` where too many wait; `prompt-too-costly`;
   * the signal's reason.
   */
  run<R>({ signal, share = '', ...job }: TextJob): Promise<R> {
    return new Promise<R>((resolve, reject) => {
      signal?.throwIfAborted();
      if (this.#closed !== null) throw shuttingDown();
      const lane = this.#lanes[job.size <= SHORT_TEXT ? 0 : 1]!;
      lane.admit(job.size);
      const abandon = (): void => {
        lane.abandon(entry);
        entry.reject(signal!.reason);
      };
      const release = signal === undefined ? () => {} : onAbort(signal, abandon);
      const entry: Job = { ...job, share, resolve, reject, release };
      lane.add(entry, this.#budgetMs(job.size));
    });
  }

  /** Ends all threads; what is not done is refused. */
  close(): Promise<unknown> {
    this.#closed ??= Promise.all(this.#lanes.map((lane) => lane.close()));
    return this.#closed;
  }
}

/** A thread and the texts that wait for it. */
class Lane {
  readonly #queue = new TextQueue<Job>();
  readonly #budgets = new Map<Job, number>();
  readonly #thread: TextThread;
  readonly #maxWaiting: number;
  #running: Job | null = null;
  /** Characters a millisecond, of late. */
  #pace = 200;

  constructor(options: TextPoolOptions, polite: boolean) {
    const { origin, maxWaiting = MAX_WAITING, idleMs = IDLE_MS, heapMb = HEAP_MB } = options;
    this.#maxWaiting = maxWaiting;
    this.#thread = new TextThread({ origin, polite, idleMs, heapMb, onFree: () => this.#next() });
  }

  /** Errors: `overloaded-texts` where there are too many already. */
  admit(size: number): void {
    const { length } = this.#queue;
    if (length === 0) return;
    if (length < MAX_JOBS && this.#queue.size + size <= this.#maxWaiting) return;
    throw new KvantError('overloaded-texts', `${length} long prompts wait to be tokenised already.`, {
      kind: 'overloaded',
      fix: 'Send the request again later.',
      retryAfter: Math.ceil(this.#queue.size / this.#pace / 2000),
    });
  }

  add(job: Job, budgetMs: number): void {
    this.#budgets.set(job, budgetMs);
    this.#queue.add(job, performance.now());
    this.#next();
  }

  /** It is not wanted any more. */
  abandon(job: Job): void {
    this.#budgets.delete(job);
    if (this.#running === job) this.#thread.stop();
    else this.#queue.remove(job);
  }

  async close(): Promise<void> {
    const closed = this.#thread.close();
    for (let job = this.#queue.take(); job !== undefined; job = this.#queue.take()) {
      job.release();
      job.reject(shuttingDown());
    }
    await closed;
  }

  #next(): void {
    if (!this.#thread.free) return;
    const job = this.#queue.take();
    if (job === undefined) return;
    this.#running = job;
    const began = performance.now();
    const end = (tell: () => void): void => {
      this.#running = null;
      this.#budgets.delete(job);
      job.release();
      const pace = job.size / Math.max(1, performance.now() - began);
      this.#pace += 0.2 * (Math.max(pace, 1) - this.#pace);
      tell();
    };
    this.#thread.run({
      module: job.module.href,
      task: job.task,
      argument: job.argument,
      transfer: job.transfer ?? [],
      budgetMs: this.#budgets.get(job)!,
      done: (value) => end(() => job.resolve(value as never)),
      failed: (error) => end(() => job.reject(error ?? shuttingDown())),
    });
  }
}
