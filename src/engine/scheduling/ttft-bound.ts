/** The bound on the time to a first token that docs/scheduling.md states, as a formula. */

import { LEAST_SHARE, PROMPT_WEIGHT, SAVING_STEPS } from './prefill.js';
import type { SchedulerConfig, StepCosts } from './step-plan.js';

export interface TtftBoundOptions {
  readonly scheduler: Pick<
    SchedulerConfig,
    'maxBatchTokens' | 'minChunk' | 'prefillReserve' | 'targetItl' | 'ageingMs'
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
 * While it waits for a row all rows are busy: either one of them has a prompt to compute, and then prompts get the part
 * `promptShare` of the time, or all of them decode. So what is ahead of it is done after the sum of its prompts over
 * that part and of its answers over all rows. Who came later with a higher priority goes before it for `ageingMs` for each
 * step of difference. With a row it is computed in turn with the others, of which newcomers get half.
 */
export function ttftBound(options: TtftBoundOptions): number {
  const { scheduler, costs, maxRows, maxQueue, prompt, generate, priorities, shares } = options;
  const { minChunk, ageingMs } = scheduler;
  const decodeStep = costs.fixed + costs.row * maxRows;
  const promptMs =
    Math.ceil(prompt / minChunk) * costs.chunk + prompt * (costs.token + (costs.depth * prompt) / 2000);
  const share = promptShare(scheduler, costs, decodeStep);
  // A full queue still takes a quarter more from shares that have little in it.
  const ahead = maxQueue + Math.ceil(maxQueue / 4) + maxRows;
  const queue = shares * ahead * (promptMs / share + (generate * decodeStep) / maxRows);
  return priorities * ageingMs + queue + (2 * maxRows * promptMs) / share;
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

/** Least part of the time that prompts have beside rows whose step takes `decodeStep` milliseconds. */
export function promptShare(
  { minChunk, prefillReserve, targetItl }: TtftBoundOptions['scheduler'],
  { chunk, token }: StepCosts,
  decodeStep: number,
): number {
  const partOf = (tokens: number): number => {
    const ms = chunk + token * tokens;
    return ms / (decodeStep + ms);
  };
  if (targetItl === 0) return partOf(prefillReserve);
  return Math.min(LEAST_SHARE, Math.max((targetItl - decodeStep) / targetItl, partOf(minChunk)));
}
