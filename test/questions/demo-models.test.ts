/**
 * The demo models that write answer the question sets as well as the reference of demo-text does: at most one question lost net on each.
 * Full sets and every device: `kvant eval models/demo-text --set test/fixtures/eval/eval-*`.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { askAll, readQuestions } from '../../src/cli/eval/question-sets.js';
import { Engine } from '../../src/engine/engine.js';

describe.each(['demo-text', 'demo-hybrid'])('%s on the CPU', (model) => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await Engine.load(`models/${model}`, { device: 'cpu', maxContext: 2048 });
  });
  afterAll(async () => {
    await engine.close();
  });

  it.each([
    ['facts', undefined, undefined],
    ['tools', undefined, undefined],
    ['recall', 1000, 20],
  ] as const)('%s', { timeout: 600_000 }, async (set, below, limit) => {
    const all = await readQuestions(`test/fixtures/eval/eval-${set}.jsonl.br`);
    const questions = all.filter((q) => below === undefined || (q.promptTokens ?? 0) < below).slice(0, limit);
    expect(questions.length).toBeGreaterThanOrEqual(20);
    const result = await askAll(engine, set, questions);
    expect(result.right, JSON.stringify(result.wrong)).toBeGreaterThanOrEqual(result.referenceRight - 1);
  });
});
