/** Teacher-forced scoring of demo-text against transformers: the log-probability of every token of its continuations. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OfflineRunner } from '../../src/engine/offline-runner.js';
import { Scorer } from '../../src/engine/scorer.js';
import type { KvOptions } from '../../src/kv/options.js';
import { readPacked } from '../fixtures/read-packed.js';

interface DemoCase {
  readonly prompt_ids: readonly number[];
  readonly continuation_ids: readonly number[];
  readonly logprobs: readonly number[];
}

const { cases } = readPacked(new URL('../fixtures/demo-text.json.br', import.meta.url)) as {
  cases: readonly DemoCase[];
};
const short = cases.filter(({ prompt_ids }) => prompt_ids.length < 600);
const CONTEXT = 800;

describe('the scorer on the CPU', () => {
  let bench: OfflineRunner;
  let scorer: Scorer;
  beforeAll(async () => {
    const kv = { kvFormat: 'f32' };
    const lanes = [{ kv, rows: 1, context: CONTEXT }];
    bench = await OfflineRunner.open({ model: 'models/demo-text' }, { device: 'cpu' }, lanes);
    scorer = await Scorer.open(bench, kv, CONTEXT);
  });
  afterAll(async () => {
    await scorer?.[Symbol.asyncDispose]();
    await bench?.[Symbol.asyncDispose]();
  });

  /** Logits `[tokens of the continuation, vocab]`, by steps of up to so many tokens. */
  const score = async ({ prompt_ids, continuation_ids }: DemoCase, chunk: number): Promise<number[][]> => {
    const ids = Int32Array.from([...prompt_ids, ...continuation_ids]);
    const wanted = prompt_ids.length - 1;
    const rows: number[][] = [];
    for (let at = 0; at < ids.length - 1; at += chunk) {
      const end = Math.min(ids.length - 1, at + chunk);
      const logits = await scorer.step(ids, at, end, wanted);
      const count = Math.max(0, end - Math.max(at, wanted));
      const vocab = logits.length / Math.max(1, count);
      for (let row = 0; row < count; row++) rows.push([...logits.subarray(row * vocab, (row + 1) * vocab)]);
    }
    return rows;
  };

  it.each(short)('gives the log-probabilities of a prompt of $prompt_ids.length tokens', async (one) => {
    const rows = await score(one, scorer.chunk);
    expect(rows).toHaveLength(one.continuation_ids.length);
    for (const [i, row] of rows.entries()) {
      const max = Math.max(...row);
      const sum = row.reduce((total, x) => total + Math.exp(x - max), 0);
      const logProbability = row[one.continuation_ids[i]!]! - max - Math.log(sum);
      expect(Math.abs(logProbability - one.logprobs[i]!), `token ${i}`).toBeLessThan(0.2);
    }
  });

  it('gives the same bits however the text is cut', async () => {
    const whole = await score(short.at(-1)!, scorer.chunk);
    expect(await score(short.at(-1)!, 13)).toEqual(whole);
  });

  it('keeps floats up to so many tokens and converts them there, however the text is cut', async () => {
    const ids = Int32Array.from(short.at(-1)!.prompt_ids).subarray(0, 96);
    const logits = async (kv: KvOptions, chunk: number): Promise<Float32Array[]> => {
      await using one = await Scorer.open(bench, kv, CONTEXT);
      const steps: Float32Array[] = [];
      for (let at = 0; at < ids.length; at += chunk)
        steps.push(await one.step(ids, at, Math.min(ids.length, at + chunk), 0));
      return [...Array(ids.length).keys()].map((row) => {
        const step = steps[Math.floor(row / chunk)]!;
        const vocab = step.length / Math.min(chunk, ids.length - Math.floor(row / chunk) * chunk);
        return step.slice((row % chunk) * vocab, ((row % chunk) + 1) * vocab);
      });
    };
    const stored = { kvFormat: 'affine4', kvSkipLayers: [] };
    const late = await logits({ ...stored, quantizedKvStart: 40 }, 96);
    const floats = await logits({ kvFormat: 'f16' }, 96);
    expect(late.slice(0, 40)).toEqual(floats.slice(0, 40));
    expect(late[40]).not.toEqual(floats[40]);
    expect(late[40]).not.toEqual((await logits(stored, 96))[40]);
    for (const chunk of [40, 17])
      expect(await logits({ ...stored, quantizedKvStart: 40 }, chunk)).toEqual(late);
  });

  it('refuses a step that does not follow', async () => {
    const ids = Int32Array.from([1, 2, 3, 4]);
    await scorer.step(ids, 0, 2, 4);
    await expect(scorer.step(ids, 3, 4, 0)).rejects.toThrow(/follows 2 tokens/);
    await expect(scorer.step(ids, 2, 5, 0)).rejects.toThrow(/of 4 tokens/);
  });
});
