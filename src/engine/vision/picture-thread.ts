/**
 * A thread that makes pictures, so that nobody else waits while one is decoded and resized. One at a time: what is decoded takes three
 * bytes a pixel. Started when there is a picture, ended when there was none for a while; one that takes too long ends with the thread.
 */

import { Worker } from 'node:worker_threads';
import { deserializeError, KvantError } from '../../errors.js';
import { missingModule, threadFlags, workerUrl } from '../../worker-url.js';
import { onAbort } from '../abort.js';
import { shuttingDown } from '../core-errors.js';
import { TextQueue } from '../texts/text-queue.js';
import type { MadePicture } from './make-picture.js';
import type { FromPictureWorker, ToPictureWorker } from './picture-worker.js';

/** Who waits for a picture. */
export interface PictureWaiter {
  readonly signal: AbortSignal;
  /** Whose it is: time is shared evenly. Default that of all who do not say. */
  readonly share?: string | undefined;
}

export interface PictureThreadOptions {
  /** Milliseconds that one picture may take. */
  readonly limitMs?: number;
  /** Milliseconds without work after which the thread ends. */
  readonly idleMs?: number;
  /** Most bytes of files that wait, where more than one waits. */
  readonly maxWaiting?: number;
  /** Megabytes of heap. Pixels lie outside of it, and the limits of the header bound them. */
  readonly heapMb?: number;
  /** For tests: the script. */
  readonly script?: URL;
}

const LIMIT_MS = 60_000;
/** Until the thread is there. */
const START_MS = 60_000;
const IDLE_MS = 30_000;
const MAX_WAITING = 2 ** 28;
const HEAP_MB = 256;

interface Job {
  readonly asked: ToPictureWorker;
  readonly size: number;
  readonly share: string;
  readonly resolve: (pictures: readonly MadePicture[]) => void;
  readonly reject: (error: unknown) => void;
  readonly release: () => void;
}

export class PictureThread {
  readonly #options: PictureThreadOptions;
  readonly #queue = new TextQueue<Job>();
  #worker: Worker | null = null;
  #running: Job | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(options: PictureThreadOptions = {}) {
    this.#options = options;
  }

  /** Of a picture one, of a video each two frames. Errors: those of `makePicture` and `makeVideo`; `overloaded-images`, `image-too-costly`, `image-decoder-crashed`; the signal's reason. */
  make(asked: ToPictureWorker, { signal, share = '' }: PictureWaiter): Promise<readonly MadePicture[]> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      if (this.#closed) throw shuttingDown();
      const size = sizeOf(asked);
      this.#admit(size);
      const release = onAbort(signal, () => {
        // One that is under way is made to its end: what it costs is bounded.
        this.#queue.remove(job);
        reject(signal.reason as Error);
      });
      const job: Job = { asked, size, share, resolve, reject, release };
      this.#queue.add(job, performance.now());
      this.#next();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (let job = this.#queue.take(); job !== undefined; job = this.#queue.take())
      job.reject(shuttingDown());
    await this.#end(shuttingDown());
  }

  #admit(bytes: number): void {
    if (this.#queue.length === 0) return;
    if (this.#queue.size + bytes <= (this.#options.maxWaiting ?? MAX_WAITING)) return;
    throw new KvantError('overloaded-images', `${this.#queue.length} pictures wait to be decoded already.`, {
      kind: 'overloaded',
      fix: 'Send the request again later.',
      retryAfter: 2,
    });
  }

  #next(): void {
    if (this.#running !== null) return;
    const job = this.#queue.take();
    if (job === undefined) return;
    this.#running = job;
    clearTimeout(this.#timer);
    try {
      this.#worker ??= this.#start();
      this.#worker.ref();
      this.#worker.postMessage(job.asked);
    } catch (error) {
      this.#settle((one) => one.reject(error));
      return;
    }
    this.#limit(START_MS);
  }

  #limit(ms: number): void {
    clearTimeout(this.#timer);
    const { where } = this.#running!.asked;
    this.#timer = setTimeout(() => void this.#end(tooCostly(where, ms)), ms);
  }

  #start(): Worker {
    const worker = new Worker(this.#options.script ?? workerUrl('./picture-worker.js', import.meta.url), {
      ...threadFlags(),
      resourceLimits: {
        maxOldGenerationSizeMb: this.#options.heapMb ?? HEAP_MB,
        maxYoungGenerationSizeMb: 16,
      },
    });
    worker.on('message', (message: FromPictureWorker) => {
      if (worker !== this.#worker || this.#running === null) return;
      if (message.type === 'begun') this.#limit(this.#options.limitMs ?? LIMIT_MS);
      else
        this.#settle((job) => {
          if (message.type === 'made') job.resolve(message.pictures);
          else job.reject(deserializeError(message.error));
        });
    });
    const crash = (cause: unknown): void => {
      if (worker === this.#worker) void this.#end(missingModule(cause) ?? crashed(this.#running, cause));
    };
    worker.on('messageerror', crash);
    worker.on('error', crash);
    worker.on('exit', () => crash(null));
    return worker;
  }

  #settle(tell: (job: Job) => void): void {
    const job = this.#running;
    this.#running = null;
    clearTimeout(this.#timer);
    this.#worker?.unref();
    if (this.#worker !== null) {
      this.#timer = setTimeout(() => void this.#end(null), this.#options.idleMs ?? IDLE_MS);
      this.#timer.unref();
    }
    if (job !== null) {
      job.release();
      tell(job);
    }
    this.#next();
  }

  /** Ends the thread, and the picture it was at with the error. The next one gets a thread of its own. */
  async #end(error: KvantError | null): Promise<void> {
    const worker = this.#worker;
    this.#worker = null;
    const ended = worker?.terminate();
    this.#settle((job) => job.reject(error));
    await ended;
  }
}

function sizeOf(asked: ToPictureWorker): number {
  if (!('film' in asked)) return asked.bytes.length;
  const { source } = asked.film;
  if (source.kind === 'file') return source.bytes.length;
  return source.frames.reduce((sum, { image }) => sum + ('pixels' in image ? image.pixels : image).length, 0);
}

function tooCostly(where: string, limitMs: number): KvantError {
  return new KvantError('image-too-costly', `${where} took more than ${limitMs / 1000} s to decode.`, {
    kind: 'invalid-request',
    where,
    fix: 'Make the picture smaller, or save it anew.',
  });
}

function crashed(job: Job | null, cause: unknown): KvantError {
  const what = cause instanceof Error ? cause.message : String(cause ?? 'it ended');
  return new KvantError('image-decoder-crashed', `The thread that decodes pictures ended: ${what}.`, {
    ...(job === null ? {} : { where: job.asked.where }),
    fix: 'Send the request again; if it happens again, report it with the picture.',
    cause,
  });
}
