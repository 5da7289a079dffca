import { describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { built, choicesOn, dp4aOf, largePair, mlpPair } from '../../../../test/devices/mlp-pair.js';
import type { LinearShape } from '../kernel.js';
import { linearFits, linearKey } from './linear-choice.js';
import { ruleForLinear } from './linear-fast.js';
import { type ChoiceOf, keepsNormed, keepsNorming, normHanded } from './linear-handed.js';

describe('a norm between two products', () => {
  /** Down, and gate and up behind the norm of what it leaves. */
  const behind = (rows: number, hidden?: number, inner?: number): [LinearShape, LinearShape] => {
    const [up, down] = mlpPair(rows, hidden, inner);
    return [down, up];
  };
  const normed = (down: LinearShape, up: LinearShape, capabilities = LARGE): boolean =>
    normHanded(capabilities, down, up, choicesOn(capabilities)) === 'halves';
  const halves = ({ norm }: LinearShape) => ({ eps: norm!.eps, form: 'halves' }) as const;

  it.each([
    ['a small model', 1024, 3072, [17, 32, 33, 64]],
    ['a large one', 4096, 14_336, [9, 16, 17, 32, 33, 64]],
  ] as const)('goes into the launch of the slices of the first: %s', (_, hidden, inner, rows) => {
    const all = [1, 2, 4, 5, 8, 9, 16, 17, 32, 33, 64, 512];
    expect(all.filter((count) => normed(...behind(count, hidden, inner)))).toEqual(rows);
  });

  it.each([
    [1024, 3072, 4],
    [4096, 14_336, 8],
  ])('of rows of %i leaves the second a launch less, of the same text', (hidden, inner, splitK) => {
    const [down, up] = behind(32, hidden, inner);
    const given = { ...down, outNorm: halves(up) };
    const taken = { ...up, xNormed: 'halves' } as const;
    expect(ruleForLinear(LARGE, given)).toEqual(ruleForLinear(LARGE, down));
    expect(ruleForLinear(LARGE, taken)).toEqual(ruleForLinear(LARGE, up));
    expect([linearKey(given), linearKey(taken)]).toEqual([linearKey(down), linearKey(up)]);

    const [first, plain] = [built(given), built(down)];
    expect(first.stages).toHaveLength(plain.stages.length);
    expect(plain.stages.at(-1)!.label).toBe(`split-k ${splitK} [${hidden}]`);
    const writer = first.stages.at(-1)!;
    expect(writer.label).toBe(`split-k ${splitK}, rms-norm to halves [${hidden}]`);
    expect(writer.bindings.map(({ name, access }) => `${name} ${access}`)).toEqual([
      'scratchSplitK read',
      'residual read',
      'out read_write',
      'outNorm read',
      'scratchHalves read_write',
    ]);
    expect(first.stages.slice(0, -1).map(({ wgsl }) => wgsl)).toEqual(
      plain.stages.slice(0, -1).map(({ wgsl }) => wgsl),
    );
    // Where it lies there is room for its own x, and for what it leaves.
    expect(first.scratch!.scratchHalves).toBe(32 * Math.max(hidden, inner) * 2);
    const handing = built({ ...given, xHanded: 'halves' });
    expect(handing.scratch).toMatchObject({ scratchHanded: 32 * inner * 2, scratchHalves: 32 * hidden * 2 });

    const [second, own] = [built(taken), built(up)];
    expect(own.stages.map(({ label }) => label)[0]).toBe(`rms-norm to halves [${hidden}]`);
    expect(second.stages.map(({ wgsl }) => wgsl)).toEqual(own.stages.slice(1).map(({ wgsl }) => wgsl));
    expect(second.stages[0]!.bindings).toEqual(own.stages[1]!.bindings);
    expect(second.scratch).toEqual(own.scratch);
  });

  it('stays with the second where the first has no whole rows, or what it leaves is not what that reads', () => {
    const [down, up] = behind(32);
    expect(normed(down, up)).toBe(true);
    expect(normed({ ...down, bias: true, residual: false }, up)).toBe(true);
    expect(normed({ ...down, outOffset: 512, outStride: 2048 }, up)).toBe(false);
    expect(normed({ ...down, n: 512 }, { ...up })).toBe(false);
    expect(normed(down, { ...up, k: 512 })).toBe(false);
    expect(normed(down, { ...up, norm: null })).toBe(false);
    expect(normed(down, { ...up, rowKind: 'outputs' })).toBe(false);
    expect(normed(down, up, { ...LARGE, f16: false })).toBe(false);
    expect(normed(down, up, { ...LARGE, deterministic: true })).toBe(false);
    expect(normed(down, up, { ...LARGE, precision: 'reference' })).toBe(false);
    expect(
      normHanded(LARGE, down, up, (shape) => (shape === up ? null : ruleForLinear(LARGE, shape))),
    ).toBeNull();
  });

  it('goes into no kernel but that of slices', () => {
    const [down, up] = behind(32);
    const rule = ruleForLinear(LARGE, down)!;
    if (rule.family !== 'matrices') throw new Error('matrices are wanted');
    const fits = (splitK: number): boolean =>
      linearFits(
        LARGE,
        { ...down, outNorm: halves(up) },
        {
          family: 'matrices',
          config: { ...rule.config, splitK },
        },
      );
    expect([1, 2, 4].map(fits)).toEqual([false, true, true]);
    const [few] = behind(8);
    const other = ruleForLinear(LARGE, few)!;
    expect(other.family).not.toBe('matrices');
    expect(linearFits(LARGE, few, other)).toBe(true);
    expect(linearFits(LARGE, { ...few, outNorm: halves(up) }, other)).toBe(false);
  });
});

describe('a norm between two dp4a products', () => {
  const { attention, mlp } = {
    /** The output projection, and gate and up. */
    attention: (rows: number): [LinearShape, LinearShape] => {
      const [up, down] = largePair(rows);
      return [{ ...down, k: 4096, xStride: 4096 }, up];
    },
    /** Down, and q, k and v of the next layer. */
    mlp: (rows: number): [LinearShape, LinearShape] => {
      const [up, down] = largePair(rows);
      return [down, { ...up, n: 6144, outStride: 6144, glu: null }];
    },
  };
  const formOf = (producer: LinearShape, consumer: LinearShape, capabilities = LARGE) =>
    normHanded(capabilities, producer, consumer, choicesOn(capabilities));

  it.each([
    ['behind attention', attention],
    ['between layers', mlp],
  ] as const)('has no launch %s, of a few rows of a large model', (_, pairOf) => {
    const forms = [1, 2, 3, 4, 5, 8].map((rows) => formOf(...pairOf(rows)));
    expect(forms.map((form) => form !== null)).toEqual([false, true, true, true, false, false]);
    for (const [i, rows] of [2, 3, 4].entries())
      expect(forms[i + 1]).toMatchObject({ bytes: { rows, k: 4096, pieces: 1 }, tiles: 128 });
  });

  it('leaves the result twice, and sums of squares, by which the second norms what it makes', () => {
    for (const pairOf of [attention, mlp]) {
      const [producer, consumer] = pairOf(4);
      const form = formOf(producer, consumer)!;
      const given = { ...producer, xHanded: form === 'halves' ? form : form.bytes };
      const [first, plain] = [
        built({ ...given, outNorm: { eps: 1e-6, form } }),
        built({ ...consumer, xNormed: form }),
      ];
      expect(first.stages).toHaveLength(1);
      expect(first.stages[0]!.bindings.map(({ name, access }) => `${name} ${access}`)).toEqual([
        'codes read',
        'metas read',
        'out read_write',
        'residual read',
        'scratchHanded read',
        'scratchHandedTerms read',
        'scratchBytes read_write',
        'scratchTerms read_write',
        'outNorm read',
        'scratchSquares read_write',
      ]);
      expect(first.scratch).toMatchObject({
        scratchBytes: 4 * 4096,
        scratchTerms: 4 * (4096 / 32) * 8,
        scratchSquares: 4 * 128 * 4,
      });
      expect(plain.stages).toHaveLength(1);
      const reads = plain.stages[0]!.bindings.filter(({ access }) => access === 'read');
      expect(reads.map(({ name }) => name)).toEqual(
        expect.arrayContaining(['scratchBytes', 'scratchTerms', 'scratchSquares']),
      );
      expect(plain.scratch!.scratchSquares).toBe(4 * 128 * 4);
      expect(built(consumer).stages.map(({ label }) => label)[0]).toBe('rms-norm to bytes [4096]');
    }
  });

  it('keeps its launch where there is no room, or what is left is not what the second reads', () => {
    const [producer, consumer] = mlp(4);
    expect(formOf(producer, consumer)).not.toBeNull();
    expect(
      formOf({ ...producer, bias: true }, { ...consumer }, { ...LARGE, storageBuffers: 11 }),
    ).not.toBeNull();
    // Ten storage buffers, or eleven.
    expect(formOf({ ...producer }, { ...consumer }, { ...LARGE, storageBuffers: 10 })).not.toBeNull();
    expect(formOf({ ...producer }, { ...consumer }, { ...LARGE, storageBuffers: 9 })).toBeNull();
    expect(formOf({ ...producer, bias: true }, { ...consumer }, { ...LARGE, storageBuffers: 10 })).toBeNull();
    expect(formOf(producer, { ...consumer, norm: null })).toBeNull();
    expect(formOf(producer, { ...consumer, k: 2048 })).toBeNull();
    expect(formOf(producer, { ...consumer, rowKind: 'outputs' })).toBeNull();
    expect(formOf({ ...producer, outOffset: 64 }, consumer)).toBeNull();
    expect(formOf({ ...producer }, { ...consumer }, { ...LARGE, deterministic: true })).toBeNull();
    // Pieces of 64 columns are not whole in 32 features, nor are those of a product of another kind.
    const wide: ChoiceOf = (shape) => {
      const rule = ruleForLinear(LARGE, shape)!;
      return shape !== consumer || rule.family !== 'dp4a'
        ? rule
        : { family: 'dp4a', config: { ...rule.config, pieces: 2 } };
    };
    expect(normHanded(LARGE, producer, consumer, wide)).toBeNull();
  });

  it('goes on being left by any two choices that each would keep what rules choose', () => {
    const [producer, consumer] = mlp(4);
    const form = formOf(producer, consumer)!;
    const producers = [{}, { subgroups: 28 }, { across: 8, each: 4 }].map((sizes) => dp4aOf(producer, sizes));
    const consumers = [{}, { across: 8 }, { splits: 4 }].map((sizes) => dp4aOf(consumer, sizes));
    for (const choice of producers) expect(keepsNorming(LARGE, producer, form, choice)).toBe(true);
    for (const choice of consumers) expect(keepsNormed(form, choice)).toBe(true);
    for (const first of producers)
      for (const second of consumers)
        expect(
          normHanded(LARGE, producer, consumer, (shape) => (shape === producer ? first : second)),
        ).not.toBeNull();
    expect(keepsNorming(LARGE, producer, form, dp4aOf(producer, { subgroups: 7 }))).toBe(false);
    expect(keepsNormed(form, dp4aOf(consumer, { pieces: 2 }))).toBe(false);
    const gemv = {
      family: 'gemv',
      config: { subgroupSize: 32, subgroups: 8, rowsPerSubgroup: 2, splits: 1, workgroupBytes: 49152 },
    } as const;
    expect([keepsNorming(LARGE, producer, form, gemv), keepsNormed(form, gemv)]).toEqual([false, false]);
    // Halves, where they are taken, are no reason to choose anything.
    expect([keepsNorming(LARGE, producer, 'halves', gemv), keepsNormed('halves', gemv)]).toEqual([
      true,
      true,
    ]);
  });
});
