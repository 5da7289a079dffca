/** The time that each thread of a process has computed, where the system tells (Linux). */
import { readdir, readFile } from 'node:fs/promises';

/** Milliseconds on a CPU by thread id; the main thread's is that of the process. Empty where nobody says. */
export async function threadTimes(pid: number): Promise<ReadonlyMap<number, number>> {
  const times = new Map<number, number>();
  const threads = await readdir(`/proc/${pid}/task`).catch(() => []);
  for (const thread of threads) {
    const text = await readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').catch(() => '');
    // The first number: nanoseconds that it ran.
    const nanoseconds = Number(text.split(' ')[0]);
    if (text !== '' && Number.isFinite(nanoseconds)) times.set(Number(thread), nanoseconds / 1e6);
  }
  return times;
}

/** What of it came since `before`, the busiest first. */
export function timesSince(
  before: ReadonlyMap<number, number>,
  after: ReadonlyMap<number, number>,
): { readonly thread: number; readonly ms: number }[] {
  return [...after]
    .map(([thread, ms]) => ({ thread, ms: ms - (before.get(thread) ?? 0) }))
    .sort((a, b) => b.ms - a.ms);
}
