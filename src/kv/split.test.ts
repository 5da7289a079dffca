import { describe, expect, it } from 'vitest';
import { type KvChoice, kvChoiceName, parseKvChoice } from './formats.js';
import { expectedLoss, type KvLosses, readKvLosses } from './losses.js';
import { kvChoiceBytes, readKvPlan, writeKvPlan } from './plan-file.js';
import type { KvLayerShape } from './policy.js';
import { splitKvBytes } from './split.js';

const full: KvLayerShape = { kvHeads: 2, headDim: 64, window: null, group: 0 };
const f16 = { kind: 'float', dtype: 'f16' } as const;
const FORMATS = ['turbo2', 'turbo3', 'turbo4', 'turbo8'];
const code = (code: string) => expect.objectContaining({ code });

/** Losses that fall by width at another pace on every side. */
function lossesOf(layers: number): KvLosses {
  const side = (seed: number): Record<string, number> =>
    Object.fromEntries(FORMATS.map((name, i) => [name, (1 + ((seed * 7) % 5)) / (3 + (seed % 3)) ** i]));
  return {
    positions: 1,
    layers: Array.from({ length: layers }, (_, i) => ({ key: side(2 * i), value: side(2 * i + 1) })),
  };
}

/** All splits there are. */
function* every(layers: number): Generator<KvChoice[]> {
  if (layers === 0) return yield [];
  for (const rest of every(layers - 1))
    for (const key of [...FORMATS, 'f16'])
      for (const value of [...FORMATS, 'f16']) yield [...rest, parseKvChoice(`${key}/${value}`)];
}

describe('bits by side and layer', () => {
  it('are the split of least loss among all, for any number of bytes', () => {
    // Widths that share no unit: heads of 64 and of 80 dims.
    const layers = [full, { ...full, headDim: 80, kvHeads: 3 }];
    const losses = lossesOf(2);
    const all = [...every(2)].map((choices) => ({
      bytes: kvChoiceBytes(layers, choices),
      loss: expectedLoss(choices, losses)!,
    }));
    const least = Math.min(...all.map(({ bytes }) => bytes));
    for (const bytes of [least, least + 1, least + 57, 500, 777, 1000, 1473, 1e9]) {
      const split = splitKvBytes(layers, losses, bytes, f16);
      const best = Math.min(...all.filter((one) => one.bytes <= bytes).map(({ loss }) => loss));
      expect(split.loss).toBeCloseTo(best, 12);
      expect(expectedLoss(split.choices, losses)).toBeCloseTo(split.loss, 12);
      expect(split.bytes).toBe(kvChoiceBytes(layers, split.choices));
      expect(split.bytes).toBeLessThanOrEqual(bytes);
    }
    expect(() => splitKvBytes(layers, losses, least - 1, f16)).toThrow(code('kv-bytes-too-few'));
  });

  it('leave layers float that slide or were named, and recurrent ones out', () => {
    const recurrent = { kvHeads: 0, headDim: 0, window: null, group: 0, state: { rows: 1, cols: 1 } };
    const layers = [recurrent as unknown as KvLayerShape, full, { ...full, window: 32 }, full];
    const { choices } = splitKvBytes(layers, lossesOf(3), 1200, f16, [-1]);
    expect(choices.map(kvChoiceName).slice(2)).toEqual(['f16', 'f16']);
    expect(kvChoiceName(choices[0]!)).toBe('f16');
    expect(kvChoiceName(choices[1]!)).not.toBe('f16');
  });

  it('have layers named by their numbers, where one has K, V and a state, and another nothing', () => {
    const state = { conv: { channels: 4, taps: 2 }, matrix: null };
    const layers: KvLayerShape[] = [
      { ...full, layer: 0, kvHeads: 0, headDim: 0, state },
      { ...full, layer: 0 },
      { ...full, layer: 2 },
    ];
    const names = (skip: readonly number[]): string[] =>
      splitKvBytes(layers, lossesOf(2), 700, f16, skip).choices.map(kvChoiceName);
    for (const [skip, float] of [
      [[0], [true, false]],
      [[2], [false, true]],
      [[-1], [false, true]],
      [[1], [false, false]],
    ] as const)
      expect(
        names(skip)
          .slice(1)
          .map((name) => name === 'f16'),
      ).toEqual(float);
    expect(() => names([3])).toThrow(code('kv-layer-unknown'));
  });

  it('are a file that is read as it was written; what is none is refused', () => {
    const choices = ['turbo4/turbo3', 'turbo3.5', 'f16'].map(parseKvChoice);
    const text = writeKvPlan(choices, 123);
    expect(readKvPlan(text, 'a.json').map(parseKvChoice)).toEqual(choices);
    for (const broken of [
      '',
      '[]',
      'null',
      '{"format":"kvant-kv-plan-1"}',
      text.replace('-plan-1', '-plan-2'),
    ])
      expect(() => readKvPlan(broken, 'a.json')).toThrow(code('kv-plan-invalid'));
    expect(() => readKvPlan(text.replace('turbo3.5', 'turbo9'), 'a.json')).toThrow(code('kv-format-unknown'));
  });

  it('go by losses of as many layers as the model has', () => {
    const losses = lossesOf(2);
    expect(readKvLosses(JSON.parse(JSON.stringify(losses)), 2)).toEqual(losses);
    expect(readKvLosses({ ...losses, layers: [] }, 2)).toBeUndefined();
    const minus = { ...losses, layers: losses.layers.map((of) => ({ ...of, key: { turbo4: -1 } })) };
    for (const broken of [null, {}, { ...losses, positions: 1.5 }, minus])
      expect(readKvLosses(broken, 2)).toBeUndefined();
    expect(readKvLosses(losses, 3)).toBeUndefined();
    expect(expectedLoss([parseKvChoice('affine4')], losses)).toBeUndefined();
  });
});
