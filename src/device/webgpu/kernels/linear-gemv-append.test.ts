import { describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import type { KvFormat } from '../../kv.js';
import type { LinearShape, StepFacts, Workgroups } from '../kernel.js';
import type { RopeAppendShape } from '../shapes.js';
import { factsOf } from '../tuning/bench.js';
import { allRows } from './kv-rows.js';
import { gemvSpec, linearKernel, linearKey, linearOrder } from './linear-choice.js';
import { ruleForLinear } from './linear-fast.js';
import { linearBindings } from './linear-spec.js';

const F16: KvFormat = { kind: 'float', dtype: 'f16' };

/** Hidden size, heads of q and of k, head_dim, and whether heads are normed. */
const MODELS = {
  'qwen3-0.6b': [1024, 16, 8, 128, true],
  'qwen3-4b': [2560, 32, 8, 128, true],
  'qwen3-8b': [4096, 32, 8, 128, true],
  'qwen2.5-0.5b': [896, 14, 2, 64, false],
  'llama-1b': [2048, 32, 8, 64, false],
  'llama-8b': [4096, 32, 8, 128, false],
} as const;
type Name = keyof typeof MODELS;

/** The product of q, k and v of a model's layer, for one token. */
function productOf(
  name: Name,
  more: Partial<LinearShape> = {},
  append: Partial<RopeAppendShape> = {},
): LinearShape & { append: RopeAppendShape } {
  const [hidden, heads, kvHeads, headDim, headNorm] = MODELS[name];
  const n = (heads + 2 * kvHeads) * headDim;
  return {
    rowKind: 'tokens',
    rows: 1,
    n,
    k: hidden,
    weight: { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' },
    xStride: hidden,
    outStride: n,
    outOffset: 0,
    bias: false,
    residual: false,
    norm: { eps: 1e-6 },
    glu: null,
    ...more,
    append: {
      heads,
      kvHeads,
      headDim,
      key: F16,
      value: F16,
      rows: allRows(64),
      blockTokens: 32,
      maxBlocksPerSlot: 128,
      normEps: headNorm ? 1e-6 : null,
      rope: { dims: headDim, style: 'half' },
      ...append,
    },
  };
}

const sizeOf = (shape: LinearShape): string | null => {
  const rule = ruleForLinear(LARGE, shape);
  if (rule === null) return null;
  if (rule.family !== 'gemv') throw new Error(rule.family);
  const { subgroups, rowsPerSubgroup, splits } = rule.config;
  return `${subgroups} ${rowsPerSubgroup} ${splits}`;
};

describe('a product that appends', () => {
  it.each([
    // Whole heads of 128, where heads are normed; too few of them for as many weights.
    ['qwen3-0.6b', '32 4 1'],
    ['qwen3-4b', '32 4 1'],
    ['qwen3-8b', null],
    // Runs of pairs, in the sizes of the product alone.
    ['llama-8b', '8 2 1'],
    ['llama-1b', '4 2 1'],
    // The product alone has subgroups that share rows, with four rows of a workgroup: too few for a run, so it has eight.
    ['qwen2.5-0.5b', '12 2 3'],
  ] as const)('of %s has the sizes %s on a large GPU', (name, size) => {
    expect(sizeOf(productOf(name))).toBe(size);
  });

  it('adds up as the product alone where it has its sizes', () => {
    const { append, ...alone } = productOf('llama-8b');
    const orders = [{ ...alone, append }, alone].map((shape) =>
      linearOrder(LARGE, shape, ruleForLinear(LARGE, shape)!),
    );
    expect(orders[0]).toBe(orders[1]);
    expect(linearKey({ ...alone, append })).not.toBe(linearKey(alone));
  });

  it('binds ten buffers at most, and is not where a device binds fewer', () => {
    for (const name of ['qwen3-0.6b', 'llama-8b'] as const)
      for (const bias of [false, true])
        for (const norm of [null, { eps: 1e-6 }]) {
          const shape = productOf(name, { bias, norm });
          const bindings = linearBindings(gemvSpec(shape));
          expect(bindings.length).toBeLessThanOrEqual(10);
          expect(ruleForLinear({ ...LARGE, storageBuffers: bindings.length }, shape)).not.toBeNull();
          expect(ruleForLinear({ ...LARGE, storageBuffers: bindings.length - 1 }, shape)).toBeNull();
        }
  });

  it.each([
    ['quantised keys', {}, { key: { kind: 'affine', bits: 8, groupSize: 64 } }],
    ['quantised values', {}, { value: { kind: 'turboquant', bits: 4 } }],
    ['float-start rows', {}, { rows: { ...allRows(64), only: 'floatStart' } }],
    ['several rows', { rows: 2 }, {}],
    ['a residual', { residual: true }, {}],
    ['a shard of several', { outOffset: 128 }, {}],
  ] as const)('is not of %s', (_, more, append) => {
    expect(ruleForLinear(LARGE, productOf('llama-8b', more, append))).toBeNull();
    expect(ruleForLinear(LARGE, productOf('llama-8b'))).not.toBeNull();
  });

  it('is not where sums have one order', () => {
    expect(ruleForLinear({ ...LARGE, deterministic: true }, productOf('llama-8b'))).toBeNull();
    expect(ruleForLinear({ ...LARGE, precision: 'reference' }, productOf('llama-8b'))).toBeNull();
  });

  it('launches a workgroup for each run of pairs, or head, and none without a token', () => {
    const workgroups = (name: Name, facts: StepFacts): Workgroups => {
      const shape = productOf(name);
      const out: Workgroups = [0, 0, 0];
      linearKernel(LARGE, shape, ruleForLinear(LARGE, shape)!).stages[0]!.workgroups(facts, out);
      return out;
    };
    expect(workgroups('llama-8b', factsOf(1))).toEqual([6144 / 16, 1, 1]);
    expect(workgroups('qwen3-0.6b', factsOf(1))).toEqual([32, 1, 1]);
    expect(workgroups('qwen3-0.6b', factsOf(0))).toContain(0);
  });
});
