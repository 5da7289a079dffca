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

async function run(spec: (typeof devices)[number], ways: readonly SamplingOptions[]): Promise<Answer[]> {
  const device = await spec.create();
  const answers = ways.map((): Answer => ({ ids: [], logprobs: [] }));
  let left = ways.length;
  let done!: () => void;
  const finished = new Promise<void>((resolve) => {
    done = resolve;
  });
  const host = await loadTiny(device, { maxRows: ways.length, maxBatchTokens: 32 }, (events) => {
    for (const { request, ids, logprobs, finish, error } of events) {
      expect(error).toBeNull();
      answers[request]!.ids.push(...ids);
      answers[request]!.logprobs.push(...(logprobs ?? []).map(({ logprob }) => logprob));
      if (finish !== null && --left === 0) done();
    }
  });
  ways.forEach((way, id) => {
    const sampling = resolveSampling({ maxTokens: 40, ignoreEos: true, seed: 6, ...way });
    const rules = tokenRules(sampling, null);
    host.core.add({
      id,
      prompt: Int32Array.from(PROMPT),
      sampling,
      rules,
      continuation: true,
      receivedAt: 0,
    });
  });
  await finished;
  await host.close(false);
  expect(device.stats().samplerBytes).toBe(0);
  await device[Symbol.asyncDispose]();
  return answers;
}

const exact = devices.filter((spec) => spec.precision === 'reference');
const bitwise = devices.filter((spec) => spec.bitwise);

describe('every device', () => {
  it('gives 40 greedy tokens with every penalty as the others do', { timeout: 120_000 }, async () => {
    const [first, ...others] = await Promise.all(exact.map((spec) => run(spec, [PENALTIES])));
    expect(first![0]!.ids).toHaveLength(40);
    expect(first![0]!.ids).not.toContain(11);
    for (const other of others) expect(other[0]!.ids).toEqual(first![0]!.ids);
  });

  it.each(bitwise)('draws each of mixed rows as alone: $name', { timeout: 120_000 }, async (spec) => {
    const together = await run(spec, WAYS);
    for (const [i, way] of WAYS.entries()) {
      if (spec.slow && i % 3 !== 0) continue;
      expect((await run(spec, [way]))[0], JSON.stringify(way)).toEqual(together[i]);
    }
  });
});
