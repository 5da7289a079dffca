/** Promise 3 for the engine itself: nothing it keeps grows with the steps it has done. */
import { expect, it } from 'vitest';
import { Harness, randomPrompt, seeded, VOCAB } from '../engine/core-harness.js';
import { oracle } from '../engine/oracle-model.js';
import { held } from '../setup/held.js';
import { expectFlat, heapUsed } from './heap.js';

it('20,000 steps of joining, leaving and cancelled rows leave the heap and the device flat', async () => {
  const random = seeded(2);
  const harness = await Harness.start({
    maxRows: 8,
    blocks: 30,
    maxContext: 64,
    maxBatchTokens: 24,
    eosIds: [3],
  });
  harness.device.keepLog = false;
  const device = JSON.stringify(held(harness.device));
  const open = new Set<Promise<unknown>>();
  const heaps: number[] = [];
  let checked = 0;
  while (harness.core.stats().steps < 20_000) {
    if (open.size < 12) {
      const prompt = randomPrompt(random, 1 + Math.floor(random() * 30));
      const draws = 1 + Math.floor(random() * 30);
      const job = harness.add(prompt, { maxTokens: draws });
      const done = job.done.then(([answer]) => {
        open.delete(done);
        const expected = oracle(prompt, draws, { vocab: VOCAB }, undefined, 0, [3]);
        if (answer!.finish === 'cancelled')
          expect(expected.slice(0, answer!.ids.length)).toEqual(answer!.ids);
        else expect(answer!.ids).toEqual(expected);
        checked++;
      });
      open.add(done);
      if (random() < 0.2) setImmediate(() => harness.core.cancel(job.id));
    }
    await harness.turns(1);
    const { steps } = harness.core.stats();
    if (steps >= 2000 * (heaps.length + 1)) heaps.push(heapUsed());
  }
  await Promise.all(open);
  await harness.untilIdle();
  expect(checked).toBeGreaterThan(2000);
  expect(JSON.stringify(held(harness.device))).toBe(device);
  expect(harness.device.mostInFlight).toBe(2);
  expect(heaps).toHaveLength(10);
  // One small object a step is 32 kB or more in 2,000 steps.
  expectFlat(heaps, 20_000);
  await harness.core.close();
});
