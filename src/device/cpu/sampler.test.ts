import { afterEach, describe, expect, it } from 'vitest';
import { Random } from '../../../test/devices/numbers.js';
import { rowsStep } from '../../../test/devices/run.js';
import { logitsOf, rowCases, tokensOf } from '../../../test/devices/sampling-cases.js';
import {
  fillRow,
  maskOfRow,
  penalise,
  type RowParams,
  sampleRow,
  specOfRow,
} from '../../../test/devices/sampling-reference.js';
import { type Sampled, type SampledRow, Sampler, telling } from '../../../test/devices/sampling-run.js';
import { randomMatrix } from '../../../test/devices/sources.js';
import { held } from '../../../test/setup/held.js';
import type { Device } from '../device.js';
import { Ops } from '../ops.js';
import { FEATURE, RECORD_IDS, RECORD_LOGPROBS, RECORD_WORDS } from '../sampling.js';
import { SAMPLING_FIELDS } from '../sampling-inputs.js';
import { type CpuDeviceOptions, createCpuDevice } from './index.js';
import * as words from './sample-words.js';

const opened: Device[] = [];
afterEach(async () => {
  for (const device of opened.splice(0)) await device[Symbol.asyncDispose]();
});

async function open(options: CpuDeviceOptions = {}): Promise<Device> {
  const device = await createCpuDevice({ threads: 2, ...options });
  opened.push(device);
  return device;
}

const PENALISED: RowParams = {
  repetition: { penalty: 1.2, window: 9 },
  frequency: 0.3,
  dry: { multiplier: 0.7 },
};

describe('the words of the sampler', () => {
  it('are those of the contract', () => {
    const all = words as unknown as Record<string, number>;
    for (const [name, bit] of Object.entries(FEATURE)) expect(all[`F_${name}`], name).toBe(bit);
    SAMPLING_FIELDS.forEach(([field], i) => {
      const name = `P_${field.replace(/[A-Z]/g, (c) => `_${c}`).toUpperCase()}`;
      if (name in all) expect(all[name], field).toBe(i);
    });
    expect(Object.keys(all).filter((name) => name.startsWith('P_')).length).toBe(SAMPLING_FIELDS.length - 2);
    expect([words.R_WORDS, words.R_IDS, words.R_LOGPROBS]).toEqual([
      RECORD_WORDS,
      RECORD_IDS,
      RECORD_LOGPROBS,
    ]);
    expect(words.F_PENALTIES).toBe(words.F_LISTS | words.F_MASK);
    expect(words.RECORDS).toBe(FEATURE.LOGPROBS | FEATURE.MIROSTAT);
  });
});

describe('the sampler of the CPU device', () => {
  it('changes logits as the formulas say, to 1e-5, and touches no others', async () => {
    const vocab = 5000;
    const random = new Random(8);
    const sampler = await Sampler.make(await open(), vocab);
    const rows: SampledRow[] = [];
    for (const name of [
      'bias',
      'repetition',
      'repetition, window',
      'counts',
      'dry',
      'all penalties',
      'banned',
      'mask',
    ]) {
      const tokens = tokensOf(vocab, 1000, random);
      rows.push({ row: { ...rowCases(vocab, tokens, random)[name]!, temperature: 0 }, tokens });
    }
    const logits = rows.map(() => logitsOf('normal', vocab, random));
    await sampler.drawOnce(logits, rows);
    const left = await sampler.left(rows.length);
    rows.forEach(({ row, tokens }, r) => {
      const want = penalise(logits[r]!, row, tokens);
      let changed = 0;
      let worst = 0;
      want.forEach((x, id) => {
        const got = left[r * vocab + id]!;
        if (x !== logits[r]![id]) changed++;
        if (Number.isFinite(x) && x !== logits[r]![id]) {
          worst = Math.max(worst, Math.abs(got - x) / Math.max(Math.abs(x), 1e-3));
        } else if (got !== x) worst = Number.POSITIVE_INFINITY;
      });
      expect(changed).toBeGreaterThan(0);
      expect(worst).toBeLessThanOrEqual(1e-5);
    });
  });

  it('draws the same bits with any number of threads, from vocabularies of up to 262,144', async () => {
    const names = [
      'top-p',
      'typical-p',
      'large top-k and top-p',
      'all filters',
      'xtc',
      'mirostat',
      'processed logprobs',
      'raw logprobs of penalised',
    ];
    for (const vocab of [151_936, 262_144]) {
      const random = new Random(vocab);
      const rows: SampledRow[] = [];
      const logits: Float32Array[] = [];
      names.forEach((name, i) => {
        const tokens = tokensOf(vocab, 200, random);
        const row = rowCases(vocab, tokens, random)[name]!;
        rows.push({ row: { ...row, logprobs: 20, temperature: 0.6 }, tokens });
        logits.push(logitsOf(i % 3 === 2 ? 'ties' : 'normal', vocab, random));
      });
      let first: Sampled[] | null = null;
      for (const threads of [1, 2, 5]) {
        const sampler = await Sampler.make(await open({ threads }), vocab);
        // One row, so that threads share it, and all of them.
        const alone = await sampler.drawOnce(logits.slice(0, 1), rows.slice(0, 1));
        const drawn = await sampler.drawOnce(logits, rows);
        expect(drawn[0]).toEqual(alone[0]);
        first ??= drawn;
        expect(drawn, `${threads} threads`).toEqual(first);
      }
      let compared = 0;
      rows.forEach(({ row, tokens }, r) => {
        const want = sampleRow(logits[r]!, row, tokens);
        // Sums of so many weights in f32 leave borders less sharp.
        if (want.margin < 1e-5) return;
        compared++;
        expect(first![r]!.token, `${names[r]}, vocab ${vocab}`).toBe(want.token);
        expect(first![r]!.record!.logprob).toBeCloseTo(want.logprobs!.chosen, 4);
        expect(first![r]!.record!.rank).toBe(want.logprobs!.rank);
      });
      expect(compared).toBeGreaterThan(2);
    }
  }, 120_000);

  it('holds state only for rows that ask for it, and gives it all back', async () => {
    const device = await open();
    const vocab = 3000;
    const random = new Random(1);
    const sampler = await Sampler.make(device, vocab);
    const before = held(device);
    expect(before.samplerBytes).toBe(0);
    const tokens = tokensOf(vocab, 50, random);
    const draw = (row: RowParams) => sampler.draw([logitsOf('normal', vocab, random)], [{ row, tokens }]);
    for (const row of [
      {},
      { temperature: 1, topK: 5 },
      { logprobs: 3 },
      { temperature: 1, typicalP: 0.5, forced: 2 },
    ]) {
      await sampler.sync(0, { row, tokens });
      await draw(row);
      expect(held(device)).toEqual(before);
    }
    for (let round = 0; round < 20; round++) {
      for (let slot = 0; slot < 8; slot++) {
        await sampler.sync(slot, { row: PENALISED, tokens });
        const { bytes, slots } = sampler.rows;
        expect(slots).toBe(slot + 1);
        expect(device.stats().samplerBytes).toBe(bytes);
        expect(device.stats().bytes).toBe(before.bytes + Math.ceil(bytes / slots / 64) * 64 * slots);
      }
      await draw(PENALISED);
      // Another spec, another state; a cancelled row is let go of; one that never was, too.
      await sampler.sync(0, { row: { bias: { 3: 1 } }, tokens });
      for (let slot = 0; slot < 9; slot++) sampler.rows.release(slot);
      expect(held(device)).toEqual(before);
    }
    await sampler.sync(3, { row: PENALISED, tokens });
    await sampler.program.dispose();
    expect(device.stats().samplerBytes).toBe(0);
    expect(device.stats().bytes).toBeLessThan(before.bytes);
  });

  it('holds everything flat over 10,000 steps with every feature', async () => {
    const device = await open();
    const random = new Random(9);
    const vocab = 40;
    const sampler = await Sampler.make(device, vocab);
    const row: RowParams = { ...telling(PENALISED), temperature: 0.8, topP: 0.9, typicalP: 0.9 };
    const history = [1, 2, 3];
    await sampler.sync(0, { row, tokens: { history, promptLength: 3 } });
    const logits = [logitsOf('normal', vocab, random)];
    const before = held(device);
    for (let n = 0; n < 10_000; n++) {
      const [drawn] = await sampler.draw(logits, [{ row, tokens: { history, promptLength: 3 } }]);
      history.push(drawn!.token);
      if (history.length < 2000) continue;
      history.length = 3;
      await sampler.sync(0, { row, tokens: { history, promptLength: 3 } });
    }
    expect(held(device)).toEqual(before);
  });

  it('refuses rows that were not synced, slots and masks that are not there', async () => {
    const sampler = await Sampler.make(await open(), 70);
    const tokens = { history: [1], promptLength: 1 };
    const logits = [new Float32Array(70)];
    await expect(sampler.draw(logits, [{ row: PENALISED, tokens }])).rejects.toMatchObject({
      code: 'invalid-step',
    });
    await sampler.sync(0, { row: { bias: { 1: 1 } }, tokens });
    await expect(sampler.draw(logits, [{ row: PENALISED, tokens }])).rejects.toMatchObject({
      code: 'invalid-step',
    });
    // Raw log-probabilities of a row with penalties are kept in its state.
    const raw = { bias: { 1: 1 }, logprobs: 1 };
    await expect(sampler.draw(logits, [{ row: raw, tokens }])).rejects.toMatchObject({
      code: 'invalid-step',
    });
    await expect(sampler.sync(99_999, { row: PENALISED, tokens })).rejects.toMatchObject({
      code: 'invalid-sync',
    });
    const long = { history: new Array<number>(4097).fill(1), promptLength: 1 };
    await expect(sampler.sync(0, { row: PENALISED, tokens: long })).rejects.toMatchObject({
      code: 'invalid-sync',
    });
    expect(() => sampler.rows.setMask(0, new Uint32Array(3))).toThrow(/not synced with a mask/);
    await sampler.sync(0, { row: { mask: [1] }, tokens });
    expect(() => sampler.rows.setMask(0, new Uint32Array(2))).toThrow(/2 words/);
    expect((await sampler.draw(logits, [{ row: { mask: [1] }, tokens }]))[0]!.token).toBe(1);
  });
});

describe('a sampler whose weights lie in another memory', () => {
  it('draws, records and keeps state as in the first', async () => {
    const vocab = 2000;
    const random = new Random(12);
    const hidden = 64;
    const head = randomMatrix(random, vocab, hidden, { kind: 'float', dtype: 'f32' }).source;
    const data = random.normals(4 * hidden);
    const tokens = { history: [5, 9, 5, 9, 5], promptLength: 1 };
    const rows: RowParams[] = [
      { ...PENALISED, logprobs: 4 },
      { ...PENALISED, temperature: 1, mirostat: { tau: 3, eta: 0.2 }, logprobs: 20, processed: true },
      { temperature: 1, topP: 0.7 },
      { mask: [4, 5, 6] },
    ];
    const results: number[][] = [];
    for (const options of [{}, { memoryLimitBytes: 1.25 * 2 ** 20 }]) {
      const device = await open(options);
      const filler = options.memoryLimitBytes === undefined ? 0 : 2 ** 20;
      // The head does not fit beside what the first group will need.
      device.place([
        { matrices: [], kvBytes: filler },
        { matrices: [{ rows: vocab, cols: hidden, format: head.format }], kvBytes: 0 },
      ]);
      const weight = await device.loadMatrix([head], { use: 'linear', group: 1 });
      const ops = new Ops();
      const x = ops.input('tokens', hidden);
      ops.sample(ops.linear(ops.selectOutputs(x), weight));
      const limits = { maxTokens: 4, maxOutputs: 4, maxSequences: 4, maxContext: 64, inFlight: 2 };
      const program = await device.compile(ops.finish(), limits, null);
      program.write(x, data);
      for (const [slot, row] of rows.entries()) {
        await program.sampler!.sync(slot, specOfRow(row), Int32Array.from(tokens.history), 1);
        const mask = maskOfRow(row, vocab);
        if (mask !== null) program.sampler!.setMask(slot, mask);
      }
      const step = rowsStep(4, limits);
      const all: number[] = [];
      for (let n = 0; n < 3; n++) {
        rows.forEach((row, r) => {
          fillRow(step.sampling, r, row, tokens.history.length + n);
        });
        all.push(...(await program.submit(step)).ids);
      }
      expect(new Set(all.slice(0, 4)).size).toBeGreaterThan(1);
      results.push(all);
      if (options.memoryLimitBytes !== undefined) {
        expect((weight as unknown as { memory: { index: number } }).memory.index).toBe(1);
      }
    }
    expect(results[1]).toEqual(results[0]);
  });
});
