/**
 * What the fast linear kernels are made from: a shape, a weight layout and an epilogue go in, WGSL and its dispatch
 * come out. All of it is pure text work, so that a test, a benchmark and the runtime get the same kernel.
 */

import type { Activation, ExpertActivation, RowKind } from '../../graph.js';
import type { HeadColumns, RopeAppendShape } from '../shapes.js';
import { rowMetaWords, type ShardLayout } from '../weights-layout.js';
import { f32Literal } from './f32-literal.js';

export type ActivationDtype = 'f32' | 'f16';

/** `out = act(x · Wᵀ + bias) (+ residual)`; every field is baked into the kernel. */
export interface LinearSpec {
  /** Rows of the weight (out features). With `glu`: gate and up together. */
  readonly n: number;
  /** Columns of the weight (in features): a multiple of 32, and of the group size. */
  readonly k: number;
  readonly weight: ShardLayout;
  /** Rows of x the kernel computes; the buffers of x, out and residual hold at least as many. */
  readonly rows: number;
  /** Whose rows they are: the kernel then reads how many there are from `step`. All of `rows` if omitted. */
  readonly rowKind?: RowKind;
  /** Elements from a row of x to the next: a multiple of 4. */
  readonly xStride: number;
  /** Elements from a row of out, and of the residual, to the next. */
  readonly outStride: number;
  /** First column of `out` that is written. */
  readonly outOffset: number;
  readonly x: ActivationDtype;
  readonly out: ActivationDtype;
  readonly bias: boolean;
  readonly residual: ActivationDtype | null;
  /** RMS norm of x folded in: `x / sqrt(mean(x²) + eps) · norm`. GEMV only. */
  readonly norm: { readonly eps: number } | null;
  /** `out[f] = act(gate[f]) · up[f]`: weight row f is the gate, row n / 2 + f the up. */
  readonly glu: ExpertActivation | null;
  /** x is what attention left of one row in `scratchSums` and `scratchTops`, merged as it is staged. GEMV of one row only. */
  readonly merge?: MergedAttention;
  /** out is q, k and v of one token: q is left normed and rotated, k and v go to the cache (linear-gemv-append.ts). GEMV of one row only. */
  readonly append?: RopeAppendShape;
  /** The weight is a stack of experts, and rows are places of tiles (experts-tiles.ts). Matrices only. */
  readonly stack?: ExpertStack;
  /** Features are heads', which read columns of x of their own (HeadColumns). Matrices only, of x in f32. */
  readonly heads?: HeadColumns;
}

export interface ExpertStack {
  /** The experts of the shard: tiles of others are left to other launches. */
  readonly first: number;
  readonly end: number;
  /** Where the row of x of each place stands in {@link STACK_TILES}; null where rows of x are places too. */
  readonly rowsAt: number | null;
}

/** The role of the tiles of a stack. */
export const STACK_TILES = 'scratchTiles';

/** Partials of one row of attention, of at most `splits` items. */
export interface MergedAttention {
  readonly heads: number;
  readonly headDim: number;
  readonly splits: number;
}

const LINEAR_BINDINGS = [
  'x',
  'codes',
  'metas',
  'out',
  'bias',
  'residual',
  'norm',
  'step',
  'scratchSums',
  'scratchTops',
  'constants',
  'tables',
  'rope',
  'keys',
  'values',
  STACK_TILES,
] as const;
export type LinearBinding = (typeof LINEAR_BINDINGS)[number];

/** A kernel ready to be compiled. Binding i of group 0 is `bindings[i]`; `writes` are read_write, the rest read. */
export interface KernelText<B extends string = string> {
  readonly label: string;
  readonly wgsl: string;
  readonly bindings: readonly B[];
  readonly writes: readonly B[];
  /** Element type of each binding. */
  readonly types: Readonly<Partial<Record<B, string>>>;
  readonly workgroups: readonly [number, number, number];
  readonly threads: number;
  /** Bytes of workgroup memory. */
  readonly workgroupBytes: number;
}

export type LinearKernel = KernelText<LinearBinding>;

/** Width of a row of `out`. */
export function outCols(spec: LinearSpec): number {
  return spec.glu === null ? spec.n : spec.n / 2;
}

/** Bytes of the weight planes: what a GEMV has to read at least. */
export function weightBytes(n: number, k: number, weight: ShardLayout): number {
  if (weight.kind === 'float') return n * k * (weight.dtype === 'f32' ? 4 : 2);
  return (n * k * weight.bits) / 8 + n * rowMetaWords(weight, k) * 4;
}

/** The bindings a spec needs, in binding order. */
export function linearBindings(spec: LinearSpec): LinearBinding[] {
  const { append } = spec;
  return LINEAR_BINDINGS.filter((name) => {
    if (name === 'metas') return spec.weight.kind !== 'float';
    if (name === 'bias') return spec.bias && append === undefined;
    if (name === 'residual') return spec.residual !== null;
    if (name === 'norm') return spec.norm !== null && append === undefined;
    if (name === 'step')
      return spec.rowKind !== undefined || spec.merge !== undefined || append !== undefined;
    if (name === 'constants')
      return append !== undefined && (spec.norm !== null || spec.bias || append.normEps !== null);
    if (name === 'rope') return append !== undefined && append.rope !== null;
    if (name === 'tables' || name === 'keys' || name === 'values') return append !== undefined;
    if (name === STACK_TILES) return spec.stack !== undefined;
    if (name === 'x') return spec.merge === undefined;
    if (name === 'scratchSums' || name === 'scratchTops') return spec.merge !== undefined;
    return true;
  });
}

/** WGSL `var` lines for the bindings, with the element types given. */
export function declareBindings<B extends string>(
  bindings: readonly B[],
  writes: readonly B[],
  types: Readonly<Partial<Record<B, string>>>,
): string {
  return bindings
    .map((name, at) => {
      const access = writes.includes(name) ? 'read_write' : 'read';
      return `@group(0) @binding(${at}) var<storage, ${access}> ${name}: array<${types[name] ?? 'f32'}>;`;
    })
    .join('\n');
}

/** WGSL expression of what `gate` and `up` give. */
export function gatedText(activation: ExpertActivation, gate: string, up: string): string {
  if (typeof activation === 'string') return `${activationText(activation, gate)} * ${up}`;
  const [alpha, limit] = [f32Literal(activation.alpha), f32Literal(activation.limit)];
  const g = `min(${gate}, ${limit})`;
  return `(clamp(${up}, -${limit}, ${limit}) + 1.0) * ${g} / (1.0 + exp(min(-${alpha} * ${g}, 87.0)))`;
}

/** WGSL expression of an activation of an f32. */
export function activationText(activation: Activation, v: string): string {
  switch (activation) {
    case 'silu':
      return `(${v} / (1.0 + exp(min(-${v}, 87.0))))`;
    case 'relu':
      return `max(${v}, 0.0)`;
    case 'relu2':
      return `(max(${v}, 0.0) * max(${v}, 0.0))`;
    case 'gelu-tanh':
      // tanh saturates long before 10; a larger argument overflows exp on some drivers.
      return `(0.5 * ${v} * (1.0 + tanh(clamp(0.7978845608028654 * (${v} + 0.044715 * ${v} * ${v} * ${v}), -10.0, 10.0))))`;
    case 'gelu':
      return `(0.5 * ${v} * (1.0 + erf_(${v} * 0.7071067811865476)))`;
  }
}

/**
 * erf for `gelu`, |error| < 1.5e-7: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
 */
export const ERF_TEXT = `fn erf_(v: f32) -> f32 {
  let a = abs(v);
  let t = 1.0 / fma(0.3275911, a, 1.0);
  let p = t * fma(t, fma(t, fma(t, fma(t, 1.061405429, -1.453152027), 1.421413741), -0.284496736), 0.254829592);
  return sign(v) * (1.0 - p * exp(-a * a));
}`;

/** A short name of a weight format for labels: `q4g64`, `q4k`, `bf16`. */
export function weightName(weight: ShardLayout): string {
  if (weight.kind === 'float') return weight.dtype;
  if (weight.kind === 'lut4') return `${weight.table}-${weight.scale}`;
  if (weight.kind === 'symmetric') return `q${weight.bits}s`;
  return weight.kind === 'affine' ? `q${weight.bits}g${weight.groupSize}` : `q${weight.bits}k`;
}

/**
 * `halves_(v)`: f32 as f16, what is too large as the largest f16. NaN and infinity stay, told by their bits: clamp
 * would make numbers of them, and a row that went wrong would be sampled from.
 */
export const HALVES_TEXT = `fn halves_(v: vec4<f32>) -> vec4<f16> {
  let special = (bitcast<vec4<u32>>(v) & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u);
  return vec4<f16>(select(clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0)), v, special));
}`;

/** The same for one number. */
export const HALF_TEXT = `fn half_(v: f32) -> f16 {
  let special = (bitcast<u32>(v) & 0x7f800000u) == 0x7f800000u;
  return f16(select(clamp(v, -65504.0, 65504.0), v, special));
}`;

/** A literal that WGSL reads as f32. */
export function floatText(value: number): string {
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}
