import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { logitsOf, tokensOf } from './sampling-cases.js';
import { sampleRowOnce } from './sampling-once.js';
import { penalise, type RowParams, type RowTokens } from './sampling-reference.js';
import { canDo, type Sampled, Sampler, telling } from './sampling-run.js';

/** Few enough ids that a record tells all processed logits. */
const VOCAB = 20;

/** Penalties that read a row's tokens, alone and together. */
const PENALTIES: Record<string, RowParams> = {
  repetition: { repetition: { penalty: 1.3 } },
  'repetition over a window': { repetition: { penalty: 0.8, window: 7 } },
  'frequency and presence': { frequency: 0.31, presence: -0.7 },
  dry: { dry: { multiplier: 0.8, allowedLength: 2 } },
  'dry over a window, with breakers': {
    dry: {
      multiplier: 0.5,
      base: 1.3,
      allowedLength: 1,
      window: 40,
      breakers: [3],
      breakerSequences: [[4, 5]],
    },
  },
  'banned sequences': {
    banned: [
      [1, 2, 3],
      [4, 5],
      [5, 4],
      [2, 2, 2, 2],
      [17, 0],
    ],
  },
  'all of them': {
    bias: { 2: 1.5, 9: -4 },
    banned: [
      [1, 2],
      [2, 1, 0],
    ],
    withheld: [19],
    repetition: { penalty: 1.2, window: 64 },
    frequency: 0.02,
    presence: 0.4,
    dry: { multiplier: 0.1, base: 1.2, allowedLength: 3 },
  },
};

/** Processed log-probabilities against the formula: as they lie to each other, so to 1e-5 of the logits. */
function checkFormula(
  got: Sampled,
  logits: Float32Array,
  row: RowParams,
  tokens: RowTokens,
  what: string,
): void {
  const x = penalise(logits, row, tokens);
  const { ids, logprobs } = got.record!;
  expect(ids.length, what).toBe(x.length);
  const at = new Map([...ids].map((id, i) => [id, logprobs[i]!]));
  const first = ids[0]!;
  const scale = Math.max(...Array.from(x, (v) => (v === Number.NEGATIVE_INFINITY ? 0 : Math.abs(v))), 1);
  x.forEach((want, id) => {
    const value = at.get(id)! - at.get(first)!;
    if (want === Number.NEGATIVE_INFINITY) expect(value, `${what}, id ${id}`).toBe(want);
    else expect(Math.abs(value - (want - x[first]!)), `${what}, id ${id}`).toBeLessThan(1e-5 * scale * 2);
  });
}

describe.each(kernelDevices)('penalties on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });
  const penalties = Object.entries(PENALTIES).filter(([, row]) => canDo(spec, telling(row)));

  it('are those of the formulas, carried on or built anew, over 1,000 tokens with rollbacks', async () => {
    const total = spec.slow ? 150 : 1000;
    for (const [name, penalty] of penalties) {
      const random = new Random(name.length);
      const sampler = await Sampler.make(device, VOCAB);
      let tokens = tokensOf(VOCAB, 60, random);
      const { promptLength } = tokens;
      const row = (forced: number): RowParams => ({ ...telling(penalty), forced });
      await sampler.sync(0, { row: row(0), tokens });
      let checked = 0;
      while (tokens.history.length < total) {
        const logits = logitsOf('normal', VOCAB, random);
        // Now and then what was said before goes on, so that matches grow long.
        const { history } = tokens;
        const again = history[history.length - 1 - 12]!;
        const forced = random.int(3) > 0 ? again : random.int(VOCAB);
        const drawn = { row: row(forced), tokens };
        // Built anew, and beside it a slot that has carried on.
        if (checked % 7 === 0) await sampler.sync(1, drawn);
        const rows = checked % 7 === 0 ? [drawn, drawn] : [drawn];
        const [carried, rebuilt] = await sampler.draw(
          rows.map(() => logits),
          rows,
        );
        if (rebuilt !== undefined) {
          expect(carried, `${name} at ${history.length}`).toEqual(rebuilt);
          checkFormula(carried!, logits, penalty, tokens, `${name} at ${history.length}`);
          sampler.rows.release(1);
        }
        expect(carried!.token).toBe(forced);
        checked++;
        tokens = { promptLength, history: [...history, forced] };
        const roll = random.int(60);
        if (roll > 2 || tokens.history.length > total - 20) continue;
        if (roll === 0) {
          const left = Math.max(promptLength, tokens.history.length - 1 - random.int(40));
          tokens = { promptLength, history: tokens.history.slice(0, left) };
        } else if (roll === 1) {
          // Different behind an equal tip.
          const changed = [...tokens.history];
          changed[random.int(changed.length - 1)] = random.int(VOCAB);
          tokens = { promptLength, history: changed };
        } else {
          // Longer by more than one.
          tokens = { promptLength, history: [...tokens.history, 1, 2, 1, 2, 1] };
        }
        await sampler.sync(0, { row: row(0), tokens });
      }
      expect(checked).toBeGreaterThan(total / 2);
      await sampler.program.dispose();
    }
  });

  it('leave greedy rows at the tokens of the formulas for 40 steps', async () => {
    const vocab = 500;
    const random = new Random(11);
    const sampler = await Sampler.make(device, vocab);
    const rows = penalties.map(([, row]) => row);
    const tokens = rows
      .map(() => tokensOf(vocab, 20, random))
      .map((t) => ({ ...t, history: [...t.history] }));
    for (const [slot, row] of rows.entries()) await sampler.sync(slot, { row, tokens: tokens[slot]! });
    // The same logits at every step: only penalties make the rows move on.
    const logits = rows.map(() => logitsOf('normal', vocab, random));
    const moved = rows.map(() => new Set<number>());
    for (let step = 0; step < 40 && rows.length > 0; step++) {
      const drawn = await sampler.draw(
        logits,
        rows.map((row, r) => ({ row, tokens: tokens[r]! })),
      );
      for (const [r, { token }] of drawn.entries()) {
        const want = sampleRowOnce(logits[r]!, rows[r]!, tokens[r]!);
        expect(want.margin, `row ${r} step ${step}`).toBeGreaterThan(1e-5);
        expect(token, `row ${r} step ${step}`).toBe(want.token);
        tokens[r]!.history.push(token);
        moved[r]!.add(token);
      }
    }
    if (rows.length > 0) expect(Math.max(...moved.map((ids) => ids.size))).toBeGreaterThan(5);
    await sampler.program.dispose();
  });

  it('keep finite logits finite, and the order of what penalties are', async () => {
    const sampler = await Sampler.make(device, VOCAB);
    const logits = new Float32Array(VOCAB).fill(1);
    logits.set([3e38, -3e38, 1e30, -1e-30, Number.NEGATIVE_INFINITY, 40, -40, 0], 0);
    const tokens = { history: [0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 5, 6], promptLength: 1 };
    for (const penalty of [
      { repetition: { penalty: 1e-30 } },
      { repetition: { penalty: 1e30 } },
      { frequency: 1e38, presence: 1e38 },
      { bias: { 0: 3e38, 1: -3e38, 8: Number.NEGATIVE_INFINITY } },
      { dry: { multiplier: 1e38, base: 1e10, allowedLength: 1 } },
      { bias: { 5: -60 }, repetition: { penalty: 2 }, frequency: 1 },
    ] satisfies RowParams[]) {
      const row = telling(penalty);
      if (!canDo(spec, row)) continue;
      await sampler.sync(0, { row, tokens });
      const [got] = await sampler.draw([logits], [{ row, tokens }]);
      const x = penalise(logits, row, tokens);
      const want = sampleRowOnce(logits, row, tokens);
      expect(got!.token, JSON.stringify(penalty)).toBe(want.token);
      const infinite = [...x].filter((v) => v === Number.NEGATIVE_INFINITY).length;
      const found = [...got!.record!.logprobs].filter((v) => v === Number.NEGATIVE_INFINITY).length;
      expect(found, JSON.stringify(penalty)).toBe(infinite);
      sampler.rows.release(0);
    }
    await sampler.program.dispose();
  });
});
