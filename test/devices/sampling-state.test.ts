import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { StepResult } from '../../src/device/step-result.js';
import { held } from '../setup/held.js';
import { kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { record, rowsStep, withProgram } from './run.js';
import { logitsOf, rowCases, tokensOf } from './sampling-cases.js';
import { sampleRowOnce } from './sampling-once.js';
import { fillRow, type RowParams, type RowTokens, specOfRow } from './sampling-reference.js';
import { SAMPLER_FEATURES, type Sampled, type SampledRow, Sampler, telling } from './sampling-run.js';
import { randomMatrix } from './sources.js';

const VOCAB = 1100;
/** Tokens come from these: what state is made of. */
const LETTERS = 12;

/** Everything that state is kept for, told in full. */
const ROW: RowParams = telling({
  temperature: 0.8,
  seed: [3, 4],
  repetition: { penalty: 1.2, window: 20 },
  frequency: 0.3,
  presence: 0.2,
  dry: {
    multiplier: 0.6,
    base: 1.3,
    allowedLength: 1,
    window: 50,
    breakers: [3],
    breakerSequences: [
      [1, 2],
      [5, 5, 6],
    ],
  },
  banned: [
    [4, 5, 6],
    [7, 8],
  ],
});
/** The same without windows: all of the history. */
const UNBOUNDED: RowParams = {
  ...ROW,
  repetition: { penalty: 1.3 },
  dry: { multiplier: 0.01, base: 1.1, allowedLength: 2 },
};

function letters(length: number, random: Random): number[] {
  const out: number[] = [];
  while (out.length < length) {
    if (out.length > 6 && random.int(2) === 0) {
      const from = random.int(out.length - 5);
      out.push(...out.slice(from, from + 2 + random.int(9)));
    } else out.push(random.int(LETTERS));
  }
  return out.slice(0, length);
}

/** The letters stand out, so that all of them are among the alternatives that a record lists. */
function logits(random: Random): Float32Array {
  const out = random.normals(VOCAB);
  for (let i = 0; i < LETTERS; i++) out[i] = out[i]! + 12;
  return out;
}

describe.each(kernelDevices)('sampler state on $name', (spec) => {
  let device: Device;
  let sampler: Sampler;
  beforeAll(async () => {
    device = await spec.create();
    sampler = await Sampler.make(device, VOCAB);
    expect(SAMPLER_FEATURES[spec.kind]).toBe(sampler.rows.features);
  });
  afterAll(async () => {
    await sampler.program.dispose();
    await device[Symbol.asyncDispose]();
  });

  it.each([
    ['with windows', ROW],
    ['over the whole history', UNBOUNDED],
  ])('is the same carried on or rebuilt, bit for bit, %s', { timeout: 180_000 }, async (_, row) => {
    const random = new Random(17);
    let history = letters(1000, random);
    const promptLength = 300;
    const held = { row, tokens: { history, promptLength } };
    await sampler.sync(0, held);
    let next = letters(400, random);
    for (let n = 0; n < (spec.slow ? 40 : 250); n++) {
      const kind = random.int(12);
      if (kind < 3) {
        // The host rewrites the history: it goes on, shrinks, or changes far behind the same last token.
        if (kind === 0) history = [...history, ...letters(1 + random.int(5), random)];
        if (kind === 1) history = history.slice(0, history.length - 1 - random.int(60));
        if (kind === 2)
          history = history.map((id, i) =>
            i === history.length - 2 - random.int(9) ? (id + 1) % LETTERS : id,
          );
        await sampler.sync(0, { row, tokens: { history, promptLength } });
      }
      if (kind === 3) {
        // Tokens come without a draw.
        history = [...history, ...letters(1 + random.int(9), random)];
        sampler.rows.take(0, Int32Array.from(history), specOfRow(row).mu);
      }
      const tokens = { history, promptLength };
      const forced = next[n]!;
      const own = { ...row, forced };
      const l = logits(random);
      // The second row is made anew for every step.
      await sampler.sync(1, { row: own, tokens });
      const drawn = await sampler.draw(
        [l, l],
        [
          { row: own, tokens },
          { row: own, tokens },
        ],
      );
      sampler.rows.release(1);
      expect(drawn[0]!.words, `step ${n}`).toEqual(drawn[1]!.words);
      expect(drawn[0]!.token).toBe(forced);
      const want = sampleRowOnce(l, own, tokens).logprobs!;
      want.values.forEach((value, i) => {
        expect(Math.abs(drawn[0]!.record!.logprobs[i]! - value), `step ${n}, ${i}`).toBeLessThan(
          1e-5 * Math.max(1, Math.abs(value)) + 2e-6,
        );
      });
      history = [...history, forced];
      if (n === 20) next = letters(400, new Random(5));
    }
    sampler.rows.release(0);
  });

  it('carries on what a step drew before the host has seen it', async () => {
    // Every token has the same logits: what greedy draws is decided by the penalties alone.
    const vocab = 40;
    const flat = new Float32Array(vocab).fill(-5).fill(1, 0, LETTERS);
    const bytes = new Uint8Array(vocab * vocab * 4);
    for (let i = 0; i < vocab; i++) bytes.set(new Uint8Array(flat.buffer), i * vocab * 4);
    const { source } = randomMatrix(new Random(1), vocab, vocab, { kind: 'float', dtype: 'f32' });
    const readRows = async (from: number, to: number) => ({
      data: bytes.slice(from * vocab * 4, to * vocab * 4),
    });
    const table = await device.loadMatrix([{ ...source, readRows }], { use: 'embedding' });
    const { graph } = record((ops) => ops.sample(ops.selectOutputs(ops.embed(table))));
    await withProgram(device, graph, null, async (program) => {
      const tokens: RowTokens = { history: letters(40, new Random(8)), promptLength: 10 };
      const row: RowParams = { ...ROW, temperature: 0 };
      const rows = program.sampler!;
      await rows.sync(2, specOfRow(row), Int32Array.from(tokens.history), tokens.promptLength);
      const step = rowsStep(1);
      step.outputSlot[0] = 2;
      step.tokens[0] = 1;
      const history = [...tokens.history];
      const pending: Promise<StepResult>[] = [];
      let compared = 0;
      for (let n = 0; n < 24; n++) {
        fillRow(step.sampling, 0, row, tokens.history.length + n);
        pending.push(program.submit(step));
        step.tokens[0] = -3;
        if (pending.length < 2) continue;
        const token = (await pending.shift()!).ids[0]!;
        const want = sampleRowOnce(flat, row, { ...tokens, history });
        if (want.margin > 1e-5) {
          expect(token).toBe(want.token);
          compared++;
        }
        history.push(token);
      }
      await Promise.all(pending);
      expect(compared).toBeGreaterThan(15);
      rows.release(2);
    });
  });

  it('adapts mirostat from draw to draw, and takes it up again where a record left it', async () => {
    const random = new Random(6);
    const row: RowParams = { temperature: 1.1, seed: [9, 9], mirostat: { tau: 2.5, eta: 0.3 } };
    let history = letters(5, random);
    let mu = 5;
    await sampler.sync(4, { row, tokens: { history, promptLength: 5 } });
    for (let n = 0; n < 12; n++) {
      const tokens = { history, promptLength: 5 };
      if (n === 6) {
        sampler.rows.release(4);
        await sampler.sync(4, { row: { ...row, mirostat: { tau: 2.5, eta: 0.3, mu } }, tokens });
      }
      const l = random.normals(VOCAB, 2);
      const [drawn] = await sampler.draw([l], [{ row, tokens }], [4]);
      const want = sampleRowOnce(l, row, tokens, mu);
      if (want.margin > 1e-4) expect(drawn!.token).toBe(want.token);
      if (drawn!.token === want.token) expect(Math.abs(drawn!.record!.mu - want.mu)).toBeLessThan(1e-4);
      expect(drawn!.record!.mu).not.toBe(mu);
      mu = drawn!.record!.mu;
      history = [...history, drawn!.token];
    }
    sampler.rows.release(4);
  });

  it('exists for slots that were synced, until they are released', async () => {
    const tokens = tokensOf(VOCAB, 60, new Random(2));
    const cases = rowCases(VOCAB, tokens, new Random(3));
    const before = held(device);
    expect(before.samplerBytes).toBe(0);
    expect(sampler.rows.bytes).toBe(0);
    // Kernels alone.
    for (const name of ['typical-p', 'logprobs', 'xtc', 'top-n-sigma'])
      await sampler.sync(5, { row: cases[name]!, tokens });
    expect(sampler.rows.slots).toBe(0);
    expect(device.stats().samplerBytes).toBe(0);
    let round = 0;
    let bytes = 0;
    while (round++ < 3) {
      for (let slot = 0; slot < 40; slot++) {
        await sampler.sync(slot, { row: cases['all penalties']!, tokens });
        expect(sampler.rows.slots).toBe(slot + 1);
      }
      const now = device.stats();
      expect(now.samplerBytes).toBe(sampler.rows.bytes);
      expect(now.samplerBytes).toBeGreaterThan(40 * VOCAB * 4);
      // An allocator may round up, and no more.
      const more = now.bytes - before.bytes - now.samplerBytes;
      expect(more).toBeGreaterThanOrEqual(0);
      expect(more).toBeLessThanOrEqual(64 * 40);
      if (bytes !== 0) expect(now.samplerBytes).toBe(bytes);
      bytes = now.samplerBytes;
      // Some go, others come in their place: no growth.
      for (let slot = 0; slot < 40; slot += 2) sampler.rows.release(slot);
      for (let slot = 0; slot < 40; slot += 2)
        await sampler.sync(slot, { row: cases['all penalties']!, tokens });
      expect(device.stats().samplerBytes).toBe(bytes);
      for (let slot = 0; slot < 40; slot++) sampler.rows.release(slot);
      sampler.rows.release(3);
      expect(sampler.rows.slots).toBe(0);
      expect(held(device)).toEqual(before);
    }
  });

  it('of one slot does not feel what becomes of the others', async () => {
    const random = new Random(12);
    const cases = rowCases(VOCAB, tokensOf(VOCAB, 50, random), random);
    const rows: SampledRow[] = ['all penalties', 'mirostat', 'mask', 'dry, window and breakers'].map(
      (name) => ({
        row: telling(cases[name]!),
        tokens: tokensOf(VOCAB, 50, random),
      }),
    );
    const l = rows.map(() => logitsOf('normal', VOCAB, random));
    const alone: Sampled[] = [];
    for (const [r, row] of rows.entries()) alone.push((await sampler.drawOnce([l[r]!], [row]))[0]!);
    // Slots come in between, of all sizes, and the buffer that holds them grows.
    const slots = [0, 20, 3, 41];
    for (const [r, row] of rows.entries()) {
      await sampler.sync(slots[r]!, row);
      for (let i = 1; i < 9; i++)
        await sampler.sync(slots[r]! + i, { row: cases['all penalties']!, tokens: rows[0]!.tokens });
    }
    for (let i = 1; i < 9; i += 2) sampler.rows.release(20 + i);
    await sampler.sync(60, { row: cases.repetition!, tokens: rows[1]!.tokens });
    const together = await sampler.draw(l, rows, slots);
    together.forEach((got, r) => {
      if (spec.bitwise) expect(got).toEqual(alone[r]);
      expect(got.token).toBe(alone[r]!.token);
    });
    for (let slot = 0; slot < 64; slot++) sampler.rows.release(slot);
    expect(device.stats().samplerBytes).toBe(0);
  });
});
