/**
 * The same requests on every device, through the engine's host: greedy rows with every penalty give the same tokens, and
 * all rows are what they are alone. Weights are made up, so that nothing repeats by itself.
 */
import { describe, expect, it } from 'vitest';
import type { SamplingOptions } from '../../src/sampling/options.js';
import { resolveSampling } from '../../src/sampling/params.js';
import { tokenRules } from '../../src/sampling/token-rules.js';
import { devices } from '../devices/devices.js';
import { loadTiny } from './tiny-host.js';

const PENALTIES: SamplingOptions = {
  temperature: 0,
  repetitionPenalty: 1.3,
  repetitionContextSize: 12,
  frequencyPenalty: 0.4,
  presencePenalty: 0.3,
  dryMultiplier: 0.6,
  dryAllowedLength: 1,
  logitBias: { 3: -2, 8: 0.5 },
  suppressTokens: [11],
};

const WAYS: readonly SamplingOptions[] = [
  PENALTIES,
  { temperature: 0 },
  { ...PENALTIES, dryMultiplier: 0, temperature: 0.8, topK: 30, topP: 0.9, minP: 0.01 },
  { temperature: 1, typicalP: 0.8 },
  { temperature: 1, mirostat: 2, mirostatTau: 4 },
  { temperature: 1, xtcProbability: 0.5, xtcThreshold: 0.02, topNSigma: 2 },
  { temperature: 0, logprobs: true, topLogprobs: 4 },
  { ...PENALTIES, frequencyPenalty: 1.5, logprobs: true, logprobsMode: 'processed' },
];
const PROMPT = [5, 9, 5, 9, 5, 7, 100, 3, 8];

interface Answer {
  readonly ids: number[];
  readonly logprobs: number[];
}

/** Batches one after another on one host; the rows of a batch run together. */
async function run(
  spec: (typeof devices)[number],
  batches: readonly (readonly SamplingOptions[])[],
): Promise<Answer[][]> {
  const device = await spec.create();
  const rows = Math.max(...batches.map((batch) => batch.length));
  let answers: Answer[] = [];
  let first = 0;
  let left = 0;
  let done = (): void => {};
  const host = await loadTiny(device, { maxRows: rows, maxBatchTokens: 16 }, (events) => {
    for (const { request, ids, logprobs, finish, error } of events) {
      expect(error).toBeNull();
      answers[request - first]!.ids.push(...ids);
      answers[request - first]!.logprobs.push(...(logprobs ?? []).map(({ logprob }) => logprob));
      if (finish !== null && --left === 0) done();
    }
  });
  const all: Answer[][] = [];
  for (const batch of batches) {
    answers = batch.map(() => ({ ids: [], logprobs: [] }));
    left = batch.length;
    const finished = new Promise<void>((resolve) => {
      done = resolve;
    });
    batch.forEach((way, i) => {
      const sampling = resolveSampling({ maxTokens: spec.slow ? 20 : 40, ignoreEos: true, seed: 6, ...way });
      const rules = tokenRules(sampling, null);
      const prompt = Int32Array.from(PROMPT);
      host.core.add({ id: first + i, prompt, sampling, rules, continuation: true, receivedAt: 0 });
    });
    await finished;
    first += batch.length;
    all.push(answers);
  }
  await host.close(false);
  expect(device.stats().samplerBytes).toBe(0);
  await device[Symbol.asyncDispose]();
  return all;
}

const exact = devices.filter((spec) => spec.precision === 'reference');
const bitwise = devices.filter((spec) => spec.bitwise);

describe('every device', () => {
  it('gives 40 greedy tokens with every penalty as the others do', { timeout: 240_000 }, async () => {
    const [first, ...others] = await Promise.all(
      exact.map((spec) => run(spec, [[{ ...PENALTIES, maxTokens: 40 }]])),
    );
    const want = first![0]![0]!.ids;
    expect(want).toHaveLength(40);
    expect(want).not.toContain(11);
    for (const other of others) expect(other[0]![0]!.ids).toEqual(want);
  });

  it.each(bitwise)('draws each of mixed rows as alone: $name', { timeout: 240_000 }, async (spec) => {
    const [together, ...alone] = await run(spec, [WAYS, ...WAYS.map((way) => [way])]);
    alone.forEach(([answer], i) => {
      expect(answer, JSON.stringify(WAYS[i])).toEqual(together![i]);
    });
  });
});
