import { MessageChannel, Worker } from 'node:worker_threads';
import { afterEach, describe, expect, it } from 'vitest';
import type { KvantError } from '../../errors.js';
import { threadFlags, workerUrl } from '../../worker-url.js';
import { commandWords, writeCommands } from './command.js';
import { ENTRY_STEP, encodeDescriptor } from './descriptor.js';
import { loadKernels } from './kernels.js';
import { DeviceMemory, MemorySet } from './memory.js';
import { CONTROL, OP_ADD, OP_TRAP, RING, SUBMITTED } from './opcodes.js';
import { ThreadPool, type ThreadPoolOptions } from './pool.js';
import type { ThreadData, ThreadMessage } from './pool-worker.js';

const ROWS = 64;
const COLS = 1000;

/** A pool with a program that doubles a `[64, 1000]` tensor in place, `repeat` times, and one that traps. */
class Rig {
  readonly set = new MemorySet({
    memoryLimitBytes: 2 ** 24,
    totalBytes: 2 ** 30,
    spinTurns: 64,
    onMemory: (memory) => this.pool?.addMemory(memory),
  });
  readonly pool: ThreadPool;
  readonly x = this.set.memory(0).tryAllocate(ROWS * COLS * 4);
  readonly #inbox = this.set.memory(0).tryAllocate(64);
  readonly #step = this.set.memory(0).tryAllocate(64);

  static async open(threads: number, options: Partial<ThreadPoolOptions> = {}): Promise<Rig> {
    const rig = new Rig(await loadKernels('auto'), threads, options);
    await rig.pool.ready();
    return rig;
  }

  private constructor(
    kernels: ThreadPoolOptions['kernels'],
    threads: number,
    options: Partial<ThreadPoolOptions>,
  ) {
    this.pool = new ThreadPool({ kernels, threads, memories: this.set.all, ...options });
    this.set.memory(0).u32(this.#inbox, 1)[0] = ROWS;
  }

  program(opcode: number, repeat: number): number {
    const memory = this.set.memory(0);
    const commands = Array.from({ length: repeat }, () => ({
      opcode,
      words: [this.x, this.x, this.x, this.#step, COLS],
    }));
    const list = memory.tryAllocate(commandWords(commands) * 4);
    writeCommands(memory.u32(list, commandWords(commands)) as Uint32Array, commands);
    const words = encodeDescriptor({
      step: this.#step,
      stepBytes: 64,
      tokens: 4,
      last: 0,
      slots: 0,
      outputSlots: 4,
      ids: null,
      idsHere: 0,
      mirrors: [],
      segments: [{ memory: 0, commands: list, count: repeat, copies: [] }],
    });
    const at = memory.tryAllocate(words.byteLength);
    memory.u32(at, words.length).set(words);
    return at;
  }

  run(program: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.pool.submit(program, this.#inbox, 0, { retired: resolve, failed: reject });
    });
  }
}

const open: Rig[] = [];
afterEach(async () => {
  for (const rig of open.splice(0)) await rig.pool.dispose();
});

async function rigOf(threads: number, options: Partial<ThreadPoolOptions> = {}): Promise<Rig> {
  const rig = await Rig.open(threads, options);
  open.push(rig);
  return rig;
}

describe('the threads of the CPU device', () => {
  it.each([1, 2, 3, 7])('%i threads do every command once, in order', async (threads) => {
    const rig = await rigOf(threads);
    const x = rig.set.memory(0).f32(rig.x, ROWS * COLS);
    const twice = rig.program(OP_ADD, 10);
    x.fill(1);
    // Queued at once: later steps start without the host.
    await Promise.all(Array.from({ length: 5 }, () => rig.run(twice)));
    expect(x.every((v) => v === 2 ** 50)).toBe(true);
    expect(rig.pool.pending).toBe(0);
  });

  it('tells the host by message where it cannot wait for memory', async () => {
    const rig = await rigOf(2, { byMessage: true });
    const x = rig.set.memory(0).f32(rig.x, ROWS * COLS);
    x.fill(1);
    const twice = rig.program(OP_ADD, 1);
    for (let n = 0; n < 20; n++) await rig.run(twice);
    expect(x[ROWS * COLS - 1]).toBe(2 ** 20);
  });

  // V8 takes the size of a shared memory from its message, and tells of growth only whoever has the memory already.
  it.each([40, 80, 120, 160, 200, 250, 300, 400])(
    'sees what a memory grew by %i ms after the thread was asked for',
    async (wait) => {
      const { module, relaxed } = await loadKernels('auto');
      const device = new DeviceMemory(0, 2 ** 28, 64);
      const step = device.tryAllocate(64);
      const list = device.tryAllocate(256);
      const descriptor = { step, stepBytes: 64, tokens: 4, last: 0, slots: 0, outputSlots: 4 };
      const words = encodeDescriptor({ ...descriptor, ids: null, idsHere: 0, mirrors: [], segments: [] });
      device.u32(list, words.length).set(words);
      const { port1, port2 } = new MessageChannel();
      const data: ThreadData = {
        module,
        relaxed,
        memories: [device.memory],
        thread: 0,
        threads: 1,
        post: true,
        port: port2,
      };
      // A long message, so that the memory is on its way for long.
      const ahead = Array.from({ length: 100_000 }, (_, i) => ({ at: i, name: `name ${i}` }));
      const worker = new Worker(workerUrl('./pool-worker.js', import.meta.url), {
        ...threadFlags(),
        workerData: { ahead, ...data },
        transferList: [port2],
      });
      const said = new Promise<ThreadMessage>((resolve, reject) => {
        worker.once('message', resolve);
        worker.once('error', reject);
      });
      await new Promise((resolve) => setTimeout(resolve, wait));
      device.tryAllocate(2 ** 25);
      const inbox = device.tryAllocate(64);
      const control = device.i32(CONTROL, 1024);
      control.set([ENTRY_STEP, list, inbox, 0], RING / 4);
      Atomics.store(control, SUBMITTED / 4, 1);
      Atomics.notify(control, SUBMITTED / 4);
      expect(await said).toMatchObject({ kind: 'retired' });
      await worker.terminate();
      port1.close();
    },
  );

  it('takes in a memory that comes later', async () => {
    const rig = await rigOf(2);
    rig.set.memory(2);
    await rig.pool.ready();
    await rig.run(rig.program(OP_ADD, 1));
  });

  it('fails the steps under way and all later ones when a kernel traps', async () => {
    const rig = await rigOf(3);
    const good = rig.program(OP_ADD, 1);
    const bad = rig.program(OP_TRAP, 1);
    const results = await Promise.allSettled([rig.run(good), rig.run(bad), rig.run(good)]);
    expect(results.map((r) => r.status)).toEqual(['fulfilled', 'rejected', 'rejected']);
    for (const result of results.slice(1)) {
      expect((result as PromiseRejectedResult).reason).toMatchObject({ code: 'device-lost' });
    }
    expect(((await rig.pool.lost) as KvantError).code).toBe('device-lost');
    await expect(rig.run(good)).rejects.toMatchObject({ code: 'device-lost' });
  });

  it.each([0, 1])('fails the steps under way when thread %i is killed', async (thread) => {
    const rig = await rigOf(2);
    const long = rig.program(OP_ADD, 20_000);
    const x = rig.set.memory(0).f32(rig.x, ROWS * COLS);
    x.fill(1);
    const steps = [rig.run(long), rig.run(long)];
    // Until the first is under way, and no longer: a busy machine may be late by more than both take.
    while (x[0] === 1) await new Promise((resolve) => setImmediate(resolve));
    await rig.pool.workers[thread]!.terminate();
    for (const step of await Promise.allSettled(steps)) expect(step.status).toBe('rejected');
    expect((await rig.pool.lost).code).toBe('device-lost');
  });

  it('fails a waiting step when an idle thread is killed', async () => {
    const rig = await rigOf(2);
    await rig.pool.workers[1]!.terminate();
    await expect(rig.run(rig.program(OP_ADD, 1))).rejects.toMatchObject({ code: 'device-lost' });
  });

  it('finishes what is under way before it ends', async () => {
    const rig = await Rig.open(2);
    const x = rig.set.memory(0).f32(rig.x, ROWS * COLS);
    x.fill(1);
    const steps = [rig.run(rig.program(OP_ADD, 100)), rig.run(rig.program(OP_ADD, 20))];
    await rig.pool.dispose();
    await Promise.all(steps);
    expect(x[0]).toBe(2 ** 120);
    await expect(rig.run(0)).rejects.toMatchObject({ code: 'device-lost' });
  });
});
