/**
 * The blocks that all towers are made of:
 *
 *     x += proj(attend(rotate(qkv(norm1(x)))))
 *     x += mlp(norm2(x))
 */

import type { Activation, NormPart, Tensor, UngatedActivation } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { Vector } from '../../device/weights.js';
import type { MatrixPart, Weights } from '../layout.js';
import { type TowerWeights, WIDTH_UNIT } from './tower-weights.js';

export interface BlockShape {
  /** Of the hidden states. */
  readonly hiddenSize: number;
  readonly heads: number;
  readonly intermediateSize: number;
  readonly norm: TowerNorm;
  readonly mlp: TowerMlp;
  /** RMS norms of each head of q and k, with the epsilon of `norm`. Default: none. */
  readonly headNorms?: boolean;
}

export interface TowerNorm {
  readonly kind: 'rms' | 'layer';
  readonly eps: number;
}

export type TowerMlp =
  | { readonly gated: true; readonly activation: Activation }
  | { readonly gated: false; readonly activation: UngatedActivation };

/** What tensors of a block are called, without `.weight`. */
export interface BlockNames {
  readonly norm1: string;
  readonly norm2: string;
  /** One tensor, or those of q, k and v. */
  readonly qkv: readonly [string] | readonly [string, string, string];
  readonly proj: string;
  /** That of the gate first, where there is one. */
  readonly up: readonly [string] | readonly [string, string];
  readonly down: string;
  /** Numbers that scale what attention and the MLP give, by column. Default: none. */
  readonly scales?: { readonly proj: string; readonly down: string };
  /** Those of the norms of each head, where there are any. */
  readonly headNorms?: { readonly q: string; readonly k: string };
}

export interface BlockBiases {
  readonly qkv: boolean;
  readonly proj: boolean;
  readonly mlp: boolean;
}

/** @param key what its weights are found by, `vision.3.` */
export function blockWeights(
  weights: TowerWeights,
  key: string,
  { hiddenSize, heads, intermediateSize, norm }: BlockShape,
  names: BlockNames,
  bias: BlockBiases,
): void {
  const layer = norm.kind === 'layer';
  weights.norm(`${key}norm1`, names.norm1, hiddenSize, layer);
  weights.norm(`${key}norm2`, names.norm2, hiddenSize, layer);
  for (const [part, name] of Object.entries(names.headNorms ?? {}))
    headNorm(weights, `${key}${part}-norm`, name, heads, hiddenSize / heads);
  const rows = (3 * hiddenSize) / names.qkv.length;
  // What a row of zeros makes is zero, and so is its activation: columns for them change nothing.
  const inner = Math.ceil(intermediateSize / WIDTH_UNIT) * WIDTH_UNIT;
  const padded = (part: MatrixPart, own: MatrixPart['own'] & {}): MatrixPart =>
    inner === intermediateSize ? part : { ...part, own };
  const qkv = names.qkv.map((name) => weights.part(name, rows, bias.qkv));
  weights.matrix(`${key}qkv`, hiddenSize, qkv);
  weights.matrix(`${key}proj`, hiddenSize, [
    weights.part(names.proj, hiddenSize, bias.proj, names.scales?.proj),
  ]);
  const up = names.up.map((name) =>
    padded(weights.part(name, inner, bias.mlp), { rows: intermediateSize, cols: hiddenSize }),
  );
  weights.matrix(`${key}up`, hiddenSize, up);
  const down = weights.part(names.down, hiddenSize, bias.mlp, names.scales?.down);
  weights.matrix(`${key}down`, inner, [padded(down, { rows: hiddenSize, cols: intermediateSize })]);
}

/** A norm of each head, `[heads · headDim]`: the same numbers for all of them. `name`: without `.weight`. */
function headNorm(weights: TowerWeights, key: string, name: string, heads: number, headDim: number): void {
  const one = { name: `${name}.weight`, shape: [headDim] };
  weights.table(
    key,
    Array.from({ length: heads }, () => one),
  );
}

/** What recording a tower takes everywhere. */
export interface TowerRecording {
  readonly ops: Ops;
  readonly weights: Weights;
}

/** What the rows of a block see. */
export interface BlockSight {
  /** Null where nothing rotates. */
  readonly angles: Tensor | null;
  readonly bounds: Tensor;
  /** Rows that one sees at most. Default: as many as there are. */
  readonly most?: number;
}

export function recordBlock(
  { ops, weights }: TowerRecording,
  key: string,
  x: Tensor,
  shape: BlockShape,
  { angles, bounds, most }: BlockSight,
): Tensor {
  const { hiddenSize, heads, norm, mlp } = shape;
  const headDim = hiddenSize / heads;
  const at = { ops, weights };
  const plain = ops.linear(normed(at, `${key}norm1`, x, norm), weights.matrix(`${key}qkv`));
  const qkv = shape.headNorms === true ? normedHeads(at, key, plain, shape) : plain;
  const rotated =
    angles === null ? qkv : ops.rotate(qkv, angles, { heads: 2 * heads, headDim, style: 'half' });
  const attended = ops.attendSegments(rotated, bounds, { heads, headDim, ...(most && { most }) });
  const sum = ops.linear(attended, weights.matrix(`${key}proj`), x);
  const up = ops.linear(normed(at, `${key}norm2`, sum, norm), weights.matrix(`${key}up`));
  const inner = mlp.gated ? ops.glu(up, mlp.activation) : ops.act(up, mlp.activation);
  return ops.linear(inner, weights.matrix(`${key}down`), sum);
}

function normedHeads({ ops, weights }: TowerRecording, key: string, qkv: Tensor, shape: BlockShape): Tensor {
  const { hiddenSize, heads, norm } = shape;
  const part = (from: number, weight: Vector): NormPart => ({
    from,
    cols: hiddenSize / heads,
    groups: heads,
    weight,
    bias: null,
  });
  const parts = [part(0, weights.vector(`${key}q-norm`)), part(hiddenSize, weights.vector(`${key}k-norm`))];
  return ops.norm(qkv, 'rms', parts, norm.eps);
}

export function normed({ ops, weights }: TowerRecording, key: string, x: Tensor, norm: TowerNorm): Tensor {
  return norm.kind === 'rms'
    ? ops.rmsNorm(x, weights.vector(key), norm.eps)
    : ops.layerNorm(x, weights.vector(key), weights.vector(`${key}.bias`), norm.eps);
}
