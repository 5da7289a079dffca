/**
 * What quantised KV costs the demo model, held to the bounds that docs/kv-cache.md states. A reduced pass: the full one is
 * `kvant eval kv models/demo-text --text test/fixtures/eval/texts.jsonl.br --set test/fixtures/eval/eval-*`.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import { evalFormat } from '../../src/cli/eval/kv-formats.js';
import { askCaches, type SetScore } from '../../src/cli/eval/kv-questions.js';
import { type CacheScores, scoreCaches } from '../../src/cli/eval/kv-score.js';
import { readTexts } from '../../src/cli/eval/kv-texts.js';
import { readQuestions } from '../../src/cli/eval/question-sets.js';
import { Engine } from '../../src/engine/engine.js';
import { OfflineRunner } from '../../src/engine/offline-runner.js';
import { everyCase } from '../setup/every-case.js';

const DEMO = 'models/demo-text';
const FIXTURES = 'test/fixtures/eval';
/** Of each set so many questions, of prompts below so many tokens. */
const SETS = [
  ['facts', everyCase ? 45 : 24, undefined],
  ['tools', everyCase ? 12 : 6, undefined],
  ['recall', everyCase ? 8 : 5, 700],
] as const;

/** Each format through its own pool, on the same weights. */
async function score(names: readonly string[], limit: number | undefined, cut: boolean) {
  const formats = names.map(evalFormat);
  const lanes = formats.map(({ kv }) => ({ kv, rows: 1, context: 1024 }));
  await using bench = await OfflineRunner.open({ model: DEMO }, { device: 'cpu' }, lanes);
  const all = await readTexts(`${FIXTURES}/texts.jsonl.br`, bench.text, 'texts', { limit });
  // Every third of all is enough to tell formats apart.
  const texts = limit === undefined && !everyCase ? all.filter((_, i) => i % 3 === 1) : all;
  // Awaited here: the device goes when this returns.
  return await scoreCaches(bench, formats, texts, cut, () => {});
}

describe('next-token distributions', () => {
  const results = new Map<string, CacheScores>();
  const kl = (name: string): number => results.get(name)!.whole.klMean;
  beforeAll(async () => {
    const names = ['f16', 'affine8', 'affine4', 'affine3', 'turbo4', 'turbo3.5'];
    for (const result of await score(names, undefined, false)) results.set(result.name, result);
  }, 600_000);

  it('are those of f16 where the cache is f16', () => {
    expect(results.get('f16')!.whole.tokens).toBeGreaterThan(everyCase ? 10_000 : 3000);
    expect(results.get('f16')!.whole.klMax).toBeLessThan(1e-12);
  });

  it('tell the formats apart', () => {
    expect(kl('affine8')).toBeGreaterThan(1e-9);
    expect(kl('affine4')).toBeGreaterThan(10 * kl('affine8'));
    expect(kl('affine3')).toBeGreaterThan(2 * kl('affine4'));
  });

  it('stay within the bounds', () => {
    expect(kl('affine8')).toBeLessThanOrEqual(0.001);
    expect(kl('turbo4')).toBeLessThanOrEqual(1.25 * kl('affine4'));
    expect(kl('turbo3.5')).toBeLessThanOrEqual(kl('affine3'));
  });
});

it('texts cut into odd chunks give the same bits', { timeout: 300_000 }, async () => {
  for (const { name, identical } of await score(['f16', 'affine4', 'turbo3.5', 'affine8/turbo2'], 2, true))
    expect(identical, name).toBe(true);
});

describe('answers', () => {
  const scores = new Map<string, readonly SetScore[]>();
  beforeAll(async () => {
    const names = ['f16', 'affine8', 'turbo3.5'];
    const sets = await Promise.all(
      SETS.map(async ([name, limit, below]) => {
        const all = await readQuestions(`${FIXTURES}/eval-${name}.jsonl.br`);
        return [name, all.filter((q) => (q.promptTokens ?? 0) < (below ?? 1e9)).slice(0, limit)] as const;
      }),
    );
    const answers = await askCaches(
      (options) => Engine.load(DEMO, options),
      { device: 'cpu', maxContext: 2048 },
      names.map(evalFormat),
      sets,
      false,
      () => {},
    );
    for (const [i, name] of names.entries()) scores.set(name, answers[i]!);
  }, 600_000);

  it.each(SETS)('affine at 8 bits loses at most one of %s net', (set) => {
    const { lost, won } = scores.get('affine8')!.find((s) => s.set === set)!;
    expect(lost.length - won.length).toBeLessThanOrEqual(1);
  });

  it.each(SETS)('TurboQuant at 3.5 bits loses at most two of %s net', (set) => {
    const { lost, won, questions } = scores.get('turbo3.5')!.find((s) => s.set === set)!;
    expect(lost.length - won.length).toBeLessThanOrEqual(Math.max(2, 0.01 * questions));
  });
});
