/** A core with a prefix cache on the oracle device, and how to wait for it. */

import { Harness, type HarnessOptions, VOCAB } from './core-harness.js';

export const model = { vocab: VOCAB };

export const start = (options: HarnessOptions = {}): Promise<Harness> =>
  Harness.start({ prefixes: {}, blocks: 256, maxContext: 256, ...options });

/** Prompt tokens that steps worked on: all that is not one token a row. */
export const computed = (harness: Harness): number =>
  harness.device.log.reduce((sum, step) => sum + step.tokens, 0);

export async function settle(harness: Harness): Promise<void> {
  await harness.untilIdle();
  await harness.core.close();
}
