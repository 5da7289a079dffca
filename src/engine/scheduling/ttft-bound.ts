/** The bound on the time to a first token that docs/scheduling.md states, as a formula. */

import { LEAST_SHARE, PROMPT_WEIGHT, SAVING_STEPS } from './prefill.js';
import type { SchedulerConfig, StepCosts } from './step-plan.js';

export interface TtftBoundOptions {
  readonly scheduler: Pick<
    SchedulerConfig,
    'maxBatchTokens' | 'minChunk' | 'chunkTokens' | 'prefillReserve' | 'targetItl' | 'ageingMs'
  >;
  readonly costs: StepCosts;
  readonly maxRows: number;
  /** Sequences that may wait. */
  readonly maxQueue: number;
  /** Most tokens of a prompt, and of an answer. */
  readonly prompt: number;
  readonly generate: number;
  /** Highest priority in use less the lowest. */
  readonly priorities: number;
  /** Shares in use. */
  readonly shares: number;
}

/**
 * Milliseconds from the arrival of a request that is not refused to its first token, at most, as long as no row has to give way
 * for want of blocks.
 *
 * While it waits for a row all rows are busy: either one of them has a prompt to compute, and then prompts get their part of
 * the time, or all of them decode. That part grows with the number of prompts in rows and in the queue (prefill.ts): when what is
 * left of the work ahead is that of j prompts, at least j − `maxRows` of them wait, and itself. So the prompts ahead are done
 * after the sum of what each takes over the part that prompts then have; their answers, over all rows, after that of those.
 * A step that ends all prompts there are takes what its decoding rows take besides, and there is at most one for each prompt.
 *
 * Who came later with a higher priority goes before it for `ageingMs` for each step of difference. With a row it is computed in turn
 * with the others, of which newcomers get half.
 */
export function ttftBound(options: TtftBoundOptions): number {
  const { scheduler, costs, maxRows, maxQueue, generate, priorities, shares } = options;
  const decodeStep = costs.fixed + costs.row * maxRows;
  const promptMs = promptTime(options);
  // A full queue still takes a quarter more from shares that have little in it, where there are several.
  const ahead = maxQueue + (shares > 1 ? Math.ceil(maxQueue / 4) : 0) + maxRows;
  /** Times as long as computing them takes, for so many prompts, of which those beyond `rows` wait. */
  const stretched = (prompts: number, rows: number): number => {
    let sum = 0;
    for (let left = 1; left <= prompts; left++)
      sum += 1 / promptShare(scheduler, costs, maxRows, Math.max(1, left - rows));
    return sum;
  };
  const answers = decodeStep + (generate * decodeStep) / maxRows;
  const queue = shares * (promptMs * stretched(ahead, maxRows) + ahead * answers);
  return priorities * scheduler.ageingMs + queue + 2 * promptMs * stretched(maxRows, 0);
}

/**
 * Milliseconds that a prompt adds to steps: its tokens, and a chunk for every step that holds as many as are worth one, for its
 * first one, which may be lent, and for the one that ends it.
 */
function promptTime({ scheduler, costs, maxRows, prompt }: TtftBoundOptions): number {
  const { minChunk, chunkTokens, targetItl } = scheduler;
  const budget = promptBudget(scheduler, maxRows);
  const deepest = costs.token + (costs.depth * prompt) / 1000;
  const worth = (ms: number): number => Math.max(minChunk, Math.floor((ms - costs.chunk) / deepest));
  const fits = worth(targetItl - costs.fixed - costs.row * maxRows);
  // One decoding row brings in the least.
  const gain = ((costs.fixed + costs.row) * LEAST_SHARE) / (1 - LEAST_SHARE);
  const c = targetItl === 0 ? budget : Math.min(budget, fits, chunkTokens, worth(gain * SAVING_STEPS));
  const tokens = prompt * (costs.token + (costs.depth * prompt) / 2000);
  return tokens + costs.chunk * (2 + Math.ceil(prompt / c));
}

/** Prompt tokens that a step has room for at least. */
function promptBudget(
  { maxBatchTokens, prefillReserve }: TtftBoundOptions['scheduler'],
  maxRows: number,
): number {
  return Math.max(1, prefillReserve, maxBatchTokens - maxRows);
}

export interface TtftStepsOptions {
  readonly scheduler: Pick<SchedulerConfig, 'maxBatchTokens' | 'minChunk' | 'chunkTokens' | 'targetItl'>;
  /** As measured. */
  readonly costs: StepCosts;
  /** Rows that decode all the while. */
  readonly decoding: number;
  readonly prompt: number;
}

/**
 * Steps from the one in which a lone prompt finds a free row to the one that brings its first token, both counted, at most, with
 * two more: one is under way when it comes, and one when its id is read.
 *
 * Beside nobody, and without a target, every step holds a chunk of what the budget leaves. Else the first step holds a smallest
 * chunk, which is lent, and after that chunks of `c` tokens come as often as the account has saved for one.
 */
export function ttftSteps({ scheduler, costs, decoding, prompt }: TtftStepsOptions): number {
  const { maxBatchTokens, minChunk, chunkTokens, targetItl } = scheduler;
  const budget = Math.max(1, maxBatchTokens - decoding);
  if (decoding === 0 || targetItl === 0) return Math.ceil(prompt / budget) + 2;
  const base = costs.fixed + costs.row * decoding;
  const token = costs.token + (costs.depth * prompt) / 1000;
  const gain = base * Math.max(PROMPT_WEIGHT / decoding, LEAST_SHARE / (1 - LEAST_SHARE));
  const worth = (ms: number): number => Math.max(minChunk, Math.floor((ms - costs.chunk) / token));
  const c = Math.min(budget, chunkTokens, worth(targetItl - base), worth(gain * SAVING_STEPS));
  const stepsFor = (tokens: number): number => Math.ceil((costs.chunk + token * tokens) / gain);
  // However long it takes to save for one, it comes after so many steps.
  const each = Math.min(stepsFor(c), SAVING_STEPS + 1);
  const chunks = Math.ceil(Math.max(0, prompt - minChunk) / c);
  const paidBack = chunks === 0 ? 0 : stepsFor(minChunk);
  return 1 + paidBack + chunks * each + 2;
}

/** Least part of the time that so many prompts, in rows and waiting, have beside `rows` that decode. */
function promptShare(
  scheduler: TtftBoundOptions['scheduler'],
  { fixed, row, chunk, token }: StepCosts,
  rows: number,
  prompts: number,
): number {
  const { minChunk, targetItl } = scheduler;
  const decodeStep = fixed + row * rows;
  const partOf = (tokens: number): number => {
    const ms = chunk + token * tokens;
    return ms / (decodeStep + ms);
  };
  const inBudget = partOf(promptBudget(scheduler, rows));
  if (targetItl === 0) return inBudget;
  const weight = PROMPT_WEIGHT * prompts;
  const byHeads = Math.max(LEAST_SHARE, weight / (weight + rows));
  const inTarget = Math.max((targetItl - decodeStep) / targetItl, partOf(minChunk));
  return Math.min(byHeads, inTarget, inBudget);
}
