/** The answering half of `kvant eval kv`: every question set through the whole engine, with each cache. */
import type { Engine } from '../../engine/engine.js';
import type { EngineOptions } from '../../engine/types.js';
import type { EvalFormat } from './kv-formats.js';
import { askEach, countGroups, type Judged, type Question, type SetResult } from './question-sets.js';

/** Odd and small: prompts are cut at places that depend on what else runs. */
export const CUT_BATCH_TOKENS = 61;

export interface SetScore {
  readonly set: string;
  readonly questions: number;
  readonly right: number;
  /** Right by the baseline, wrong here, and the other way about. */
  readonly lost: readonly string[];
  readonly won: readonly string[];
  /** Answers equal to the baseline's, letter by letter. */
  readonly sameAnswers: number;
  readonly groups: SetResult['groups'];
  /** With every prompt cut into odd chunks: how many were right, and whether every answer was the same. */
  readonly cut: { readonly right: number; readonly identical: boolean } | null;
}

export type QuestionSet = readonly [name: string, questions: readonly Question[]];
type LoadEngine = (options: EngineOptions) => Promise<Engine>;

/** @param formats the first is the baseline */
export async function askCaches(
  load: LoadEngine,
  options: EngineOptions,
  formats: readonly EvalFormat[],
  sets: readonly QuestionSet[],
  cut: boolean,
  onQuestions: (done: number, total: number, item: string) => void,
): Promise<SetScore[][]> {
  const questions = sets.reduce((sum, [, all]) => sum + all.length, 0);
  const total = questions * formats.length * (cut ? 2 : 1);
  let done = 0;
  const ask = async (engineOptions: EngineOptions, item: string): Promise<Judged[][]> => {
    await using engine = await load(engineOptions);
    const answers: Judged[][] = [];
    for (const [, all] of sets) {
      const before = done;
      answers.push([...(await askEach(engine, all, (n) => onQuestions(before + n, total, item))).judged]);
      done = before + all.length;
    }
    return answers;
  };
  const scores: SetScore[][] = [];
  let baseline: Judged[][] = [];
  for (const { name, kv } of formats) {
    const whole = await ask({ ...options, ...kv }, name);
    const pieces = cut
      ? await ask({ ...options, ...kv, maxBatchTokens: CUT_BATCH_TOKENS }, `${name}, cut`)
      : null;
    if (scores.length === 0) baseline = whole;
    scores.push(sets.map(([set], i) => setScore(set, whole[i]!, baseline[i]!, pieces?.[i] ?? null)));
  }
  return scores;
}

function setScore(
  set: string,
  answers: readonly Judged[],
  baseline: readonly Judged[],
  cut: readonly Judged[] | null,
): SetScore {
  return {
    set,
    questions: answers.length,
    right: answers.filter(({ ok }) => ok).length,
    lost: answers.filter(({ ok }, i) => !ok && baseline[i]!.ok).map(({ id }) => id),
    won: answers.filter(({ ok }, i) => ok && !baseline[i]!.ok).map(({ id }) => id),
    sameAnswers: answers.filter(({ text }, i) => text === baseline[i]!.text).length,
    groups: countGroups(answers),
    cut:
      cut === null
        ? null
        : {
            right: cut.filter(({ ok }) => ok).length,
            identical: cut.every(({ text }, i) => text === answers[i]!.text),
          },
  };
}
