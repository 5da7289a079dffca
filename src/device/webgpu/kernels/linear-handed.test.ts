import { describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import type { Capabilities, Handed, LinearShape } from '../kernel.js';
import { TunedChoices } from '../tuning/tuned-choices.js';
import { type LinearChoice, linearFits, linearKernel, linearKey } from './linear-choice.js';
import { chooseLinear, ruleForLinear } from './linear-fast.js';
import {
  type ChoiceOf,
  formHanded,
  formOfAll,
  formTaken,
  keepsNormed,
  keepsNorming,
  keepsTaking,
  normHanded,
} from './linear-handed.js';

const base = {
  rowKind: 'tokens',
  weight: { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' },
  outOffset: 0,
  bias: false,
} as const;

/** Gate and up, and the product behind them. */
function pair(rows: number, hidden = 1024, inner = 3072): [LinearShape, LinearShape] {
  return [
    {
      ...base,
      rows,
      n: 2 * inner,
      k: hidden,
      xStride: hidden,
      outStride: inner,
      residual: false,
      norm: { eps: 1e-6 },
      glu: 'silu',
    },
    {
      ...base,
      rows,
      n: hidden,
      k: inner,
      xStride: inner,
      outStride: hidden,
      residual: true,
      norm: null,
      glu: null,
    },
  ];
}
/** Of Llama of 8 billion weights. */
const large = (rows: number): [LinearShape, LinearShape] => pair(rows, 4096, 14_336);

const choicesOn =
  (capabilities: Capabilities): ChoiceOf =>
  (shape) =>
    chooseLinear(capabilities, shape);
const handed = (up: LinearShape, down: LinearShape, capabilities = LARGE): Handed | null =>
  formHanded(capabilities, up, down, choicesOn(capabilities));
const built = (shape: LinearShape, capabilities = LARGE) =>
  linearKernel(capabilities, shape, chooseLinear(capabilities, shape)!);

describe('halves that one GEMM hands to the next', () => {
  it.each([32, 64, 512])('lie of %i rows where the launch that makes them would leave them', (rows) => {
    const [up, down] = pair(rows);
    expect(handed(up, down)).toBe('halves');
    const given = { ...up, outHanded: 'halves' } as const;
    const taken = { ...down, xHanded: 'halves' } as const;
    // What is handed over decides nothing else.
    expect(ruleForLinear(LARGE, given)).toEqual(ruleForLinear(LARGE, up));
    expect(ruleForLinear(LARGE, taken)).toEqual(ruleForLinear(LARGE, down));

    const first = built(given);
    const writer = first.stages.at(-1)!;
    expect(writer.bindings).toContainEqual({
      name: 'scratchHanded',
      access: 'read_write',
      type: 'array<f16>',
    });
    expect(writer.wgsl).toContain('let to = row * 3072u + 0u + feature;');
    expect(writer.wgsl).toContain('out[to] = half_(value);');
    expect(first.scratch).toMatchObject({ scratchHanded: rows * 3072 * 2, scratchHalves: rows * 1024 * 2 });

    const own = built(down);
    const second = built(taken);
    expect(own.stages.map(({ label }) => label)[0]).toBe('halves [3072]');
    expect(second.stages).toHaveLength(own.stages.length - 1);
    // The same product of the same halves, from another buffer.
    expect(second.stages[0]!.wgsl).toBe(own.stages[1]!.wgsl);
    expect(second.stages[0]!.bindings).toContainEqual({
      name: 'scratchHanded',
      access: 'read',
      type: 'array<vec4<u32>>',
    });
  });

  it('are not where a product has no matrices of halves, a norm of its own, or another width', () => {
    const [up, down] = pair(32);
    expect(handed(...pair(8))).toBeNull();
    expect(handed(up, { ...down, norm: { eps: 1e-6 } })).toBeNull();
    expect(handed(up, { ...down, k: 1536 })).toBeNull();
    expect(handed({ ...up, glu: null }, down)).toBeNull();
    expect(handed(up, down, { ...LARGE, f16: false })).toBeNull();
  });

  it('are taken from attention by the products that would make them of it', () => {
    const taken = (rows: number, more: Partial<LinearShape>, capabilities = LARGE): Handed | null => {
      const shape = { ...pair(rows)[1], ...more };
      return formTaken(capabilities, shape, 2048, chooseLinear(capabilities, shape));
    };
    const output = { k: 2048, xStride: 2048 };
    expect([1, 4, 8, 16, 32, 512].map((rows) => taken(rows, output))).toEqual([
      null,
      null,
      null,
      'halves',
      'halves',
      'halves',
    ]);
    expect(taken(32, {})).toBeNull();
    expect(taken(32, { ...output, norm: { eps: 1e-6 } })).toBeNull();
    expect(taken(32, output, { ...LARGE, f16: false })).toBeNull();
    expect(taken(32, output, { ...LARGE, deterministic: true })).toBeNull();
  });
});

describe('a norm between two products', () => {
  /** Down, and gate and up behind the norm of what it leaves. */
  const behind = (rows: number, hidden?: number, inner?: number): [LinearShape, LinearShape] => {
    const [up, down] = pair(rows, hidden, inner);
    return [down, up];
  };
  const normed = (down: LinearShape, up: LinearShape, capabilities = LARGE): boolean =>
    normHanded(capabilities, down, up, choicesOn(capabilities)) === 'halves';
  const halves = ({ norm }: LinearShape) => ({ eps: norm!.eps, form: 'halves' }) as const;

  it.each([
    ['a small model', 1024, 3072, [17, 32]],
    ['a large one', 4096, 14_336, [9, 16, 17, 32]],
  ] as const)('goes into the launch of the slices of the first: %s', (_, hidden, inner, rows) => {
    const all = [1, 2, 4, 5, 8, 9, 16, 17, 32, 33, 64, 512];
    expect(all.filter((count) => normed(...behind(count, hidden, inner)))).toEqual(rows);
  });

  it.each([
    [1024, 3072, 4],
    [4096, 14_336, 8],
  ])('of rows of %i leaves the second a launch less, of the same text', (hidden, inner, slices) => {
    const [down, up] = behind(32, hidden, inner);
    const given = { ...down, outNorm: halves(up) };
    const taken = { ...up, xNormed: 'halves' } as const;
    expect(ruleForLinear(LARGE, given)).toEqual(ruleForLinear(LARGE, down));
    expect(ruleForLinear(LARGE, taken)).toEqual(ruleForLinear(LARGE, up));
    expect([linearKey(given), linearKey(taken)]).toEqual([linearKey(down), linearKey(up)]);

    const [first, plain] = [built(given), built(down)];
    expect(first.stages).toHaveLength(plain.stages.length);
    expect(plain.stages.at(-1)!.label).toBe(`slices ${slices} [${hidden}]`);
    const writer = first.stages.at(-1)!;
    expect(writer.label).toBe(`slices ${slices}, rms-norm to halves [${hidden}]`);
    expect(writer.bindings.map(({ name, access }) => `${name} ${access}`)).toEqual([
      'scratchSlices read',
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
    const fits = (slices: number): boolean =>
      linearFits(
        LARGE,
        { ...down, outNorm: halves(up) },
        {
          family: 'matrices',
          config: { ...rule.config, slices },
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

describe('bytes that one product of dots hands to the next', () => {
  /** As rules choose it, with other sizes. */
  const dots = (shape: LinearShape, sizes: object): LinearChoice => {
    const rule = ruleForLinear(LARGE, shape);
    if (rule?.family !== 'dots') throw new Error('dots are wanted');
    return { family: 'dots', config: { ...rule.config, ...sizes } };
  };

  it.each([2, 3, 4])('lie of %i rows as the next one would make them, which saves its launch', (rows) => {
    const [up, down] = large(rows);
    const form = handed(up, down);
    const planes = rows <= 2 ? 2 : 1;
    const layout = { rows, k: 14_336, bits: 4, pieces: 2, planes, across: 4, chunkSteps: 28 };
    expect(form).toEqual(layout);
    const given = { ...up, outHanded: form };
    const taken = { ...down, xHanded: form };
    expect(chooseLinear(LARGE, given)).toEqual(chooseLinear(LARGE, up));
    expect(chooseLinear(LARGE, taken)).toEqual(chooseLinear(LARGE, down));
    expect(linearKey(given)).toBe(linearKey(up));

    const first = built(given);
    expect(first.stages).toHaveLength(built(up).stages.length);
    const bindings = first.stages.at(-1)!.bindings.map(({ name, access }) => `${name} ${access}`);
    expect(bindings).toEqual([
      'codes read',
      'metas read',
      'scratchBytes read',
      'scratchTerms read',
      'scratchHanded read_write',
      'scratchHandedTerms read_write',
    ]);
    const sizes = { bytes: rows * 14_336 * planes, terms: rows * (14_336 / 64) * 8 };
    expect(first.scratch).toMatchObject({ scratchHanded: sizes.bytes, scratchHandedTerms: sizes.terms });

    const own = built(down);
    const second = built(taken);
    expect(own.stages.map(({ label }) => label)[0]).toBe('bytes [14336]');
    expect(second.stages).toHaveLength(1);
    expect(second.stages[0]!.wgsl).toBe(own.stages[1]!.wgsl);
    expect(second.stages[0]!.bindings.map(({ name }) => name)).toContain('scratchHanded');
    expect(second.stages[0]!.bindings.map(({ name }) => name)).not.toContain('scratchBytes');
    expect(second.scratch).toEqual({ scratchHanded: sizes.bytes, scratchHandedTerms: sizes.terms });
  });

  it('are left by workgroups that make whole pieces of them alone', () => {
    const [up, down] = large(8);
    // 64 features of a workgroup, and pieces of 64 columns.
    expect(ruleForLinear(LARGE, up)).toMatchObject({
      config: { subgroups: 8, splits: 1, each: 4, across: 8 },
    });
    expect(handed(up, down)).toMatchObject({ pieces: 2, chunkSteps: 56 });
    const half: ChoiceOf = (shape) =>
      shape === up ? dots(up, { subgroups: 4 }) : ruleForLinear(LARGE, shape);
    expect(formHanded(LARGE, up, down, half)).toBeNull();
    const small: ChoiceOf = (shape) =>
      shape === up ? dots(up, { subgroups: 4 }) : dots(down, { pieces: 1, chunks: 8 });
    expect(formHanded(LARGE, up, down, small)).toMatchObject({ pieces: 1, chunkSteps: 14 });
  });

  it('are not where there is no room for the values, nor where a form is of another kind', () => {
    const [up, down] = large(4);
    const choice = ruleForLinear(LARGE, up)!;
    const form = handed(up, down)!;
    const within = (workgroupBytes: number): boolean =>
      linearFits(LARGE, { ...up, outHanded: form }, {
        family: 'dots',
        config: { ...choice.config, workgroupBytes },
      } as LinearChoice);
    // x of 4 rows in pieces of 32 columns, and 64 values of each row.
    const bytes = 4 * (4096 / 32) * (32 + 8) + 4 * 64 * 4;
    expect([within(bytes), within(bytes - 1)]).toEqual([true, false]);
    expect(linearFits(LARGE, { ...up, outHanded: 'halves' }, choice)).toBe(false);
    const gemv = {
      family: 'gemv',
      config: { subgroupSize: 32, subgroups: 8, rowsPerSubgroup: 2, splits: 1, workgroupBytes: 49152 },
    } as const;
    expect(linearFits(LARGE, up, gemv)).toBe(true);
    expect(linearFits(LARGE, { ...up, outHanded: form }, gemv)).toBe(false);
    expect(handed({ ...up, outOffset: 64 }, down)).toBeNull();
    expect(handed(up, { ...down, norm: { eps: 1e-6 } })).toBeNull();
    expect(handed(...large(1))).toBeNull();
    expect(handed(up, down, { ...LARGE, deterministic: true })).toBeNull();
  });

  it('follow what either product was tuned to, and are not where that has no room for them', () => {
    const [up, down] = large(4);
    const tunedTo = (shape: LinearShape, choice: LinearChoice): Handed | null => {
      const tuned = new TunedChoices();
      tuned.adoptLinear(linearKey(shape), choice);
      return handed({ ...up }, { ...down }, { ...LARGE, tuned });
    };
    expect(tunedTo(down, dots(down, { across: 2, splits: 7, chunks: 4, pieces: 1 }))).toEqual({
      rows: 4,
      k: 14_336,
      bits: 4,
      pieces: 1,
      planes: 1,
      across: 2,
      chunkSteps: 56,
    });
    expect(tunedTo(up, dots(up, { subgroups: 16 }))).toEqual(handed(up, down));
    expect(tunedTo(up, dots(up, { subgroups: 4 }))).toBeNull();
    const gemv = { subgroupSize: 32, subgroups: 8, rowsPerSubgroup: 2, splits: 1, workgroupBytes: 49152 };
    expect(tunedTo(up, { family: 'gemv', config: gemv })).toBeNull();
    expect(tunedTo(down, { family: 'gemv', config: gemv })).toBeNull();
  });

  it('go on being handed by any two choices that each would keep what rules choose', () => {
    const [up, down] = large(4);
    const form = handed(up, down)!;
    const ups = [1, 2, 4].map((more) => dots(up, { subgroups: 8 * more }));
    const keeping = [{}, { pieces: 1 }, { across: 2, splits: 7, chunks: 4 }].map((sizes) =>
      dots(down, sizes),
    );
    for (const choice of ups) expect(linearFits(LARGE, { ...up, outHanded: form }, choice)).toBe(true);
    for (const choice of keeping) expect(keepsTaking(LARGE, down, form, choice)).toBe(true);
    for (const first of ups)
      for (const second of keeping)
        expect(formHanded(LARGE, up, down, (shape) => (shape === up ? first : second))).not.toBeNull();
    const smaller = { ...(form as Exclude<Handed, 'halves'>), pieces: 1 } as const;
    expect(keepsTaking(LARGE, down, smaller, dots(down, {}))).toBe(false);
    expect(keepsTaking(LARGE, down, 'halves', dots(down, {}))).toBe(false);
  });

  it('are one form, where a weight of several shards takes them', () => {
    const layout = { rows: 4, k: 256, bits: 4, pieces: 2, planes: 1, across: 4, chunkSteps: 1 } as const;
    expect(formOfAll([layout, { ...layout }])).toEqual(layout);
    expect(formOfAll([layout, { ...layout, across: 2 }])).toBeNull();
    expect(formOfAll([layout, 'halves'])).toBeNull();
    expect(formOfAll([layout, null])).toBeNull();
    expect(formOfAll(['halves', 'halves'])).toBe('halves');
    expect(formOfAll([])).toBeNull();
  });
});

describe('a norm between two products of dots', () => {
  const { attention, mlp } = {
    /** The output projection, and gate and up. */
    attention: (rows: number): [LinearShape, LinearShape] => {
      const [up, down] = large(rows);
      return [{ ...down, k: 4096, xStride: 4096 }, up];
    },
    /** Down, and q, k and v of the next layer. */
    mlp: (rows: number): [LinearShape, LinearShape] => {
      const [up, down] = large(rows);
      return [down, { ...up, n: 6144, outStride: 6144, glu: null }];
    },
  };
  const formOf = (giver: LinearShape, taker: LinearShape, capabilities = LARGE) =>
    normHanded(capabilities, giver, taker, choicesOn(capabilities));

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
      const [giver, taker] = pairOf(4);
      const form = formOf(giver, taker)!;
      const given = { ...giver, xHanded: form === 'halves' ? form : form.bytes };
      const [first, plain] = [
        built({ ...given, outNorm: { eps: 1e-6, form } }),
        built({ ...taker, xNormed: form }),
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
      expect(built(taker).stages.map(({ label }) => label)[0]).toBe('rms-norm to bytes [4096]');
    }
  });

  it('keeps its launch where there is no room, or what is left is not what the second reads', () => {
    const [giver, taker] = mlp(4);
    expect(formOf(giver, taker)).not.toBeNull();
    expect(formOf({ ...giver, bias: true }, { ...taker }, { ...LARGE, storageBuffers: 11 })).not.toBeNull();
    // Ten storage buffers, or eleven.
    expect(formOf({ ...giver }, { ...taker }, { ...LARGE, storageBuffers: 10 })).not.toBeNull();
    expect(formOf({ ...giver }, { ...taker }, { ...LARGE, storageBuffers: 9 })).toBeNull();
    expect(formOf({ ...giver, bias: true }, { ...taker }, { ...LARGE, storageBuffers: 10 })).toBeNull();
    expect(formOf(giver, { ...taker, norm: null })).toBeNull();
    expect(formOf(giver, { ...taker, k: 2048 })).toBeNull();
    expect(formOf(giver, { ...taker, rowKind: 'outputs' })).toBeNull();
    expect(formOf({ ...giver, outOffset: 64 }, taker)).toBeNull();
    expect(formOf({ ...giver }, { ...taker }, { ...LARGE, deterministic: true })).toBeNull();
    // Pieces of 64 columns are not whole in 32 features, nor are those of a product of another kind.
    const wide: ChoiceOf = (shape) => {
      const rule = ruleForLinear(LARGE, shape)!;
      return shape !== taker || rule.family !== 'dots'
        ? rule
        : { family: 'dots', config: { ...rule.config, pieces: 2 } };
    };
    expect(normHanded(LARGE, giver, taker, wide)).toBeNull();
  });

  it('goes on being left by any two choices that each would keep what rules choose', () => {
    const [giver, taker] = mlp(4);
    const form = formOf(giver, taker)!;
    const dots = (shape: LinearShape, sizes: object): LinearChoice => {
      const rule = ruleForLinear(LARGE, shape);
      if (rule?.family !== 'dots') throw new Error('dots are wanted');
      return { family: 'dots', config: { ...rule.config, ...sizes } };
    };
    const givers = [{}, { subgroups: 28 }, { across: 8, each: 4 }].map((sizes) => dots(giver, sizes));
    const takers = [{}, { across: 8 }, { splits: 4 }].map((sizes) => dots(taker, sizes));
    for (const choice of givers) expect(keepsNorming(LARGE, giver, form, choice)).toBe(true);
    for (const choice of takers) expect(keepsNormed(form, choice)).toBe(true);
    for (const first of givers)
      for (const second of takers)
        expect(normHanded(LARGE, giver, taker, (shape) => (shape === giver ? first : second))).not.toBeNull();
    expect(keepsNorming(LARGE, giver, form, dots(giver, { subgroups: 7 }))).toBe(false);
    expect(keepsNormed(form, dots(taker, { pieces: 2 }))).toBe(false);
    const gemv = {
      family: 'gemv',
      config: { subgroupSize: 32, subgroups: 8, rowsPerSubgroup: 2, splits: 1, workgroupBytes: 49152 },
    } as const;
    expect([keepsNorming(LARGE, giver, form, gemv), keepsNormed(form, gemv)]).toEqual([false, false]);
    // Halves, where they are taken, are no reason to choose anything.
    expect([keepsNorming(LARGE, giver, 'halves', gemv), keepsNormed('halves', gemv)]).toEqual([true, true]);
  });
});
