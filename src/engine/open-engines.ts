/**
 * Engines that nobody has closed. An idle one keeps no process alive: when a program has nothing more to do, those that are
 * still open are closed as if it had said so, which writes what they have to write, and the process ends.
 */

export interface OpenEngine {
  close(drain: boolean): Promise<void>;
}

const open = new Set<OpenEngine>();

function closeAll(): void {
  // The program is over; whoever wants to know what goes wrong with closing closes.
  for (const engine of open) engine.close(false).catch(() => {});
}

/** From now on `closed` has to be called when it is. */
export function opened(engine: OpenEngine): void {
  if (open.size === 0) globalThis.process?.on?.('beforeExit', closeAll);
  open.add(engine);
}

export function closed(engine: OpenEngine): void {
  if (open.delete(engine) && open.size === 0) globalThis.process?.off?.('beforeExit', closeAll);
}
