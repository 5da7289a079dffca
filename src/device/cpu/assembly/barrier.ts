import {
  BARRIER_ARRIVED, BARRIER_EPOCH, BARRIER_SLEEPERS, CONTROL, POISON, SPIN_TURNS,
} from '../opcodes';

/**
 * Turns this thread spins before it sleeps (globals are a thread's own: every thread has its own instance). Doubled
 * when spinning was enough, halved when it was in vain: a thread that waits for a long piece of work sleeps early.
 */
let spin: u32 = 256;

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
  for (let turn: u32 = 0; turn < spin; turn++) {
    if (atomic.load<u32>(CONTROL + BARRIER_EPOCH) != epoch) {
      spin = min<u32>(spin * 2, most);
      return true;
    }
  }
  spin = max<u32>(spin >> 1, min<u32>(most, 64));
  return false;
}
