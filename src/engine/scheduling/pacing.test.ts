import { describe, expect, it } from 'vitest';
import { Pacing } from './pacing.js';

const share = (name: string): { share: string } => ({ share: name });

describe('Pacing', () => {
  it('lets join as many as the queue and free rows take', () => {
    const pacing = new Pacing();
    expect(pacing.admits(share('a'), 1, 9, 0, 10)).toBe(true);
    expect(pacing.admits(share('a'), 1, 10, 0, 10)).toBe(false);
    expect(pacing.admits(share('a'), 3, 9, 2, 10)).toBe(true);
    expect(pacing.admits(share('a'), 4, 9, 2, 10)).toBe(false);
  });

  it('keeps a quarter beyond the queue for shares with less than their part of it', () => {
    const pacing = new Pacing();
    pacing.join(share('a'), 8);
    expect(pacing.admits(share('a'), 1, 8, 0, 8)).toBe(false);
    expect(pacing.admits(share('b'), 2, 8, 0, 8)).toBe(true);
    // No more than that for all of them together.
    expect(pacing.admits(share('b'), 3, 8, 0, 8)).toBe(false);
    pacing.join(share('b'), 4);
    expect(pacing.admits(share('b'), 1, 9, 0, 8)).toBe(false);
    for (let i = 0; i < 8; i++) pacing.leave(share('a'));
    expect(pacing.admits(share('b'), 1, 8, 0, 8)).toBe(false);
  });

  it('tells when to come again by how fast sequences start', () => {
    const pacing = new Pacing();
    expect(pacing.retryAfter(100)).toBe(1);
    const sequence = { share: pacing.join(share('a'), 20), length: 10, computed: 0 };
    for (let i = 0; i < 20; i++) pacing.start(sequence, 1000 + 250 * i, true);
    expect(pacing.retryAfter(4)).toBe(1);
    expect(pacing.retryAfter(40)).toBe(10);
    expect(pacing.retryAfter(100_000)).toBe(60);
    // Where nobody waits, the time between two that start says nothing of how fast it could be.
    pacing.start(sequence, 1e9, false);
    expect(pacing.retryAfter(40)).toBe(10);
  });

  it('charges prompts when they start and answers as they come', () => {
    const pacing = new Pacing();
    const sequence = { share: pacing.join(share('a'), 1), length: 100, computed: 60 };
    pacing.start(sequence, 1, false);
    expect(pacing.served[sequence.share]).toBe(40);
    pacing.drew(sequence);
    expect(pacing.served[sequence.share]).toBe(42);
  });

  it('learns nothing of runs, and holds them against nobody', () => {
    const pacing = new Pacing();
    const step = { decoding: 4, depth: 0 };
    pacing.retire({ ...step, submittedAt: 0, promptTokens: 0, spent: 0 }, 3);
    pacing.retire({ ...step, submittedAt: 3, promptTokens: 256, spent: 0 }, 3 + 3 + 25);
    const { fixed, row, chunk, token } = pacing.costs;
    expect(token).toBeGreaterThan(0);
    pacing.retire({ ...step, submittedAt: 31, promptTokens: 0, spent: 0, runTokens: 9 }, 99);
    expect(pacing.costs).toMatchObject({ fixed, row, chunk, token });
    const expected = chunk + 256 * token;
    const foretold = { ...step, submittedAt: 99, promptTokens: 256, spent: expected, runTokens: 9 };
    pacing.retire(foretold, 99 + 3 + expected + 9 * token);
    expect(pacing.takeError()).toBeCloseTo(0, 6);
  });

  it('learns the time of steps, and tells by how much it was wrong, within reason', () => {
    const pacing = new Pacing();
    const step = (submittedAt: number, promptTokens: number, spent: number) => ({
      submittedAt,
      decoding: 4,
      promptTokens,
      depth: 0,
      spent,
    });
    pacing.retire(step(0, 0, 0), 3);
    expect(pacing.costs.fixed).toBe(3);
    // It began when the step before it had ended.
    pacing.retire(step(1, 256, 0), 8);
    expect(pacing.costs.chunk + 256 * pacing.costs.token).toBeCloseTo(2, 1);
    expect(pacing.takeError()).toBe(0);
    pacing.retire(step(9, 256, 2), 15);
    expect(pacing.takeError()).toBeCloseTo(1, 6);
    expect(pacing.takeError()).toBe(0);
    pacing.retire(step(15, 256, 2), 1000);
    expect(pacing.takeError()).toBe(4);
  });
});
