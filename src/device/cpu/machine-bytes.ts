import { totalmem } from 'node:os';

/** Bytes the machine has, or the process may take. */
export function machineBytes(): number {
  const allowed = process.constrainedMemory?.() ?? 0;
  const all = totalmem();
  return allowed > 0 && allowed < all ? allowed : all;
}
