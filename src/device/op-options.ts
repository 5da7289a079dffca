/** What operations of ops.ts take besides tensors. */
import type { Matrix, Vector } from './device.js';
import type { AttentionShape, ExpertActivation, HeadNorm, KeyCentre, QueryGrowth, Tensor } from './graph.js';
import type { RopeStyle, RopeTable } from './rope.js';

export interface RopeAppendOptions extends AttentionShape {
  readonly layer: number;
  readonly norm?: HeadNorm | null;
  readonly rope: RopeTable | null;
  readonly queryGrowth?: QueryGrowth | null;
  /** There are no keys and values: they are another layer's, whose number `layer` is. Default false. */
  readonly queriesOnly?: boolean;
  /** What keys are freed of before they are stored. `attend` is to be told, where it turns. */
  readonly centre?: KeyCentre | null;
}

export interface ShortConvOptions {
  readonly layer: number;
  /** Of x the columns from here on, as many as the weight has channels. Default: all. */
  readonly from?: number;
  readonly taps: number;
  readonly weight: Vector;
  readonly bias?: Vector | null;
  readonly gated?: boolean;
  readonly activation?: 'silu' | null;
}

export interface GatedDeltaOptions {
  readonly layer: number;
  /** The gates are in columns from here on. Default: there are no others. */
  readonly gatesFrom?: number;
  readonly keyHeads: number;
  readonly heads: number;
  readonly rows: number;
  readonly cols: number;
  readonly decay: Vector;
}

export interface SelectiveScanOptions {
  readonly layer: number;
  /** The steps are in columns from here on. Default: there are no others. */
  readonly stepsFrom?: number;
  readonly groups: number;
  readonly heads: number;
  readonly rows: number;
  readonly cols: number;
  readonly limits: readonly [number, number];
  readonly decay: Vector;
}

export interface AttendOptions extends AttentionShape {
  readonly layer: number;
  /** Multiplies the scores; `1 / sqrt(headDim)` if omitted. */
  readonly scale?: number;
  readonly window?: number | null;
  readonly softcap?: number | null;
  /** Tokens see up to StepInputs.visibleEnd; `window`: and no farther ahead than back, itself included. Default false. */
  readonly ahead?: boolean | 'window';
  /** `[heads]`: one more score of each head, without a value. */
  readonly sinks?: Vector | null;
  readonly centre?: (KeyCentre & { readonly rope: RopeTable }) | null;
}

export interface RotateOptions {
  readonly heads: number;
  readonly headDim: number;
  readonly style: RopeStyle;
}

export interface AttendSegmentsOptions {
  readonly heads: number;
  readonly headDim: number;
  /** Multiplies the scores; `1 / sqrt(headDim)` if omitted. */
  readonly scale?: number;
  /** Rows that a row sees at most. Default: as many as there are. */
  readonly most?: number;
}

export interface HeadLinearOptions {
  readonly heads: number;
  /** Column of x that head 0 begins at. Default 0. */
  readonly from?: number;
  /** Columns of x from one head to the next. Default: those that a head takes. */
  readonly step?: number;
}

export interface ExpertsOptions {
  readonly count: number;
  /** `[count · 2n, x.cols]`, of each expert gate and then up. Loaded with `unit: 2n`. */
  readonly gateUp: Matrix;
  /** `[count · cols, n]`. Loaded with `unit: cols`. */
  readonly down: Matrix;
  readonly activation: ExpertActivation;
  readonly residual?: Tensor | null;
}
