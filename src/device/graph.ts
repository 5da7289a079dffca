/**
 * The graph a model records through Ops (ops.ts): symbolic tensors and the nodes that make them, in an order in which each tensor is made before
 * it is read. It is plain data, so that a device may fuse, order and place as it likes, and a test may look at it. Here stands what each
 * op computes; `[a, b]` are shapes, rows first. `ops.glu(x, 'silu')` records
 *
 *     { op: 'glu', x: { id: 4, rows: 'tokens', cols: 6144 }, activation: 'silu', out: { id: 5, rows: 'tokens', cols: 3072 } }
 */

import type { Activation, ExpertActivation, GateActivation, UngatedActivation } from './activations.js';
import type { AttentionShape, HeadNorm, KeyCentre, QueryGrowth } from './attention-shape.js';
import type { FeatureSlab } from './feature-slab.js';
import type { RopeStyle, RopeTable } from './rope.js';
import type { Matrix, Vector } from './weights.js';

/** `tokens`: one row for each token of the step. `outputs`: one for each row whose logits are wanted. */
export type RowKind = 'tokens' | 'outputs';

/** A symbolic `[rows, cols]` activation. The device chooses its element type. */
export interface Tensor {
  /** Its place in Graph.tensors. */
  readonly id: number;
  readonly rows: RowKind;
  readonly cols: number;
}

/** `groups` runs of `cols` columns from column `from`, each normed by itself. */
export interface NormPart {
  readonly from: number;
  readonly cols: number;
  readonly groups: number;
  /** `[groups · cols]`; null for ones. */
  readonly weight: Vector | null;
  /** `[groups · cols]`; null for zeros. */
  readonly bias: Vector | null;
}

/** `count` runs of `cols` columns: of x from column `from` on, `fromStep` apart, and of the result from `to` on, `toStep` apart. */
export interface ColumnPart {
  readonly x: Tensor;
  readonly from: number;
  readonly to: number;
  readonly cols: number;
  readonly count: number;
  readonly fromStep: number;
  readonly toStep: number;
}

/** `rms`: `x / sqrt(mean(x²) + eps)`. `layer`: the same of `x − mean(x)`. */
export type NormKind = 'rms' | 'layer';

/** How the experts of a row are chosen from its logits `[experts]`. Of equal ones the lower id comes first. */
export interface RouteSpec {
  /** Experts a row is given to. */
  readonly k: number;
  /** The score s of an expert: of the softmax over all, or `1 / (1 + e^-x)`. */
  readonly score: 'softmax' | 'sigmoid';
  /** `[experts]`, added to s where experts are chosen, not where they are weighed; null for none. */
  readonly bias: Vector | null;
  /**
   * The experts are in `count` groups of neighbours, and come from the `kept` of them with the highest best s + bias, or
   * the highest sum of their two best. Null: from all.
   */
  readonly groups: { readonly count: number; readonly kept: number; readonly by: 'best' | 'two-best' } | null;
  /** Weights are divided by `max(their sum, least) + add`; null: they are not. */
  readonly normalise: { readonly least: number; readonly add: number } | null;
  /** Multiplies the weights, after all else. */
  readonly scale: number;
  /** `[experts]`, multiplies the weight of each, after all else. Absent or null: nothing. */
  readonly expertScales?: Vector | null;
}

export type Node =
  /** Test and vision input, filled by Program.write. */
  | { readonly op: 'input'; readonly out: Tensor }
  /** Rows of the table for the step's token ids: out `[tokens, hidden]`. An id outside the table gives zeros. */
  | {
      readonly op: 'embed';
      readonly table: Matrix;
      /** Multiplies rows of the table, not those of the slab. */
      readonly scale: number;
      /** Whose rows tokens may name (FEATURE_TOKEN). Absent or null: none. */
      readonly features?: FeatureSlab | null;
      /** The row of the table for tokens that name rows of a slab, where `features` is none. Absent or null: zeros. */
      readonly featureRow?: number | null;
      readonly out: Tensor;
    }
  /** `x / sqrt(mean(x²) + eps) · weight`, over cols. */
  | {
      readonly op: 'rms-norm';
      readonly x: Tensor;
      readonly weight: Vector;
      readonly eps: number;
      readonly out: Tensor;
    }
  /** Parts of a row, each normed by itself, times weight, plus bias. Columns of no part are copied. Parts are in order. */
  | {
      readonly op: 'norm';
      readonly x: Tensor;
      readonly kind: NormKind;
      readonly parts: readonly NormPart[];
      readonly eps: number;
      readonly out: Tensor;
    }
  /** `x · Wᵀ + bias (+ residual)`: `[rows, W.cols]` → `[rows, W.rows]`. */
  | {
      readonly op: 'linear';
      readonly x: Tensor;
      readonly weight: Matrix;
      readonly residual: Tensor | null;
      /** x is read as it is, whatever the precision: never rounded to halves or bytes. For routers, where a little chooses otherwise. */
      readonly exact?: boolean;
      readonly out: Tensor;
    }
  /**
   * Each head by a matrix of its own: `out[:, h · n + j] = Σ_i x[:, from + h · step + i] · W[h · n + j, i]`, for n rows of W a head. x is read
   * as it is, whatever the precision.
   */
  | {
      readonly op: 'head-linear';
      readonly x: Tensor;
      /** `[heads · n, k]`. */
      readonly weight: Matrix;
      readonly heads: number;
      /** Column of x that head 0 begins at, and columns from one head to the next. */
      readonly from: number;
      readonly step: number;
      readonly out: Tensor;
    }
  /**
   * From `qkv` `[tokens, (heads + 2 · kvHeads) · headDim]`, laid out q heads, k heads, v heads: norm and rotate q and
   * k, append k and v to the layer's cache at the tokens' positions, and give q `[tokens, heads · headDim]`, grown by position.
   * Where V is a view of K there are no v heads. `queriesOnly`: qkv has q alone, for a cache that another layer fills, and nothing is appended.
   */
  | {
      readonly op: 'rope-append';
      readonly qkv: Tensor;
      readonly layer: number;
      readonly shape: AttentionShape;
      readonly norm: HeadNorm | null;
      readonly rope: RopeTable | null;
      readonly queryGrowth: QueryGrowth | null;
      readonly queriesOnly?: boolean;
      /** Absent or null: keys are stored as they are. */
      readonly centre?: KeyCentre | null;
      readonly out: Tensor;
    }
  /**
   * Causal attention of q over what the layer's cache stores (the step's own tokens included, as stored).
   * `window` w: a token sees positions > p − w. `softcap` c: scores become `c · tanh(s / c)`.
   * `ahead`: a token sees up to StepInputs.visibleEnd. A token that sees nothing gives zeros. `sinks`: a head's softmax has one more score, whose value is 0 and which is neither
   * scaled nor capped.
   */
  | {
      readonly op: 'attend';
      readonly q: Tensor;
      readonly layer: number;
      readonly shape: AttentionShape;
      readonly scale: number;
      readonly window: number | null;
      readonly softcap: number | null;
      /** Default: tokens see none behind them. `window`: no farther ahead than back, itself included. */
      readonly ahead?: boolean | 'window';
      /** `[heads]`. Absent or null: none. */
      readonly sinks?: Vector | null;
      /** That of the keys, where it turns, and the rotation it turns by. Absent or null: nothing is added to scores. */
      readonly centre?: (KeyCentre & { readonly rope: RopeTable }) | null;
      readonly out: Tensor;
    }
  /**
   * Causal convolution of each column over the tokens of its sequence, with the layer's state as what came before:
   * `y_t = act(bias + Σ_j weight[j] · u_{t − taps + 1 + j})`, summed from the oldest on; before position 0 all is 0. `gated`: x is
   * `[tokens, 3 · channels]`, b, c and v, and u is `b · v` and the result `c · y` (LFM2). The state then has the newest taps − 1 of u.
   */
  | {
      readonly op: 'short-conv';
      readonly x: Tensor;
      /** The first of the columns of x that it takes. */
      readonly from: number;
      readonly layer: number;
      readonly taps: number;
      /** `[taps · channels]`, the oldest tap first. */
      readonly weight: Vector;
      /** `[channels]`; null for zeros. */
      readonly bias: Vector | null;
      readonly gated: boolean;
      readonly activation: 'silu' | null;
      readonly out: Tensor;
    }
  /**
   * Gated delta rule (Yang et al., arXiv:2412.06464), a scan over the tokens of a sequence. `qkv`: keyHeads heads of q and as many of k,
   * rows wide, then heads of v, cols wide; value head h has key head `⌊h · keyHeads / heads⌋`. `gates` `[tokens, 2 · heads]`: b, then a.
   * With q and k of length 1 (`x / √(Σx² + 1e-6)`) and q also times `rows^-½`, `β = σ(b)` and `α = e^(decay · softplus(a + shift))`:
   *
   *     S ← α S;  S ← S + β k (v − Sᵀ k)ᵀ;  out = Sᵀ q
   *
   * for the state S `[rows, cols]` of each head, which is 0 before position 0.
   */
  | {
      readonly op: 'gated-delta';
      readonly qkv: Tensor;
      readonly gates: Tensor;
      /** The first of their columns that it takes. */
      readonly gatesFrom: number;
      readonly layer: number;
      readonly keyHeads: number;
      readonly heads: number;
      readonly rows: number;
      readonly cols: number;
      /** `[2 · heads]`: decay (−e^A), then shift. */
      readonly decay: Vector;
      readonly out: Tensor;
    }
  /**
   * Selective state space of Mamba 2 (Dao and Gu, arXiv:2405.21060), a scan over the tokens of a sequence. `x`: heads of x, cols wide,
   * then groups of B and as many of C, rows wide; head h has group `⌊h · groups / heads⌋`. `steps` `[tokens, heads]`: dt. With
   * `Δ = min(max(softplus(dt + shift), limits[0]), limits[1])` and `α = e^(Δ · decay)`:
   *
   *     S ← α S + B (Δ x)ᵀ;  out = Sᵀ C + skip · x
   *
   * for the state S `[rows, cols]` of each head, which is 0 before position 0.
   */
  | {
      readonly op: 'selective-scan';
      readonly x: Tensor;
      readonly steps: Tensor;
      /** The first of their columns that it takes. */
      readonly stepsFrom: number;
      readonly layer: number;
      readonly groups: number;
      readonly heads: number;
      readonly rows: number;
      readonly cols: number;
      /** Least and largest Δ, the latter perhaps infinite. */
      readonly limits: readonly [number, number];
      /** `[3 · heads]`: decay (−e^A), then shift, then skip. */
      readonly decay: Vector;
      readonly out: Tensor;
    }
  /**
   * `norm(x) · act(gate)`, by element. `norm`: RMS of runs of as many columns as its weight has, times weight; null for none. Where
   * x has more columns than the result they are taken from column `from` on, and there is no norm; those of the gate from
   * `gateFrom` on.
   */
  | {
      readonly op: 'gate';
      readonly x: Tensor;
      readonly from: number;
      readonly gate: Tensor;
      readonly gateFrom: number;
      readonly activation: GateActivation;
      readonly norm: { readonly weight: Vector; readonly eps: number } | null;
      readonly out: Tensor;
    }
  /** `act(x[:, :n]) · x[:, n:]` with `n = x.cols / 2`: gate first, up second. */
  | { readonly op: 'glu'; readonly x: Tensor; readonly activation: Activation; readonly out: Tensor }
  /** `act(x)`. `parameters`: of `xielu`, null for the others. */
  | {
      readonly op: 'act';
      readonly x: Tensor;
      readonly activation: UngatedActivation;
      readonly parameters: Vector | null;
      readonly out: Tensor;
    }
  /** Runs of columns of several inputs, side by side. Columns of no part are 0. */
  | { readonly op: 'columns'; readonly parts: readonly ColumnPart[]; readonly out: Tensor }
  /** `a + b`. */
  | { readonly op: 'add'; readonly a: Tensor; readonly b: Tensor; readonly out: Tensor }
  /** x, and what the slab has from `column` on added to it, where tokens name rows of the slab. The other rows are copied. */
  | {
      readonly op: 'add-features';
      /** `[tokens, n]`. */
      readonly x: Tensor;
      readonly features: FeatureSlab;
      readonly column: number;
      readonly out: Tensor;
    }
  /** `x + Σ_j weight_j · table[index_j]`, the sum taken in the order of the taps. */
  | {
      readonly op: 'add-gathered';
      readonly x: Tensor;
      /** `[n, x.cols]`. */
      readonly table: Vector;
      /** `[rows, 2k]`: k indexes, whole numbers below n, then k weights. `position`: the cache index of the row's token, with the weight 1. */
      readonly taps: Tensor | 'position';
      readonly out: Tensor;
    }
  /** `factor · x`; with `softcap` c `c · tanh(factor · x / c)`. */
  | {
      readonly op: 'scale';
      readonly x: Tensor;
      readonly factor: number;
      readonly softcap: number | null;
      readonly out: Tensor;
    }
  /** `min(max(x, low), high)`, by runs of columns of one width. */
  | {
      readonly op: 'clamp';
      readonly x: Tensor;
      /** `[runs, 2]`: the least and the most of each run. */
      readonly bounds: Vector;
      readonly out: Tensor;
    }
  /**
   * From router logits `[rows, experts]`: `[rows, 2k]`, the ids of the chosen experts, rising, as numbers, and then their
   * weights.
   */
  | {
      readonly op: 'route';
      readonly logits: Tensor;
      readonly spec: RouteSpec;
      readonly out: Tensor;
    }
  /**
   * The first `heads` heads of a row, each `headDim` wide, rotated in pairs by angles of the row's own: `angles` `[rows, dims]` has the
   * cosines of `dims / 2` pairs, then their sines. What lies behind `dims` in a head, and behind the heads, stays. Pairs: RopeStyle.
   */
  | {
      readonly op: 'rotate';
      readonly x: Tensor;
      readonly angles: Tensor;
      readonly heads: number;
      readonly headDim: number;
      readonly style: RopeStyle;
      readonly out: Tensor;
    }
  /**
   * Attention of rows among themselves, without a cache or a mask: row r of `qkv` `[rows, 3 · heads · headDim]` (q heads, k heads,
   * v heads) sees rows `[bounds[r, 0], bounds[r, 1])`. Rows with equal bounds stand together. A row's sums begin at its first bound, so
   * they are the same whatever else is in the step. A row that sees nothing gives zeros.
   */
  | {
      readonly op: 'attend-segments';
      readonly qkv: Tensor;
      /** `[rows, 2]`, whole numbers. */
      readonly bounds: Tensor;
      readonly heads: number;
      readonly headDim: number;
      readonly scale: number;
      /** Rows that a row sees at most. Absent: as many as there are. */
      readonly most?: number;
      readonly out: Tensor;
    }
  /**
   * The rows of `x` named by StepInputs.outputs: `[tokens, n]` → `[outputs, n]`. Where `out` is k times as wide as `x`, an output names
   * k rows: those from k times its number on, one behind the other. `mean` k: their mean, summed in their order, as wide as `x`.
   */
  | {
      readonly op: 'select-outputs';
      readonly x: Tensor;
      /** Absent: rows are side by side. */
      readonly mean?: number;
      readonly out: Tensor;
    }
  /**
   * `Σ_j weight_j · down_e(act(gate_e(x), up_e(x))) (+ residual)`, biases of the stacks included, over the experts `e = id_j` that `route` gives a row, added in
   * the order of their ids. A stack has the rows of all experts, one after the other: `gateUp` `[experts · 2n, x.cols]`, each
   * expert's gate rows before its up rows; `down` `[experts · out.cols, n]`. Of an expert that no row was given to nothing is read.
   */
  | {
      readonly op: 'experts';
      readonly x: Tensor;
      /** What `route` gave: `[rows, 2k]`. */
      readonly route: Tensor;
      /** Experts in a stack. */
      readonly count: number;
      readonly gateUp: Matrix;
      readonly down: Matrix;
      readonly activation: ExpertActivation;
      readonly residual: Tensor | null;
      readonly out: Tensor;
    }
  /** Draws one id a row from `logits` `[outputs, vocab]` into the row's state slot and the step's result. */
  | { readonly op: 'sample'; readonly logits: Tensor };

export type NodeOf<K extends Node['op']> = Extract<Node, { readonly op: K }>;

export interface Graph {
  readonly nodes: readonly Node[];
  readonly tensors: readonly Tensor[];
  /** Tensors the host will read with Program.read; they keep their memory to the end of the step. */
  readonly kept: readonly Tensor[];
  /** `[outputs, n]` or `[tokens, n]`, whose rows a step's result brings where it is asked to (StepInputs.hiddenRows). One of those kept. */
  readonly hidden?: Tensor | null;
}

export {
  ACTIVATIONS,
  type Activation,
  type ClampedSwiglu,
  type ExpertActivation,
  GATE_ACTIVATIONS,
  type GateActivation,
  UNGATED_ACTIVATIONS,
  type UngatedActivation,
} from './activations.js';
export type { AttentionShape, HeadNorm, KeyCentre, QueryGrowth } from './attention-shape.js';
