/** Runs of forced tokens on the oracle device: taken in one chunk they are what they are when they are drawn one by one. */
import { describe, expect, it } from 'vitest';
import type { Constrain, ConstraintAnswer, ConstraintRule } from '../../src/engine/constraint.js';
import type { SamplingOptions } from '../../src/sampling/options.js';
import {
  type Answer,
  Harness,
  type HarnessOptions,
  letters,
  randomPrompt,
  seeded,
  VOCAB,
} from './core-harness.js';

/** What is forced behind a token; of any length from none to twelve. */
function runAfter(last: number | null): number[] {
  const from = last ?? 7;
  if (from % 3 !== 1) return [];
  return Array.from({ length: 1 + ((from * 5) % 12) }, (_, i) => (from * 7 + i * i + 3 * i) % VOCAB);
}

function maskAfter(last: number | null): Uint32Array {
  const mask = new Uint32Array(Math.ceil(VOCAB / 32));
  for (let id = 0; id < VOCAB; id++) if (id % 5 === (last ?? 4) % 5) mask[id >> 5]! |= 1 << (id & 31);
  return mask;
}

const inRuns: Constrain = () => ({
  next: (last): ConstraintAnswer => {
    const run = runAfter(last);
    return run.length === 0 ? maskAfter(last) : { run, behind: maskAfter(run.at(-1)!) };
  },
});

/** The same without runs: each token is forced when it is drawn. */
const oneByOne: Constrain = () => {
  let left: number[] = [];
  let wasForced = false;
  return {
    next: (last): ConstraintRule => {
      if (!wasForced) left = runAfter(last);
      const id = left.shift();
      wasForced = id !== undefined;
      return id ?? maskAfter(last);
    },
  };
};

/** As `inRuns`, answering whenever `wait` resolves; at once where it is null. */
const late =
  (wait: () => Promise<void> | null): Constrain =>
  (choice) => {
    const inner = inRuns(choice);
    return {
      next: (last) => {
        const answer = inner.next(last);
        return wait()?.then(() => answer) ?? answer;
      },
    };
  };

const DRAWN: SamplingOptions = { temperature: 1, seed: 5, maxTokens: 60 };

async function alone(
  prompt: readonly number[],
  sampling: SamplingOptions,
  constraint: Constrain,
  options: HarnessOptions = {},
): Promise<Answer & { steps: number }> {
  const harness = await Harness.start({ maxRows: 1, blocks: 40, ...options });
  const [answer] = await harness.add(prompt, sampling, constraint).done;
  const steps = harness.device.submitted;
  await harness.untilIdle();
  await harness.core.close();
  return { ...answer!, steps };
}

const REQUESTS: Record<string, SamplingOptions> = {
  greedy: { temperature: 0, maxTokens: 60 },
  drawn: DRAWN,
  mirostat: { ...DRAWN, mirostat: 2, mirostatTau: 3, mirostatEta: 0.2 },
  penalties: { ...DRAWN, repetitionPenalty: 1.2, frequencyPenalty: 0.3, presencePenalty: 0.2 },
  DRY: { ...DRAWN, dryMultiplier: 0.8 },
  // It is told of every token, and draws them all.
  'log-probabilities': { ...DRAWN, logprobs: true, topLogprobs: 2 },
};
const DEVICES: Record<string, HarnessOptions> = {
  plain: {},
  'small blocks': { blockTokens: 4, blocks: 60 },
  'few tokens a step': { maxBatchTokens: 3 },
  'one token a step': { maxBatchTokens: 1 },
  sliding: { window: 9, blockTokens: 4, blocks: 60 },
  'several groups': { slides: [{ window: 6, blocks: 60 }], blockTokens: 4, blocks: 60 },
  recurrent: { states: 4 },
  'recurrent with snapshots': { states: 12, blockTokens: 4, blocks: 60, prefixes: { snapshotEvery: 8 } },
  'float start': { floatStart: { tokens: 20, blocks: 20 }, blockTokens: 4, blocks: 60 },
};

describe('a run of forced tokens', () => {
  it.each(Object.keys(REQUESTS))('is what its tokens are one by one: %s', async (name) => {
    for (const [kind, options] of Object.entries(DEVICES)) {
      // This device counts the tokens that it reads back: not those that a window has left behind, or that are stored as they were not.
      if (['penalties', 'DRY'].includes(name) && ['sliding', 'float start'].includes(kind)) continue;
      const reference = await alone([4, 9, 2], REQUESTS[name]!, oneByOne, options);
      const taken = await alone([4, 9, 2], REQUESTS[name]!, inRuns, options);
      const { steps, ...answer } = taken;
      const { steps: slow, ...expected } = reference;
      expect([kind, answer]).toEqual([kind, expected]);
      expect([kind, answer.finish, answer.error]).toEqual([kind, 'length', null]);
      // An answer that is over in the middle of a run is not computed to its end.
      expect([kind, steps <= slow]).toEqual([kind, true]);
      const skips = name !== 'log-probabilities' && kind !== 'one token a step';
      expect([kind, steps < 0.8 * slow]).toEqual([kind, skips]);
    }
  });

  it('is taken in company as it is alone', async () => {
    for (const options of Object.values(DEVICES)) {
      const harness = await Harness.start({ maxRows: 4, blocks: 80, ...options });
      const prompts = [[4, 9, 2], [1], [8, 8, 3, 5, 1, 2], [33]];
      const jobs = prompts.map((prompt, i) =>
        harness.add(prompt, { ...DRAWN, seed: i, maxTokens: 30 + i }, i === 3 ? null : inRuns),
      );
      for (const [i, { done }] of jobs.entries()) {
        const [answer] = await done;
        const sampling = { ...DRAWN, seed: i, maxTokens: 30 + i };
        const free: Constrain = () => ({ next: () => null });
        const by = await alone(prompts[i]!, sampling, i === 3 ? free : oneByOne, options);
        expect(answer!.ids).toEqual(by.ids);
      }
      await harness.untilIdle();
      await harness.core.close();
    }
  });

  it('is cut by max_tokens, by a stop string and by an end in its middle', async () => {
    const whole = await alone([4], DRAWN, oneByOne);
    for (let maxTokens = 1; maxTokens < 30; maxTokens++) {
      const { ids, finish } = await alone([4], { ...DRAWN, maxTokens }, inRuns);
      expect({ ids, finish }).toEqual({ ids: whole.ids.slice(0, maxTokens), finish: 'length' });
    }
    for (let at = 2; at < 30; at++) {
      const stop = [letters(whole.ids).slice(at, at + 3)];
      const id = whole.ids[at]!;
      for (const asked of [{ stop }, { stopTokenIds: [id] }]) {
        const reference = await alone([4], { ...DRAWN, ...asked }, oneByOne);
        const { ids, text, finish } = await alone([4], { ...DRAWN, ...asked }, inRuns);
        expect({ ids, text, finish }).toEqual({ ids: reference.ids, text: reference.text, finish: 'stop' });
      }
    }
  });

  it('goes with the choices of a request, each by its own draws', async () => {
    const harness = await Harness.start({ maxRows: 3, blocks: 60 });
    const { answers, done } = harness.add([4, 9], { ...DRAWN, n: 3 }, inRuns);
    await done;
    const reference = await Harness.start({ maxRows: 3, blocks: 60 });
    const other = reference.add([4, 9], { ...DRAWN, n: 3 }, oneByOne);
    await other.done;
    expect(answers.map(({ ids }) => ids)).toEqual(other.answers.map(({ ids }) => ids));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(3);
    await Promise.all([harness.core.close(), reference.core.close()]);
  });

  /** Late answers, preemption, cached prefixes and cancellations, all at once. */
  it.each([1, 2, 3, 4, 5, 6])('changes nothing, whatever comes between (seed %i)', async (seed) => {
    const random = seeded(seed);
    const options: HarnessOptions = {
      blocks: 18,
      blockTokens: 4,
      maxContext: 64,
      maxBatchTokens: 24,
      prefixes: {},
    };
    const recurrent = seed % 3 === 0 ? { states: 9 } : {};
    const harness = await Harness.start({ maxRows: 4, ...options, ...recurrent });
    harness.device.forwardTurns = seed % 4;
    const shared = randomPrompt(random, 9);
    const whenever = late(() => {
      const u = random();
      if (u < 0.5) return null;
      return u < 0.7 ? Promise.resolve() : harness.turns(1 + Math.floor(random() * 25));
    });
    const jobs = Array.from({ length: 14 }, (_, i) => {
      const prompt = [...shared.slice(0, Math.floor(random() * 10)), ...randomPrompt(random, 1 + (i % 5))];
      const kinds = Object.values(REQUESTS);
      const sampling = { ...kinds[i % kinds.length]!, seed: i, maxTokens: 8 + Math.floor(random() * 30) };
      return { prompt, sampling, job: harness.add(prompt, sampling, i % 2 === 0 ? whenever : inRuns) };
    });
    for (let i = 0; i < 3; i++) {
      await harness.turns(40);
      harness.core.cancel(jobs[i * 4]!.job.id);
    }
    for (const { prompt, sampling, job } of jobs) {
      const [answer] = await job.done;
      const reference = await alone(prompt, sampling, oneByOne, {
        blocks: 64,
        blockTokens: 4,
        maxContext: 64,
        ...recurrent,
      });
      if (answer!.finish !== 'cancelled') expect(answer!.finish).toBe('length');
      expect(answer!.ids).toEqual(reference.ids.slice(0, answer!.ids.length));
      expect(answer!.text).toBe(reference.text.slice(0, answer!.text.length));
      if (answer!.finish === 'length') expect(answer!.logprobs).toEqual(reference.logprobs);
    }
    await harness.untilIdle();
    expect(harness.core.stats().preemptions).toBeGreaterThan(0);
    await harness.core.close();
  });
});
