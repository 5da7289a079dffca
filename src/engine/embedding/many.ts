/** Several requests of one call: so many under way at once, in their order, and all ended when one fails. */

import { shuttingDown } from '../core-errors.js';
import type { GenerationStream } from '../generation.js';
import type { GenerationResult } from '../types.js';

/**
 * Starts a request for each item, at most `most` at a time, and hands each result to `take`.
 * Errors: that of the first request that fails; the reason of `signal` where the caller gave up. The others are cancelled.
 */
export async function many<T>(
  items: readonly T[],
  most: number,
  signal: AbortSignal | undefined,
  start: (item: T, index: number) => GenerationStream,
  take: (result: GenerationResult, stream: GenerationStream, index: number) => void,
): Promise<void> {
  const open = new Set<GenerationStream>();
  let next = 0;
  let failed = false;
  const work = async (): Promise<void> => {
    while (next < items.length && !failed) {
      signal?.throwIfAborted();
      const index = next++;
      const stream = start(items[index]!, index);
      open.add(stream);
      const result = await stream.result;
      open.delete(stream);
      const { error } = result.choices[0]!;
      if (error !== undefined) throw error;
      if (result.finishReason === 'cancelled') {
        signal?.throwIfAborted();
        throw shuttingDown();
      }
      take(result, stream, index);
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(most, items.length) }, work));
  } finally {
    failed = true;
    for (const stream of open) stream.cancel();
  }
}
