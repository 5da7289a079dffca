/**
 * The threads of the CPU device, and the queue of steps before them.
 *
 * A step is an entry in a ring in shared memory and one wake-up. The threads take entries in order without the host;
 * the host waits for the count of retired steps without blocking (Atomics.waitAsync, or a message where that is not to
 * be had). A thread that traps or dies poisons the memories: the others give up, the steps under way and all later ones
 * fail with `device-lost`, and nothing hangs.
 */
import { isMainThread, MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { KvantError } from '../../errors.js';
import { missingModule, threadFlags, workerUrl } from '../../worker-url.js';
import { ENTRY_EXIT, ENTRY_MESSAGE, ENTRY_STEP } from './descriptor.js';
import { deviceLost, invalidStep } from './errors.js';
import type { Kernels } from './kernels.js';
import type { DeviceMemory } from './memory.js';
import { CONTROL, RETIRED, RING, RING_ENTRIES, SUBMITTED } from './opcodes.js';
import { poison } from './poison.js';
import type { ThreadData, ThreadMessage } from './pool-worker.js';

/** Whoever waits for an entry of the ring. */
export interface Waiter {
  retired(): void;
  failed(error: KvantError): void;
}

export interface ThreadPoolOptions {
  readonly kernels: Kernels;
  readonly threads: number;
  readonly memories: readonly DeviceMemory[];
  /** For tests: wait by message though Atomics.waitAsync is there. */
  readonly byMessage?: boolean;
}

export class ThreadPool {
  readonly workers: readonly Worker[];
  /** Resolves when the threads are lost. */
  readonly lost: Promise<KvantError>;
  readonly #ports: readonly MessagePort[];
  readonly #memories: WebAssembly.Memory[];
  readonly #control: Int32Array<ArrayBufferLike>;
  readonly #waiters: (Waiter | null)[] = new Array<Waiter | null>(RING_ENTRIES).fill(null);
  readonly #byMessage: boolean;
  readonly #onRetired = (): void => {
    this.#armed = false;
    this.#settle();
  };
  #resolveLost: (error: KvantError) => void = () => {};
  #submitted = 0;
  #settled = 0;
  #armed = false;
  #error: KvantError | null = null;
  #closing = false;

  constructor(options: ThreadPoolOptions) {
    const { kernels, threads, memories } = options;
    this.lost = new Promise((resolve) => {
      this.#resolveLost = resolve;
    });
    this.#memories = memories.map((m) => m.memory);
    this.#control = memories[0]!.i32(CONTROL, 1024);
    this.#byMessage = options.byMessage ?? typeof Atomics.waitAsync !== 'function';
    const script = workerUrl('./pool-worker.js', import.meta.url);
    const ports: MessagePort[] = [];
    this.workers = Array.from({ length: threads }, (_, thread) => {
      const { port1, port2 } = new MessageChannel();
      port1.unref();
      ports.push(port1);
      const data: ThreadData = {
        module: kernels.module,
        relaxed: kernels.relaxed,
        memories: [...this.#memories],
        thread,
        threads,
        post: this.#byMessage,
        port: port2,
      };
      const worker = new Worker(script, {
        ...threadFlags(),
        workerData: data,
        transferList: [port2],
      });
      worker.on('message', (message: ThreadMessage) => {
        if (message.kind === 'retired') this.#settle();
        else
          this.#fail(
            deviceLost(`Thread ${thread} of the CPU device failed: ${message.message}`, message.stack),
          );
      });
      worker.on('error', (error) =>
        this.#fail(missingModule(error) ?? deviceLost(`Thread ${thread} of the CPU device failed.`, error)),
      );
      worker.on('exit', () => {
        if (!this.#closing) this.#fail(deviceLost(`Thread ${thread} of the CPU device ended.`));
      });
      return worker;
    });
    this.#ports = ports;
  }

  get threads(): number {
    return this.workers.length;
  }

  /** Entries on their way. */
  get pending(): number {
    return this.#submitted - this.#settled;
  }

  /** Throws if the threads are lost. */
  check(): void {
    if (this.#error !== null) throw this.#error;
  }

  /** Gives a new memory to the threads; they have it before any step that is submitted later. */
  addMemory(memory: DeviceMemory): void {
    this.check();
    this.#memories.push(memory.memory);
    for (const port of this.#ports) port.postMessage(memory.memory);
    this.#push(ENTRY_MESSAGE, 0, 0, 0, null);
  }

  /** Resolves when all threads have come this far: at the start, when they run. */
  async ready(): Promise<void> {
    this.check();
    await new Promise<void>((resolve, reject) => {
      for (const port of this.#ports) port.postMessage(null);
      this.#push(ENTRY_MESSAGE, 0, 0, 0, { retired: resolve, failed: reject });
    });
  }

  /** Queues a step. */
  submit(descriptor: number, inbox: number, result: number, waiter: Waiter): void {
    this.check();
    this.#push(ENTRY_STEP, descriptor, inbox, result, waiter);
  }

  /** Ends the threads after the steps under way. */
  async dispose(): Promise<void> {
    if (this.#closing) return;
    if (this.#error === null) await this.ready().catch(() => {});
    this.#closing = true;
    const ended = this.workers.map(
      (worker) =>
        new Promise<void>((resolve) =>
          worker.threadId === -1 ? resolve() : worker.once('exit', () => resolve()),
        ),
    );
    if (this.#error === null) {
      this.#push(ENTRY_EXIT, 0, 0, 0, null);
    } else {
      await Promise.all(this.workers.map((worker) => worker.terminate()));
    }
    await Promise.all(ended);
    this.#error ??= deviceLost('The CPU device was disposed of.');
    for (const port of this.#ports) port.close();
  }

  #push(kind: number, descriptor: number, inbox: number, result: number, waiter: Waiter | null): void {
    if (this.pending >= RING_ENTRIES - 1) {
      throw invalidStep(`More than ${RING_ENTRIES - 1} steps are under way.`);
    }
    const index = this.#submitted % RING_ENTRIES;
    const entry = RING / 4 + index * 4;
    const control = this.#control;
    control[entry] = kind;
    control[entry + 1] = descriptor;
    control[entry + 2] = inbox;
    control[entry + 3] = result;
    this.#waiters[index] = waiter;
    if (this.pending === 0) this.#holdProcess(true);
    this.#submitted++;
    Atomics.store(control, SUBMITTED / 4, this.#submitted | 0);
    Atomics.notify(control, SUBMITTED / 4);
    this.#arm();
  }

  #settle(): void {
    if (this.#error !== null) return;
    // The counter is the low 32 bits of how many have retired.
    let fresh = (Atomics.load(this.#control, RETIRED / 4) - (this.#settled | 0)) | 0;
    for (; fresh > 0; fresh--) {
      const index = this.#settled % RING_ENTRIES;
      const waiter = this.#waiters[index]!;
      this.#waiters[index] = null;
      this.#settled++;
      waiter?.retired();
    }
    if (this.pending === 0) this.#holdProcess(false);
    this.#arm();
  }

  /** A program ends though its device still has threads, if nothing is under way on them. A thread stays for its engine. */
  #holdProcess(busy: boolean): void {
    if (!isMainThread) return;
    for (const worker of this.workers) {
      if (busy) worker.ref();
      else worker.unref();
    }
  }

  /** Sees to it that `#settle` is called when a step retires. */
  #arm(): void {
    if (this.#byMessage || this.#armed || this.pending === 0 || this.#error !== null) return;
    const wait = Atomics.waitAsync(this.#control, RETIRED / 4, this.#settled | 0);
    this.#armed = true;
    if (wait.async) void wait.value.then(this.#onRetired);
    else queueMicrotask(this.#onRetired);
  }

  #fail(error: KvantError): void {
    if (this.#error !== null || this.#closing) return;
    this.#error = error;
    for (const memory of this.#memories) poison(memory);
    // Releases the pending waitAsync, which else would be kept for ever.
    Atomics.notify(this.#control, RETIRED / 4);
    this.#resolveLost(error);
    for (; this.#settled < this.#submitted; this.#settled++) {
      const index = this.#settled % RING_ENTRIES;
      const waiter = this.#waiters[index]!;
      this.#waiters[index] = null;
      waiter?.failed(error);
    }
  }
}
