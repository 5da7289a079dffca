/** Ctrl-C: the first asks the work to end, the second ends the process. */

/** Runs the work with a signal that SIGINT and SIGTERM abort. */
export async function untilInterrupted<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const abort = new AbortController();
  const interrupt = (): void => abort.abort();
  for (const signal of SIGNALS) process.once(signal, interrupt);
  try {
    return await work(abort.signal);
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupt);
  }
}

export const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
