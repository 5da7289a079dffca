import { expect, it } from 'vitest';
import { RECORD_WORDS } from './sampling.js';
import { StepResult } from './step-result.js';

it('tells ids and the records behind them apart', () => {
  const words = new Uint32Array(2 + 2 * RECORD_WORDS);
  const floats = new Float32Array(words.buffer);
  words.set([11, 12]);
  const at = 2 + RECORD_WORDS;
  floats[at] = -1.5;
  words[at + 1] = 3;
  floats[at + 2] = 9.5;
  words[at + 3] = 2;
  words.set([7, 8], at + 4);
  floats.set([-0.5, -1], at + 24);
  const result = new StepResult(words, 2);
  expect([...result.ids]).toEqual([11, 12]);
  expect(result.recorded).toBe(true);
  expect(result.record(1)).toEqual({ logprob: -1.5, rank: 3, mu: 9.5, ids: [7, 8], logprobs: [-0.5, -1] });
  expect(result.record(0)).toMatchObject({ logprob: 0, rank: 0, ids: [] });
  expect(result.recordWords(1)).toEqual(words.subarray(at));
});

it('has ids alone where no row asked for more, and none where the graph does not sample', () => {
  const plain = new StepResult(Uint32Array.of(5, 6), 2);
  expect([...plain.ids]).toEqual([5, 6]);
  expect(plain.recorded).toBe(false);
  expect(plain.record(0)).toBeNull();
  expect(plain.recordWords(1)).toBeNull();
  expect(new StepResult(new Uint32Array(0), 0).ids).toHaveLength(0);
});

it('reads the same ids and records wherever in its buffer a result begins', () => {
  const buffer = new Uint32Array(3 + 1 + RECORD_WORDS);
  new Float32Array(buffer.buffer)[4] = -0.25;
  buffer[3] = 9;
  const result = new StepResult(buffer.subarray(3), 1);
  expect([...result.ids]).toEqual([9]);
  expect(result.record(0)!.logprob).toBe(-0.25);
});
