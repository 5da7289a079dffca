import {
  BARRIER_ARRIVED, BARRIER_EPOCH, BARRIER_SLEEPERS, CONTROL, POISON, SPIN_TURNS,
} from '../opcodes';

/**
 * Spins in vain, one after another. A thread spins for longer than it takes to wake one (device.ts). But where the others keep not coming (the machine is busy, or work is uneven) it soon stops trying, and
 * tries again now and then. Globals are a thread's own: every thread has its own instance.
 */
let misses: u32 = 0;
// @ts-ignore: decorator
@inline const PATIENCE: u32 = 16;
// @ts-ignore: decorator
@inline const RETRY: u32 = 16;

/** Waits until all threads have come. False if a thread has died and nothing more shall be done. */
export function barrier(threads: u32): bool {
  if (threads == 1) return true;
  const epoch = atomic.load<u32>(CONTROL + BARRIER_EPOCH);
  if (atomic.add<u32>(CONTROL + BARRIER_ARRIVED, 1) == threads - 1) {
    atomic.store<u32>(CONTROL + BARRIER_ARRIVED, 0);
    atomic.add<u32>(CONTROL + BARRIER_EPOCH, 1);
    if (atomic.load<u32>(CONTROL + BARRIER_SLEEPERS) != 0) atomic.notify(CONTROL + BARRIER_EPOCH, -1);
  } else if (!spun(epoch)) {
    atomic.add<u32>(CONTROL + BARRIER_SLEEPERS, 1);
    // Whoever poisons moves the epoch, so this ends.
    while (atomic.load<u32>(CONTROL + BARRIER_EPOCH) == epoch) {
      atomic.wait<i32>(CONTROL + BARRIER_EPOCH, epoch, -1);
    }
    atomic.sub<u32>(CONTROL + BARRIER_SLEEPERS, 1);
  }
  return atomic.load<u32>(CONTROL + POISON) == 0;
}

function spun(epoch: u32): bool {
  const most = load<u32>(CONTROL + SPIN_TURNS);
  const turns = misses < PATIENCE || misses % RETRY == 0 ? most : min<u32>(most, 64);
  for (let turn: u32 = 0; turn < turns; turn++) {
    if (atomic.load<u32>(CONTROL + BARRIER_EPOCH) != epoch) {
      misses = 0;
      return true;
    }
  }
  misses++;
  return false;
}
