/**
 * Settles decisions, one after the other, within a budget of time.
 *
 * All candidates run in turns, a few times; the best of them and the rules' choice run again, more often. A challenger
 * must be faster by a margin in the median and faster in nearly every turn, and its results must agree with those of the
 * rules' choice on this very device. What the budget does not reach keeps the rules' choice and is left for the next
 * time.
 */

import type { AutotuneMode } from '../../device.js';
import {
  type Contest,
  type Decision,
  entryName,
  type TuningEntries,
  type TuningEntry,
  textHash,
} from './decision.js';

export interface TuneOptions {
  readonly mode: Exclude<AutotuneMode, 'off'>;
  /** Milliseconds after which no further decision is begun. */
  readonly budgetMs: number;
  /** Choices of earlier runs. */
  readonly known: TuningEntries;
  /** Measures also what is known. */
  readonly again?: boolean;
  readonly now?: () => number;
  readonly onProgress?: (done: number, total: number, key: string) => void;
  /** For the cache: told at once, so that what is interrupted is not in vain. */
  readonly onLearned?: (name: string, entry: TuningEntry) => void;
  readonly signal?: AbortSignal | undefined;
}

/** How the kernel of a decision came to be chosen. `skipped`: by rule, for time ran out; `failed`: it could not be measured. */
export type TunedBy = 'measured' | 'cache' | 'skipped' | 'failed';

export interface CandidateTime {
  readonly id: string;
  readonly neutral: boolean;
  /** Median; NaN if it does not run. */
  readonly us: number;
}

export interface TunedDecision {
  readonly key: string;
  readonly rows: number;
  readonly by: TunedBy;
  readonly rule: string;
  readonly choice: string;
  /** Whether the choice gives the bits of the rules'. */
  readonly neutral: boolean;
  /** NaN where nothing is known. */
  readonly ruleUs: number;
  readonly us: number;
  readonly bytes: number;
  readonly operations: number;
  /** Of those measured now. */
  readonly times: readonly CandidateTime[];
  readonly why?: string;
}

export interface TuneResult {
  readonly decisions: readonly TunedDecision[];
  readonly ms: number;
}

/** A GPU that idled so long, while kernels were compiled, is slow for a while. */
const IDLE_MS = 50;
const WARM_MS = 350;
/** A challenger must take this part less time than the rules' choice, and win so many of its turns. */
export const MARGIN = 0.03;
const WINS = 0.75;
const FIRST_SAMPLES = 3;
const LAST_SAMPLES = 9;
/** Challengers of the last round, of either kind. */
const FINALISTS = 4;

export async function tune(decisions: readonly Decision[], options: TuneOptions): Promise<TuneResult> {
  const { mode, budgetMs, known, again = false, now = () => performance.now() } = options;
  const { onProgress, onLearned, signal } = options;
  const start = now();
  const done: TunedDecision[] = [];
  let busyAt = Number.NEGATIVE_INFINITY;
  /** Since the first decision that is not known: to look up the others is no measuring. */
  let measuringSince: number | null = null;
  for (const [i, decision] of decisions.entries()) {
    signal?.throwIfAborted();
    onProgress?.(i, decisions.length, decision.key);
    const entry = again ? undefined : known[entryName(mode, decision.key)];
    const remembered = entry === undefined ? null : recall(decision, entry, mode);
    if (entry !== undefined && remembered !== null) {
      if (remembered > 0) decision.adopt(remembered);
      done.push(outcome(decision, remembered, 'cache', entry.ruleUs, entry.us));
      continue;
    }
    measuringSince ??= now();
    if (now() - measuringSince >= budgetMs) {
      done.push(outcome(decision, 0, 'skipped', Number.NaN, Number.NaN));
      continue;
    }
    let contest: Contest | undefined;
    try {
      contest = await decision.open();
      const settled = await settle(decision, contest, mode, async (ready) => {
        if (now() - busyAt > IDLE_MS) await warmUp(ready, now);
      });
      busyAt = now();
      for (const [of, { index, us }] of settled.winners)
        onLearned?.(entryName(of, decision.key), entryOf(decision, index, settled.ruleUs, us));
      const winner = settled.winners.get(mode)!;
      if (winner.index > 0) decision.adopt(winner.index);
      const result = outcome(decision, winner.index, 'measured', settled.ruleUs, winner.us);
      done.push({ ...result, times: settled.times });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      done.push({ ...outcome(decision, 0, 'failed', Number.NaN, Number.NaN), why });
    } finally {
      contest?.close();
    }
  }
  onProgress?.(decisions.length, decisions.length, '');
  return { decisions: done, ms: now() - start };
}

/** The candidate that an entry names, if it may be trusted: the same two kernels, letter by letter. */
function recall(decision: Decision, entry: TuningEntry, mode: AutotuneMode): number | null {
  const { candidates } = decision;
  const index = candidates.findIndex(({ id }) => id === entry.choice);
  if (index < 0 || candidates[0]!.id !== entry.rule) return null;
  if (mode === 'safe' && !candidates[index]!.neutral) return null;
  return textsOf(decision, index) === entry.texts ? index : null;
}

function textsOf(decision: Decision, index: number): string {
  return textHash(`${decision.textOf(0)}\n${decision.textOf(index)}`);
}

function entryOf(decision: Decision, index: number, ruleUs: number, us: number): TuningEntry {
  const { candidates } = decision;
  return {
    rule: candidates[0]!.id,
    choice: candidates[index]!.id,
    texts: textsOf(decision, index),
    ruleUs,
    us,
  };
}

function outcome(decision: Decision, index: number, by: TunedBy, ruleUs: number, us: number): TunedDecision {
  const { key, rows, candidates, bytes, operations } = decision;
  const { id: choice, neutral } = candidates[index]!;
  return {
    key,
    rows,
    by,
    rule: candidates[0]!.id,
    choice,
    neutral,
    ruleUs,
    us,
    bytes,
    operations,
    times: [],
  };
}

async function warmUp(contest: Contest, now: () => number): Promise<void> {
  const until = now() + WARM_MS;
  do await contest.time([0], 1);
  while (now() < until);
}

interface Winner {
  readonly index: number;
  readonly us: number;
}

interface Settled {
  readonly ruleUs: number;
  readonly times: readonly CandidateTime[];
  /** For the mode, and for `safe`, which is known then too. */
  readonly winners: ReadonlyMap<AutotuneMode, Winner>;
}

async function settle(
  decision: Decision,
  contest: Contest,
  mode: AutotuneMode,
  warm: (contest: Contest) => Promise<void>,
): Promise<Settled> {
  const { candidates } = decision;
  const allowed = [...candidates.keys()].filter((i) => i === 0 || mode === 'full' || candidates[i]!.neutral);
  const runnable = await contest.prepare(allowed);
  if (!runnable.includes(0)) throw new Error('the kernel chosen by rule does not compile');
  await warm(contest);
  const us = new Map<number, number>();
  const samples = new Map<number, readonly number[]>();
  const measure = async (list: readonly number[], count: number): Promise<void> => {
    const rows = await contest.time(list, count);
    list.forEach((index, at) => {
      us.set(index, median(rows[at]!));
      samples.set(index, rows[at]!);
    });
  };
  await measure(runnable, FIRST_SAMPLES);
  const ranked = runnable.filter((i) => i > 0).sort((a, b) => us.get(a)! - us.get(b)!);
  const promising = ranked.filter((i) => us.get(i)! < us.get(0)!);
  const finalists = [
    ...promising.filter((i) => candidates[i]!.neutral).slice(0, FINALISTS),
    ...promising.filter((i) => !candidates[i]!.neutral).slice(0, FINALISTS),
  ];
  if (finalists.length > 0) await measure([0, ...finalists], LAST_SAMPLES);
  const ruleUs = us.get(0)!;
  const rule = samples.get(0)!;
  const better = finalists
    .filter((i) => {
      const mine = samples.get(i)!;
      const wins = mine.filter((v, s) => v < rule[s]!).length;
      return us.get(i)! <= ruleUs * (1 - MARGIN) && wins >= WINS * mine.length;
    })
    .sort((a, b) => us.get(a)! - us.get(b)!);
  const agreement = new Map<number, 'same' | 'close' | 'differs'>();
  const agreed = async (index: number): Promise<'same' | 'close' | 'differs'> => {
    const found = agreement.get(index) ?? (await contest.compare(index));
    agreement.set(index, found);
    return found;
  };
  const winners = new Map<AutotuneMode, Winner>();
  for (const of of mode === 'full' ? (['safe', 'full'] as const) : (['safe'] as const)) {
    let winner: Winner = { index: 0, us: ruleUs };
    for (const index of better) {
      if (of === 'safe' && !candidates[index]!.neutral) continue;
      const how = await agreed(index);
      if (how === 'differs' || (of === 'safe' && how !== 'same')) continue;
      winner = { index, us: us.get(index)! };
      break;
    }
    winners.set(of, winner);
  }
  const times = [...candidates.entries()]
    .filter(([i]) => allowed.includes(i))
    .map(([i, { id, neutral }]) => ({ id, neutral, us: us.get(i) ?? Number.NaN }));
  return { ruleUs, times, winners };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2;
}
