import { describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { built, choicesOn, dp4aOf, largePair, mlpPair } from '../../../../test/devices/mlp-pair.js';
import type { Handed, LinearShape } from '../kernel.js';
import { TunedChoices } from '../tuning/tuned-choices.js';
import { type LinearChoice, linearFits, linearKey } from './linear-choice.js';
import { chooseLinear, ruleForLinear } from './linear-fast.js';
import { type ChoiceOf, formHanded, formOfAll, formTaken, keepsTaking } from './linear-handed.js';

const handed = (up: LinearShape, down: LinearShape, capabilities = LARGE): Handed | null =>
  formHanded(capabilities, up, down, choicesOn(capabilities));

describe('halves that one GEMM hands to the next', () => {
  it.each([32, 64, 512])('lie of %i rows where the launch that makes them would leave them', (rows) => {
    const [up, down] = mlpPair(rows);
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
    const [up, down] = mlpPair(32);
    expect(handed(...mlpPair(8))).toBeNull();
    expect(handed(up, { ...down, norm: { eps: 1e-6 } })).toBeNull();
    expect(handed(up, { ...down, k: 1536 })).toBeNull();
    expect(handed({ ...up, glu: null }, down)).toBeNull();
    expect(handed(up, down, { ...LARGE, f16: false })).toBeNull();
  });

  it('are taken from attention by the products that would make them of it', () => {
    const taken = (rows: number, more: Partial<LinearShape>, capabilities = LARGE): Handed | null => {
      const shape = { ...mlpPair(rows)[1], ...more };
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

describe('bytes that one dp4a product hands to the next', () => {
  /** As rules choose it, with other sizes. */

  it.each([2, 3, 4])('lie of %i rows as the next one would make them, which saves its launch', (rows) => {
    const [up, down] = largePair(rows);
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
    const [up, down] = largePair(8);
    // 64 features of a workgroup, and pieces of 64 columns.
    expect(ruleForLinear(LARGE, up)).toMatchObject({
      config: { subgroups: 8, splits: 1, each: 4, across: 8 },
    });
    expect(handed(up, down)).toMatchObject({ pieces: 2, chunkSteps: 56 });
    const half: ChoiceOf = (shape) =>
      shape === up ? dp4aOf(up, { subgroups: 4 }) : ruleForLinear(LARGE, shape);
    expect(formHanded(LARGE, up, down, half)).toBeNull();
    const small: ChoiceOf = (shape) =>
      shape === up ? dp4aOf(up, { subgroups: 4 }) : dp4aOf(down, { pieces: 1, chunks: 8 });
    expect(formHanded(LARGE, up, down, small)).toMatchObject({ pieces: 1, chunkSteps: 14 });
  });

  it('are not where there is no room for the values, nor where a form is of another kind', () => {
    const [up, down] = largePair(4);
    const choice = ruleForLinear(LARGE, up)!;
    const form = handed(up, down)!;
    const within = (workgroupBytes: number): boolean =>
      linearFits(LARGE, { ...up, outHanded: form }, {
        family: 'dp4a',
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
    expect(handed(...largePair(1))).toBeNull();
    expect(handed(up, down, { ...LARGE, deterministic: true })).toBeNull();
  });

  it('follow what either product was tuned to, and are not where that has no room for them', () => {
    const [up, down] = largePair(4);
    const tunedTo = (shape: LinearShape, choice: LinearChoice): Handed | null => {
      const tuned = new TunedChoices();
      tuned.adoptLinear(linearKey(shape), choice);
      return handed({ ...up }, { ...down }, { ...LARGE, tuned });
    };
    expect(tunedTo(down, dp4aOf(down, { across: 2, splits: 7, chunks: 4, pieces: 1 }))).toEqual({
      rows: 4,
      k: 14_336,
      bits: 4,
      pieces: 1,
      planes: 1,
      across: 2,
      chunkSteps: 56,
    });
    expect(tunedTo(up, dp4aOf(up, { subgroups: 16 }))).toEqual(handed(up, down));
    expect(tunedTo(up, dp4aOf(up, { subgroups: 4 }))).toBeNull();
    const gemv = { subgroupSize: 32, subgroups: 8, rowsPerSubgroup: 2, splits: 1, workgroupBytes: 49152 };
    expect(tunedTo(up, { family: 'gemv', config: gemv })).toBeNull();
    expect(tunedTo(down, { family: 'gemv', config: gemv })).toBeNull();
  });

  it('go on being handed by any two choices that each would keep what rules choose', () => {
    const [up, down] = largePair(4);
    const form = handed(up, down)!;
    const ups = [1, 2, 4].map((more) => dp4aOf(up, { subgroups: 8 * more }));
    const keeping = [{}, { pieces: 1 }, { across: 2, splits: 7, chunks: 4 }].map((sizes) =>
      dp4aOf(down, sizes),
    );
    for (const choice of ups) expect(linearFits(LARGE, { ...up, outHanded: form }, choice)).toBe(true);
    for (const choice of keeping) expect(keepsTaking(LARGE, down, form, choice)).toBe(true);
    for (const first of ups)
      for (const second of keeping)
        expect(formHanded(LARGE, up, down, (shape) => (shape === up ? first : second))).not.toBeNull();
    const smaller = { ...(form as Exclude<Handed, 'halves'>), pieces: 1 } as const;
    expect(keepsTaking(LARGE, down, smaller, dp4aOf(down, {}))).toBe(false);
    expect(keepsTaking(LARGE, down, 'halves', dp4aOf(down, {}))).toBe(false);
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
