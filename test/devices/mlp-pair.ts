/** Products of an MLP as a large GPU gets them, for tests of what one hands to the next. */
import type { Capabilities, LinearShape } from '../../src/device/webgpu/kernel.js';
import { type LinearChoice, linearKernel } from '../../src/device/webgpu/kernels/linear-choice.js';
import { chooseLinear, ruleForLinear } from '../../src/device/webgpu/kernels/linear-fast.js';
import type { ChoiceOf } from '../../src/device/webgpu/kernels/linear-handed.js';
import { LARGE } from './large-gpu.js';

const base = {
  rowKind: 'tokens',
  weight: { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' },
  outOffset: 0,
  bias: false,
} as const;

/** Gate and up, and the product behind them. */
export function mlpPair(rows: number, hidden = 1024, inner = 3072): [LinearShape, LinearShape] {
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
export const largePair = (rows: number): [LinearShape, LinearShape] => mlpPair(rows, 4096, 14_336);

export const choicesOn =
  (capabilities: Capabilities): ChoiceOf =>
  (shape) =>
    chooseLinear(capabilities, shape);

export const built = (shape: LinearShape, capabilities = LARGE) =>
  linearKernel(capabilities, shape, chooseLinear(capabilities, shape)!);

/** The rules' choice, which is dp4a, with other sizes. */
export function dp4aOf(shape: LinearShape, sizes: object): LinearChoice {
  const rule = ruleForLinear(LARGE, shape);
  if (rule?.family !== 'dp4a') throw new Error('dp4a is wanted');
  return { family: 'dp4a', config: { ...rule.config, ...sizes } };
}
