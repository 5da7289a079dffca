import { BARRIER_EPOCH, CONTROL, POISON, SUBMITTED } from './opcodes.js';

/**
 * Makes every thread that waits in this memory, now or later, give up. The words they wait for are moved as well: a
 * thread that was about to sleep finds them changed.
 */
export function poison(memory: WebAssembly.Memory): void {
  const control = new Int32Array(memory.buffer, CONTROL, 128);
  Atomics.store(control, POISON / 4, 1);
  Atomics.add(control, BARRIER_EPOCH / 4, 1);
  Atomics.notify(control, BARRIER_EPOCH / 4);
  Atomics.add(control, SUBMITTED / 4, 1 << 30);
  Atomics.notify(control, SUBMITTED / 4);
}
