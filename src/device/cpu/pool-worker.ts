/**
 * One thread of the CPU device. It waits for entries in the ring, and walks the program of each with the others. It
 * never returns to its event loop: what the host has to say comes through shared memory, and a message (a new memory)
 * is fetched when the ring says so.
 */
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import {
  D_HEAD,
  D_HIDDEN,
  D_HIDDEN_BYTES,
  D_HIDDEN_LIST,
  D_HIDDEN_MEMORY,
  D_HIDDEN_RESULT,
  D_IDS,
  D_IDS_HERE,
  D_IDS_MEMORY,
  D_LAST,
  D_MIRRORS,
  D_OUTPUT_SLOTS,
  D_SEGMENTS,
  D_SLOTS,
  D_STEP,
  D_STEP_BYTES,
  D_TOKENS,
  ENTRY_EXIT,
  ENTRY_MESSAGE,
  NO_MEMORY,
} from './descriptor.js';
import {
  CONTROL,
  POISON,
  RETIRED,
  RING,
  RING_ENTRIES,
  SPIN_TURNS,
  STEP_OUTPUTS,
  STEP_WANTS,
  SUBMITTED,
} from './opcodes.js';
import { poison } from './poison.js';
import { enableRelaxedSimd } from './relaxed-simd.js';
import { R_WORDS, RECORDS } from './sample-words.js';

/** What the host gives a thread to start with. */
export interface ThreadData {
  readonly module: WebAssembly.Module;
  readonly relaxed: boolean;
  readonly memories: readonly WebAssembly.Memory[];
  readonly thread: number;
  readonly threads: number;
  /** Tell the host of retired steps by message, for it cannot wait for shared memory. */
  readonly post: boolean;
  readonly port: MessagePort;
}

/** What a thread says to the host. */
export type ThreadMessage =
  | { readonly kind: 'retired' }
  | { readonly kind: 'failed'; readonly message: string; readonly stack: string | undefined };

interface KernelExports {
  run(commands: number, count: number, thread: number, threads: number): number;
  barrier(threads: number): number;
  beginStep(inbox: number, step: number, bytes: number, tokens: number, last: number, slots: number): void;
  endStep(ids: number, result: number, step: number, outputSlots: number, last: number, slots: number): void;
}

class Thread {
  readonly #data: ThreadData;
  readonly #memories: WebAssembly.Memory[] = [];
  readonly #kernels: KernelExports[] = [];
  /** Views of the memories, made anew when one has grown. */
  readonly #views: { bytes: Uint8Array; words: Uint32Array }[] = [];
  readonly #control: Int32Array;

  constructor(data: ThreadData) {
    this.#data = data;
    if (data.relaxed) enableRelaxedSimd();
    for (const memory of data.memories) this.#add(memory);
    this.#control = new Int32Array(this.#memories[0]!.buffer, CONTROL, 1024);
  }

  /** Works until it is told to end, or another thread has died. */
  work(): void {
    const { thread, post } = this.#data;
    const control = this.#control;
    for (let sequence = 0; ; sequence = (sequence + 1) | 0) {
      if (!this.#await(sequence)) return;
      const entry = RING / 4 + ((sequence >>> 0) % RING_ENTRIES) * 4;
      const kind = control[entry]!;
      if (kind === ENTRY_EXIT) return;
      if (kind === ENTRY_MESSAGE) {
        const received = receiveMessageOnPort(this.#data.port) as
          | { message: WebAssembly.Memory | null }
          | undefined;
        if (received?.message) this.#add(received.message);
        if (!this.#barrier()) return;
      } else if (
        !this.#step(control[entry + 1]! >>> 0, control[entry + 2]! >>> 0, control[entry + 3]! >>> 0)
      ) {
        return;
      }
      if (thread === 0) {
        Atomics.store(control, RETIRED / 4, (sequence + 1) | 0);
        Atomics.notify(control, RETIRED / 4);
        if (post) this.#say({ kind: 'retired' });
      }
    }
  }

  /** Wakes the others, who will see that nothing more is to be done, and tells the host. */
  fail(error: unknown): void {
    for (const memory of this.#memories) poison(memory);
    this.#say({
      kind: 'failed',
      message: error instanceof Error ? error.message : String(error),
      stack: error instanceof Error ? error.stack : undefined,
    });
  }

  /** False if the device has died meanwhile. */
  #await(sequence: number): boolean {
    const control = this.#control;
    const submitted = SUBMITTED / 4;
    // A turn takes longer here than in a kernel, and the host may need the core.
    const turns = control[SPIN_TURNS / 4]! >> 3;
    for (let turn = 0; turn < turns; turn++) {
      if (Atomics.load(control, submitted) !== sequence) break;
    }
    while (Atomics.load(control, submitted) === sequence) {
      if (Atomics.load(control, POISON / 4) !== 0) return false;
      Atomics.wait(control, submitted, sequence);
    }
    return Atomics.load(control, POISON / 4) === 0;
  }

  #step(descriptor: number, inbox: number, result: number): boolean {
    const { thread, threads } = this.#data;
    const words = this.#view(0).words;
    const d = descriptor / 4;
    const home = this.#kernels[0]!;
    const step = words[d + D_STEP]!;
    const bytes = words[d + D_STEP_BYTES]!;
    const mirrors = words[d + D_MIRRORS]!;
    let at = d + D_HEAD;
    if (thread === 0) {
      home.beginStep(inbox, step, bytes, words[d + D_TOKENS]!, words[d + D_LAST]!, words[d + D_SLOTS]!);
      for (let m = 0; m < mirrors; m++)
        this.#copy(0, step, words[at + 2 * m]!, words[at + 2 * m + 1]!, bytes);
    }
    at += 2 * mirrors;
    if (!this.#barrier()) return false;

    const segments = words[d + D_SEGMENTS]!;
    for (let s = 0; s < segments; s++) {
      const memory = words[at]!;
      const commands = words[at + 1]!;
      const count = words[at + 2]!;
      const copies = words[at + 3]!;
      at += 4;
      if (copies > 0) {
        if (thread === 0) {
          for (let c = 0; c < copies; c++) {
            const carry = at + 5 * c;
            const rows = words[step / 4 + words[carry + 4]!]!;
            this.#copy(words[carry]!, words[carry + 1]!, memory, words[carry + 2]!, words[carry + 3]! * rows);
          }
        }
        at += 5 * copies;
        if (!this.#barrier()) return false;
      }
      if (!this.#kernels[memory]!.run(commands, count, thread, threads)) return false;
    }

    if (thread === 0 && words[d + D_HIDDEN_MEMORY] !== NO_MEMORY) this.#hidden(d, step, result);
    if (thread === 0 && words[d + D_IDS_MEMORY] !== NO_MEMORY) {
      const memory = words[d + D_IDS_MEMORY]!;
      let ids = words[d + D_IDS]!;
      if (memory !== 0) {
        this.#copy(memory, ids, 0, words[d + D_IDS_HERE]!, resultBytes(words, step / 4));
        ids = words[d + D_IDS_HERE]!;
      }
      home.endStep(ids, result, step, words[d + D_OUTPUT_SLOTS]!, words[d + D_LAST]!, words[d + D_SLOTS]!);
    }
    return true;
  }

  /** Copies the hidden rows that are asked for to the result. `d`: the descriptor, in words. */
  #hidden(d: number, step: number, result: number): void {
    const { words } = this.#view(0);
    const bytes = words[d + D_HIDDEN_BYTES]!;
    const list = step / 4 + words[d + D_HIDDEN_LIST]!;
    const count = words[list]!;
    for (let i = 0; i < count; i++) {
      const from = words[d + D_HIDDEN]! + words[list + 1 + i]! * bytes;
      this.#copy(
        words[d + D_HIDDEN_MEMORY]!,
        from,
        0,
        result + words[d + D_HIDDEN_RESULT]! + i * bytes,
        bytes,
      );
    }
  }

  #barrier(): boolean {
    return this.#kernels[0]!.barrier(this.#data.threads) !== 0;
  }

  #add(memory: WebAssembly.Memory): void {
    // V8 tells a thread that a shared memory has grown only once the thread has it. What grew while it was on its way
    // is unknown here until something grows: kernels would fail with "memory access out of bounds".
    memory.grow(0);
    const instance = new WebAssembly.Instance(this.#data.module, {
      env: {
        memory,
        abort: () => {
          throw new Error('A kernel gave up.');
        },
      },
    });
    this.#memories.push(memory);
    this.#kernels.push(instance.exports as unknown as KernelExports);
    this.#views.push(viewsOf(memory));
  }

  #view(index: number): { bytes: Uint8Array; words: Uint32Array } {
    const memory = this.#memories[index]!;
    let view = this.#views[index]!;
    if (view.bytes.buffer !== memory.buffer) {
      view = viewsOf(memory);
      this.#views[index] = view;
    }
    return view;
  }

  #copy(fromMemory: number, from: number, toMemory: number, to: number, bytes: number): void {
    this.#view(toMemory).bytes.set(this.#view(fromMemory).bytes.subarray(from, from + bytes), to);
  }

  #say(message: ThreadMessage): void {
    parentPort?.postMessage(message);
  }
}

/** Bytes of the ids of a step, and of its records if it has any. */
function resultBytes(words: Uint32Array, step: number): number {
  const records = (words[step + STEP_WANTS]! & RECORDS) === 0 ? 0 : R_WORDS;
  return 4 * words[step + STEP_OUTPUTS]! * (1 + records);
}

function viewsOf(memory: WebAssembly.Memory): { bytes: Uint8Array; words: Uint32Array } {
  return { bytes: new Uint8Array(memory.buffer), words: new Uint32Array(memory.buffer) };
}

const data = workerData as ThreadData | null;
if (parentPort !== null && data !== null && data.module instanceof WebAssembly.Module) {
  const thread = new Thread(data);
  try {
    thread.work();
  } catch (error) {
    thread.fail(error);
  }
}
