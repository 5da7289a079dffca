/** Constrained rows on the oracle device: steps in halves, masks that are in time, late, or never come. */
import { describe, expect, it } from 'vitest';
import type { Constrain, ConstraintRule } from '../../src/engine/constraint.js';
import type { SamplingOptions } from '../../src/sampling/options.js';
import { Harness, type HarnessOptions, randomPrompt, seeded, VOCAB } from './core-harness.js';
import type { Traced } from './oracle-steps.js';

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** After `last` only ids with a certain remainder may come; now and then a token is told outright, or anything goes. */
function ruleAfter(last: number | null): ConstraintRule {
  const rest = ((last ?? 4) * 3 + 1) % 7;
  if (last !== null && last % 11 === 5) return 90 + ((rest - (90 % 7) + 7) % 7);
  if (last !== null && last % 11 === 6) return null;
  const mask = new Uint32Array(Math.ceil(VOCAB / 32));
  for (let id = 0; id < VOCAB; id++) if (id % 7 === rest) mask[id >> 5]! |= 1 << (id & 31);
  return mask;
}

const isLegal = (last: number | null, id: number): boolean => {
  const rule = ruleAfter(last);
  if (rule === null) return true;
  return typeof rule === 'number' ? id === rule : ((rule[id >> 5]! >>> (id & 31)) & 1) === 1;
};

/** Answers after `wait(n)` has resolved, n counting its tokens; at once where that is null. */
const constrain =
  (wait: (n: number) => Promise<void> | null = () => null): Constrain =>
  () => {
    let n = 0;
    return {
      next: (last) => {
        const late = wait(n++);
        return late === null ? ruleAfter(last) : late.then(() => ruleAfter(last));
      },
    };
  };

const DRAWN: SamplingOptions = { temperature: 1, seed: 5, repetitionPenalty: 1.1 };

async function alone(
  prompt: readonly number[],
  sampling: SamplingOptions,
  constraint: Constrain | null,
): Promise<readonly number[]> {
  const harness = await Harness.start({ maxRows: 1, blocks: 40 });
  const [answer] = await harness.add(prompt, sampling, constraint).done;
  await harness.core.close();
  return answer!.ids;
}

/** Steps that name a slot, of all that were submitted. */
const stepsOf = (harness: Harness, slot: number): number =>
  harness.device.log.filter((step) => step.sequences.some((sequence) => sequence.slot === slot)).length;

/** The slot of the row whose state is being made while the first step runs, which is the free row's. */
const boundSlot = (harness: Harness): number => {
  const { log } = harness.device;
  const free = log[0]!.sequences[0]!.slot;
  return log.flatMap(({ sequences }) => sequences).find(({ slot }) => slot !== free)!.slot;
};

/** A harness whose `nextStep` resolves when so many more steps have retired. */
async function counted(options: HarnessOptions = {}) {
  let retired = 0;
  let waiting: { at: number; go: () => void }[] = [];
  const harness = await Harness.start({
    ...options,
    onStep: () => {
      retired++;
      for (const { at, go } of waiting) if (at <= retired) go();
      waiting = waiting.filter(({ at }) => at > retired);
    },
  });
  /** The rule is asked for while a step retires: that one does not count. */
  const afterSteps = (steps: number): Promise<void> =>
    new Promise((go) => {
      waiting.push({ at: retired + 1 + steps, go });
    });
  return { harness, afterSteps };
}

describe('a constrained row', () => {
  it('has a token in every step: the device computes it before the ids of the step before are read', async () => {
    const harness = await Harness.start({ maxRows: 4, blocks: 60 });
    const bound = harness.add([4], { ...DRAWN, maxTokens: 20 }, constrain());
    const free = harness.add([9, 3], { maxTokens: 30 });
    const [answer] = await bound.done;
    const [other] = await free.done;
    expect(answer).toMatchObject({ finish: 'length', error: null });
    expect(answer!.ids.length).toBe(20);
    // Prompt and all: a step a token, and none for a token that is not wanted.
    expect(stepsOf(harness, boundSlot(harness))).toBe(20);
    expect(harness.device.submitted).toBeLessThanOrEqual(32);
    expect(harness.device.mostInFlight).toBe(2);

    const { trace, log } = harness.device;
    const at = (what: Traced['what'], step: number): number =>
      trace.findIndex((entry) => entry.what === what && entry.step === step);
    let halves = 0;
    log.forEach((step, index) => {
      if (!step.split) return;
      halves++;
      expect(at('forward', index)).toBeLessThan(at('ids', index - 1));
      expect(at('sample', index)).toBeGreaterThan(at('ids', index - 1));
      // All that it computed is drawn for: nothing was late.
      expect(step.draws.length).toBe(step.outputs);
    });
    // The first token's rule is known beforehand, and where the row is not the step is whole.
    expect(halves).toBe(19);
    expect(answer!.ids).toEqual(await alone([4], { ...DRAWN, maxTokens: 20 }, constrain()));
    expect(other!.ids).toEqual(await alone([9, 3], { maxTokens: 30 }, null));
    await harness.core.close();
  });

  it('leaves the steps of others whole', async () => {
    const harness = await Harness.start({ maxRows: 4, blocks: 60 });
    await Promise.all([
      harness.ask([1, 2], { maxTokens: 20 }),
      harness.ask([3], { ...DRAWN, maxTokens: 20 }),
    ]);
    expect(harness.device.trace.some(({ what }) => what === 'forward' || what === 'sample')).toBe(false);
    await harness.core.close();
  });

  it('loses one step to a rule that comes too late, and the others lose nothing', async () => {
    const { harness, afterSteps } = await counted({ maxRows: 4, blocks: 60 });
    const late = new Set([3, 4, 9, 15]);
    const bound = harness.add(
      [4],
      { ...DRAWN, maxTokens: 20 },
      constrain((n) => (late.has(n) ? afterSteps(1) : null)),
    );
    const free = harness.add([9, 3], { maxTokens: 40 });
    const [answer] = await bound.done;
    const [other] = await free.done;
    expect(answer!.ids).toEqual(await alone([4], { ...DRAWN, maxTokens: 20 }, constrain()));
    expect(other!.ids).toEqual(await alone([9, 3], { maxTokens: 40 }, null));
    const { log } = harness.device;
    expect(stepsOf(harness, boundSlot(harness))).toBe(20 + late.size);
    expect(log.filter((step) => step.draws.length < step.outputs).length).toBe(late.size);
    // The free row has a token in every step.
    expect(stepsOf(harness, log[0]!.sequences[0]!.slot)).toBe(40);
    expect(log.length).toBeLessThanOrEqual(42);
    await harness.untilIdle();
    await harness.core.close();
  });

  it('waits for a rule that is late twice, and nobody waits with it', async () => {
    const { harness, afterSteps } = await counted({ maxRows: 4, blocks: 60 });
    const bound = harness.add(
      [4],
      { ...DRAWN, maxTokens: 4 },
      constrain((n) => (n === 2 ? afterSteps(12) : null)),
    );
    const free = harness.add([9, 3], { maxTokens: 40 });
    const [answer] = await bound.done;
    expect(answer!.ids).toEqual(await alone([4], { ...DRAWN, maxTokens: 4 }, constrain()));
    await free.done;
    expect(stepsOf(harness, boundSlot(harness))).toBe(4 + 2);
    // Alone it makes no steps in vain while it waits.
    const { device } = harness;
    const before = device.submitted;
    let go!: () => void;
    const pending = harness.add(
      [7],
      { maxTokens: 3 },
      constrain((n) =>
        n === 1
          ? new Promise((resolve) => {
              go = resolve;
            })
          : null,
      ),
    );
    await harness.turns(200);
    expect(device.submitted - before).toBeLessThanOrEqual(3);
    go();
    const [last] = await pending.done;
    expect(last!.ids.length).toBe(3);
    await harness.untilIdle();
    await harness.core.close();
  });

  it('may wait for its first rule too, and fail at any', async () => {
    const { harness, afterSteps } = await counted({ maxRows: 4, blocks: 60 });
    const free = harness.add([9, 3], { maxTokens: 40 });
    const first = harness.add(
      [4, 5, 6],
      { ...DRAWN, maxTokens: 6 },
      constrain((n) => (n === 0 ? afterSteps(2) : null)),
    );
    const failing: Constrain = () => ({
      next: (last) => (last === null ? null : turns(1).then(() => Promise.reject(new Error('no way on')))),
    });
    const [broken] = await harness.add([1], { maxTokens: 9 }, failing).done;
    expect(broken).toMatchObject({ finish: 'error', error: { code: 'internal' } });
    expect(broken!.ids.length).toBe(1);
    const wrong: Constrain = () => ({ next: async () => new Uint32Array(1) });
    const [empty] = await harness.add([1], { maxTokens: 9 }, wrong).done;
    expect(empty).toMatchObject({ finish: 'error' });
    const [answer] = await first.done;
    expect(answer!.ids).toEqual(await alone([4, 5, 6], { ...DRAWN, maxTokens: 6 }, constrain()));
    const [other] = await free.done;
    expect(other!.ids).toEqual(await alone([9, 3], { maxTokens: 40 }, null));
    await harness.untilIdle();
    expect(harness.device.rows.slots).toBe(0);
    await harness.core.close();
  });

  it('ends with the others when a step fails or the device is lost between the halves', async () => {
    const { harness, afterSteps } = await counted({ maxRows: 4, blocks: 60 });
    harness.device.forwardTurns = 20;
    const bound = harness.add(
      [4],
      { maxTokens: 20 },
      constrain((n) => (n > 3 ? afterSteps(30) : null)),
    );
    const free = harness.add([9], { maxTokens: 60 });
    await harness.turns(150);
    harness.device.lose();
    for (const { done } of [bound, free]) {
      const [answer] = await done;
      expect(answer).toMatchObject({ finish: 'error', error: { code: 'device-lost' } });
    }
    await harness.core.close();
  });
});

describe('constraints that answer whenever they like', () => {
  /** Late ones, preemption, prefixes that are cached and cancellations, all at once. */
  it.each([1, 2, 3, 4])('change nothing but when tokens come (seed %i)', async (seed) => {
    const random = seeded(seed);
    const harness = await Harness.start({
      maxRows: 4,
      blocks: 18,
      blockTokens: 4,
      maxContext: 64,
      maxBatchTokens: 24,
      prefixes: {},
    });
    harness.device.forwardTurns = 1 + seed;
    const shared = randomPrompt(random, 9);
    const late = (): Constrain =>
      constrain(() => {
        const u = random();
        if (u < 0.5) return null;
        return u < 0.7 ? Promise.resolve() : turns(1 + Math.floor(random() * 25));
      });
    const jobs = Array.from({ length: 14 }, (_, i) => {
      const prompt = [...shared.slice(0, Math.floor(random() * 10)), ...randomPrompt(random, 1 + (i % 5))];
      const sampling = { ...DRAWN, seed: i, maxTokens: 8 + Math.floor(random() * 30) };
      const bound = i % 3 !== 2;
      return { prompt, sampling, bound, job: harness.add(prompt, sampling, bound ? late() : null) };
    });
    for (let i = 0; i < 3; i++) {
      await harness.turns(40);
      harness.core.cancel(jobs[i * 4]!.job.id);
    }
    for (const { prompt, sampling, bound, job } of jobs) {
      const [answer] = await job.done;
      const want = await alone(prompt, sampling, bound ? constrain() : null);
      expect(answer!.error).toBeNull();
      if (answer!.finish === 'cancelled') expect(answer!.ids).toEqual(want.slice(0, answer!.ids.length));
      else expect(answer!.ids).toEqual(want);
      if (!bound) continue;
      answer!.ids.forEach((id, n) => {
        expect(isLegal(n === 0 ? null : answer!.ids[n - 1]!, id)).toBe(true);
      });
    }
    expect(harness.device.log.some((step) => step.draws.length < step.outputs)).toBe(true);
    await harness.untilIdle();
    expect(harness.device.rows.slots).toBe(0);
    await harness.core.close();
  });
});
