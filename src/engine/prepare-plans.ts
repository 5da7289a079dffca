/** Makes the Plans that steps and pictures will need at load, so that none is made while rows wait. */

import type { LoadProgress } from './types.js';

/** Plans made at once: their kernels compile side by side. */
const PLANS_AT_ONCE = 8;

export async function preparePlans(
  plans: readonly (() => Promise<void>)[],
  onProgress: (progress: LoadProgress) => void,
  signal: AbortSignal | undefined,
): Promise<void> {
  const total = plans.length;
  let done = 0;
  onProgress({ phase: 'compile', done, total, unit: 'plans' });
  while (done < total) {
    signal?.throwIfAborted();
    const some = plans.slice(done, done + PLANS_AT_ONCE);
    // All are waited for: what compiles must not outlive a program that is freed because one failed.
    const made = await Promise.allSettled(some.map((make) => make()));
    for (const plan of made) if (plan.status === 'rejected') throw plan.reason;
    done += some.length;
    onProgress({ phase: 'compile', done, total, unit: 'plans' });
  }
}
