/** Which Plans are made at load: steps of 1, 2, 4, … tokens, with as many outputs as such a step may want. */

export interface PlanBucket {
  readonly tokens: number;
  readonly outputs: number;
}

/**
 * Pure decode steps have as many outputs as tokens. A step with prompt chunks may have any number of outputs up
 * to its tokens and the rows there are; powers of two cover them. It has none only where no prompt came to its
 * end, and then the prompts filled the step.
 */
export function planBuckets(maxTokens: number, maxRows: number): PlanBucket[] {
  const buckets: PlanBucket[] = [{ tokens: maxTokens, outputs: 0 }];
  for (const tokens of powers(maxTokens))
    for (const outputs of powers(Math.min(tokens, maxRows))) buckets.push({ tokens, outputs });
  return buckets;
}

/** 1, 2, 4, … and the limit itself. */
function powers(limit: number): number[] {
  const list: number[] = [];
  for (let n = 1; n < limit; n *= 2) list.push(n);
  list.push(limit);
  return list;
}
