/** Who goes first, who waits how long, and who is told to come again: through the engine's core. */
import { describe, expect, it } from 'vitest';
import type { QueuePlace } from '../../src/engine/scheduling/queue-place.js';
import type { KvantError } from '../../src/errors.js';
import { Harness, randomPrompt, seeded } from './core-harness.js';
import { oracle } from './oracle-model.js';

const model = { vocab: 97 };
const place = (more: Partial<QueuePlace>): QueuePlace => ({
  priority: 0,
  share: '',
  startWithinMs: Number.POSITIVE_INFINITY,
  ...more,
});

describe('the queue', () => {
  it('lets a higher priority go first, whenever it came; equals in the order they came', async () => {
    const harness = await Harness.start({ maxRows: 1 });
    const order: string[] = [];
    const ask = (name: string, priority: number): Promise<unknown> =>
      harness
        .add([name.length], { maxTokens: 2 }, null, place({ priority }))
        .done.then(() => order.push(name));
    const first = ask('first', 0);
    await harness.turns(1);
    const all = [ask('low', -3), ask('b', 0), ask('cc', 0), ask('high', 7), ask('second high', 7)];
    await Promise.all([first, ...all]);
    expect(order).toEqual(['first', 'high', 'second high', 'b', 'cc', 'low']);
    await harness.untilIdle();
    await harness.core.close();
  });

  it('takes shares in turn, however many requests one of them has in the queue', async () => {
    const harness = await Harness.start({ maxRows: 1 });
    const order: string[] = [];
    const ask = (share: string): Promise<unknown> =>
      harness.add([1, 2, 3], { maxTokens: 3 }, null, place({ share })).done.then(() => order.push(share));
    const flood = Array.from({ length: 8 }, () => ask('a'));
    await harness.turns(3);
    const modest = Array.from({ length: 3 }, () => ask('b'));
    await Promise.all([...flood, ...modest]);
    // One of `a` has its row when `b` comes; from then on they alternate.
    expect(order.lastIndexOf('b')).toBeLessThanOrEqual(7);
    expect(order.slice(1, 7).filter((share) => share === 'b')).toHaveLength(3);
    await harness.untilIdle();
    await harness.core.close();
  });

  it('one share cannot fill the queue for the others; the rest of its flood is told when to come again', async () => {
    const harness = await Harness.start({ maxRows: 1, maxQueue: 8 });
    const refusals: KvantError[] = [];
    const ask = (share: string): boolean => {
      try {
        harness.add([5], { maxTokens: 3 }, null, place({ share }));
        return true;
      } catch (error) {
        refusals.push(error as KvantError);
        return false;
      }
    };
    expect(Array.from({ length: 12 }, () => ask('a')).filter(Boolean)).toHaveLength(9);
    expect(Array.from({ length: 4 }, () => ask('b')).filter(Boolean)).toHaveLength(2);
    expect(refusals).toHaveLength(5);
    for (const error of refusals) {
      expect(error).toMatchObject({ code: 'overloaded', status: 429 });
      expect(error.retryAfter).toBeGreaterThanOrEqual(1);
    }
    await harness.untilIdle();
    await harness.core.close();
  });

  it('ends what waited too long with an error that says so, and nothing else', async () => {
    const harness = await Harness.start({ maxRows: 1, maxContext: 200, blocks: 20 });
    const running = harness.add([1], { maxTokens: 150 }, null, place({ startWithinMs: 60_000 }));
    const hasty = harness.add([2], { maxTokens: 5 }, null, place({ startWithinMs: 0.5 }));
    const patient = harness.add([3], { maxTokens: 5 }, null, place({ startWithinMs: 60_000 }));
    const [late] = await hasty.done;
    expect(late).toMatchObject({ ids: [], finish: 'error' });
    expect(late!.error).toMatchObject({ code: 'queue-timeout', kind: 'overloaded', where: 'queueTimeoutMs' });
    expect(late!.error!.retryAfter).toBeGreaterThanOrEqual(1);
    expect((await running.done)[0]!.ids).toEqual(oracle([1], 150, model));
    expect((await patient.done)[0]!.ids).toEqual(oracle([3], 5, model));
    expect(harness.core.stats()).toMatchObject({ queueTimeouts: 1, oldestQueuedMs: 0 });
    // What never began has no part in the tokens of prompts, and several choices have it once.
    await harness.add([4, 5], { maxTokens: 1, temperature: 1, n: 3 }).done;
    expect(harness.core.stats()).toMatchObject({ requests: 4, promptTokens: 1 + 1 + 2 });
    await harness.untilIdle();
    await harness.core.close();
  });

  it('notices the end of a wait though no step runs', async () => {
    const harness = await Harness.start({ maxRows: 1 });
    // The only row's state takes the device for ever: it has no work meanwhile.
    harness.device.rows.delay = Number.POSITIVE_INFINITY;
    const slow = harness.add([1], { maxTokens: 3, repetitionPenalty: 1.5 });
    const hasty = harness.add([2], { maxTokens: 3 }, null, place({ startWithinMs: 5 }));
    expect((await hasty.done)[0]!.error).toMatchObject({ code: 'queue-timeout' });
    expect(harness.core.stats()).toMatchObject({ steps: 0, queued: 0, slotsUsed: 1 });
    harness.device.rows.delay = 0;
    expect((await slow.done)[0]!.ids).toHaveLength(3);
    await harness.untilIdle();
    await harness.core.close();
  });

  it('a row that gave way is not too late: it had its turn', async () => {
    const harness = await Harness.start({ blocks: 6, maxRows: 3, maxContext: 96 });
    const jobs = [1, 2, 3].map((id) => ({
      id,
      job: harness.add([id, id], { maxTokens: 60 }, null, place({ startWithinMs: 2000 })),
    }));
    for (const { id, job } of jobs) expect((await job.done)[0]!.ids).toEqual(oracle([id, id], 60, model));
    expect(harness.core.stats().preemptions).toBeGreaterThan(0);
    await harness.untilIdle();
    await harness.core.close();
  });

  it('under pressure the lower priority gives way', async () => {
    const harness = await Harness.start({ blocks: 8, maxRows: 4, maxContext: 128 });
    const dear = harness.add([1, 2], { maxTokens: 100 }, null, place({ priority: 5 }));
    const cheap = [3, 4, 5].map((id) => harness.add([id], { maxTokens: 100 }, null, place({ priority: -5 })));
    let done = 0;
    const ends = cheap.map((job) => job.done.then(() => done++));
    expect((await dear.done)[0]!.ids).toEqual(oracle([1, 2], 100, model));
    expect(done).toBe(0);
    await Promise.all(ends);
    expect(harness.core.stats().preemptions).toBeGreaterThan(0);
    for (const [i, job] of cheap.entries()) expect(job.answers[0]!.ids).toEqual(oracle([3 + i], 100, model));
    await harness.untilIdle();
    await harness.core.close();
  });

  it('counts how long the oldest has waited', async () => {
    const harness = await Harness.start({ maxRows: 1 });
    expect(harness.core.stats().oldestQueuedMs).toBe(0);
    const jobs = [1, 2, 3].map((id) => harness.add([id], { maxTokens: 30 }));
    await harness.turns(4);
    expect(harness.core.stats().oldestQueuedMs).toBeGreaterThan(0);
    await Promise.all(jobs.map((job) => job.done));
    await harness.core.close();
  });
});

describe('a free row', () => {
  it('is taken in the next step, beside decoding rows and long prompts, and the first token comes as chunks allow', async () => {
    const harness = await Harness.start({ maxRows: 8, maxBatchTokens: 32, blocks: 200 });
    const decoding = [1, 2, 3].map((id) => harness.add([id], { maxTokens: 200 }));
    await harness.turns(6);
    for (const length of [1, 20, 29, 60, 100, 200]) {
      const from = harness.device.log.length;
      const job = harness.add(randomPrompt(seeded(length), length), { maxTokens: 1 });
      let steps = 0;
      harness.onEvents = () => {
        if (steps === 0 && job.answers[0]!.ids.length > 0) steps = harness.device.log.length - from;
      };
      await job.done;
      // In the first step that was planned after it came.
      expect(harness.device.log[from]!.sequences).toHaveLength(4);
      const chunk = 32 - 3;
      // One more step is under way when its id is read.
      expect(steps).toBeLessThanOrEqual(Math.ceil(length / chunk) + 2);
    }
    for (const { id } of decoding) harness.core.cancel(id);
    await harness.untilIdle();
    await harness.core.close();
  });
});
