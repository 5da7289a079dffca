/**
 * Ops: what a model is written against. Each call checks its shapes (op-checks.ts), appends a node to the graph and returns the
 * symbolic result. What a node computes, and of which shapes, is said in graph.ts. Errors: `shape-mismatch`.
 */

import type { Matrix, Vector } from './device.js';
import type { FeatureSlab } from './feature-slab.js';
import type {
  Activation,
  AttentionShape,
  ColumnPart,
  GateActivation,
  Graph,
  Node,
  NormKind,
  NormPart,
  RouteSpec,
  RowKind,
  Tensor,
  UngatedActivation,
} from './graph.js';
import {
  checkAddFeatures,
  checkAddGathered,
  checkAttend,
  checkAttendSegments,
  checkColumns,
  checkExperts,
  checkGate,
  checkGatedDelta,
  checkHeadLinear,
  checkLinear,
  checkNorm,
  checkRopeAppend,
  checkRotate,
  checkRoute,
  checkSelect,
  checkSelectiveScan,
  checkShortConv,
  expectSameRows,
  expectSize,
  shapeError,
} from './op-checks.js';
import type {
  AttendOptions,
  AttendSegmentsOptions,
  ExpertsOptions,
  GatedDeltaOptions,
  HeadLinearOptions,
  RopeAppendOptions,
  RotateOptions,
  SelectiveScanOptions,
  ShortConvOptions,
} from './op-options.js';

/** Numbers of `xielu`: alphaP, alphaN, beta, eps. */
const XIELU_PARAMETERS = 4;

export class Ops {
  readonly #nodes: Node[] = [];
  readonly #tensors: Tensor[] = [];
  readonly #kept: Tensor[] = [];
  #hidden: Tensor | null = null;

  /** What has been recorded so far. */
  get nodes(): readonly Node[] {
    return this.#nodes;
  }

  /** A tensor that the host fills with Program.write. */
  input(rows: RowKind, cols: number): Tensor {
    const out = this.#tensor(rows, cols);
    this.#nodes.push({ op: 'input', out });
    return out;
  }

  /** `features`: the slab whose rows tokens may name in place of an id. */
  embed(table: Matrix, scale = 1, features: FeatureSlab | null = null): Tensor {
    if (features !== null && features.cols < table.cols)
      throw shapeError('embed', `rows of ${features.cols} features for hidden states of ${table.cols}`);
    const out = this.#tensor('tokens', table.cols);
    this.#nodes.push({ op: 'embed', table, scale, features, out });
    return out;
  }

  /** Rows of a table beside {@link embed}: tokens that name rows of a slab have that of `featureRow`. */
  embedBeside(table: Matrix, scale: number, featureRow: number): Tensor {
    if (!(Number.isSafeInteger(featureRow) && featureRow >= 0 && featureRow < table.rows))
      throw shapeError('embedBeside', `row ${featureRow} of ${table.rows}`);
    const out = this.#tensor('tokens', table.cols);
    this.#nodes.push({ op: 'embed', table, scale, featureRow, out });
    return out;
  }

  rmsNorm(x: Tensor, weight: Vector, eps: number): Tensor {
    expectSize('rmsNorm', 'weight', weight.length, x.cols);
    const out = this.#tensor(x.rows, x.cols);
    this.#nodes.push({ op: 'rms-norm', x, weight, eps, out });
    return out;
  }

  /** `(x − mean) / sqrt(mean((x − mean)²) + eps) · weight + bias`, over cols. */
  layerNorm(x: Tensor, weight: Vector | null, bias: Vector | null, eps: number): Tensor {
    return this.norm(x, 'layer', [{ from: 0, cols: x.cols, groups: 1, weight, bias }], eps);
  }

  /** Norms of parts of a row, in the order of their columns; what is in none stays. */
  norm(x: Tensor, kind: NormKind, parts: readonly NormPart[], eps: number): Tensor {
    checkNorm(x, parts);
    const out = this.#tensor(x.rows, x.cols);
    this.#nodes.push({ op: 'norm', x, kind, parts, eps, out });
    return out;
  }

  /** `exact`: x is read as it is, whatever the precision of the device. */
  linear(x: Tensor, weight: Matrix, residual: Tensor | null = null, exact = false): Tensor {
    checkLinear(x, weight, residual);
    const out = this.#tensor(x.rows, weight.rows);
    this.#nodes.push({ op: 'linear', x, weight, residual, ...(exact && { exact }), out });
    return out;
  }

  /** Each head by a matrix of its own: `[rows, weight.rows]`. See graph.ts; `weight` is loaded with `unit: weight.rows / heads`. */
  headLinear(x: Tensor, weight: Matrix, options: HeadLinearOptions): Tensor {
    const { heads, from = 0, step = weight.cols } = options;
    checkHeadLinear(x, weight, { heads, from, step });
    const out = this.#tensor(x.rows, weight.rows);
    this.#nodes.push({ op: 'head-linear', x, weight, heads, from, step, out });
    return out;
  }

  ropeAppend(qkv: Tensor, options: RopeAppendOptions): Tensor {
    checkRopeAppend(qkv, options);
    const { layer, rope, norm = null, queryGrowth = null, queriesOnly, centre = null } = options;
    const shape = shapeOf(options);
    const out = this.#tensor(qkv.rows, shape.heads * shape.headDim);
    const only = queriesOnly === true ? { queriesOnly } : {};
    this.#nodes.push({ op: 'rope-append', qkv, layer, shape, norm, rope, queryGrowth, ...only, centre, out });
    return out;
  }

  attend(q: Tensor, options: AttendOptions): Tensor {
    checkAttend(q, options);
    const { layer, heads, headDim, valueDim, ahead = false } = options;
    const out = this.#tensor(q.rows, heads * (valueDim ?? headDim));
    this.#nodes.push({
      op: 'attend',
      q,
      layer,
      shape: shapeOf(options),
      scale: options.scale ?? 1 / Math.sqrt(headDim),
      window: options.window ?? null,
      softcap: options.softcap ?? null,
      ...(ahead !== false && { ahead }),
      ...(options.sinks && { sinks: options.sinks }),
      centre: options.centre ?? null,
      out,
    });
    return out;
  }

  /** A short causal convolution: `[tokens, channels]`, of as many columns or, gated, of three times so many. */
  shortConv(x: Tensor, options: ShortConvOptions): Tensor {
    const { layer, from = 0, taps, weight, bias = null, gated = false, activation = null } = options;
    const channels = checkShortConv(x, options);
    const out = this.#tensor(x.rows, channels);
    this.#nodes.push({ op: 'short-conv', x, from, layer, taps, weight, bias, gated, activation, out });
    return out;
  }

  /** The gated delta rule: `[tokens, heads · cols]`. */
  gatedDelta(qkv: Tensor, gates: Tensor, options: GatedDeltaOptions): Tensor {
    checkGatedDelta(qkv, gates, options);
    const out = this.#tensor(qkv.rows, options.heads * options.cols);
    this.#nodes.push({ op: 'gated-delta', qkv, gates, gatesFrom: 0, ...options, out });
    return out;
  }

  /** The selective state space: `[tokens, heads · cols]`. */
  selectiveScan(x: Tensor, steps: Tensor, options: SelectiveScanOptions): Tensor {
    checkSelectiveScan(x, steps, options);
    const out = this.#tensor(x.rows, options.heads * options.cols);
    this.#nodes.push({ op: 'selective-scan', x, steps, stepsFrom: 0, ...options, out });
    return out;
  }

  /**
   * `norm(x) · act(gate)`; of x the columns from `from` on, as many as the gate has; or, with `gateFrom`, of the gate those from there
   * on, as many as x has.
   */
  gate(
    x: Tensor,
    gate: Tensor,
    activation: GateActivation,
    norm: { readonly weight: Vector; readonly eps: number } | null = null,
    from = 0,
    gateFrom?: number,
  ): Tensor {
    const cols = checkGate(x, gate, norm?.weight ?? null, from, gateFrom);
    const out = this.#tensor(x.rows, cols);
    this.#nodes.push({ op: 'gate', x, from, gate, gateFrom: gateFrom ?? 0, activation, norm, out });
    return out;
  }

  /** `x` holds gate and up side by side. */
  glu(x: Tensor, activation: Activation): Tensor {
    if (x.cols % 2 !== 0)
      throw shapeError('glu', `${x.cols} columns are not a gate and an up of equal width`);
    const out = this.#tensor(x.rows, x.cols / 2);
    this.#nodes.push({ op: 'glu', x, activation, out });
    return out;
  }

  /** `parameters`: `[4]`, for `xielu` alone. */
  act(x: Tensor, activation: UngatedActivation, parameters: Vector | null = null): Tensor {
    const wanted = activation === 'xielu' ? XIELU_PARAMETERS : 0;
    expectSize('act', `parameters of ${activation}`, parameters?.length ?? 0, wanted);
    const out = this.#tensor(x.rows, x.cols);
    this.#nodes.push({ op: 'act', x, activation, parameters, out });
    return out;
  }

  /** `[rows, cols]` of runs of columns; all their numbers are multiples of 4, and no two runs meet. */
  columns(cols: number, parts: readonly ColumnPart[]): Tensor {
    const first = checkColumns(cols, parts);
    const out = this.#tensor(first.x.rows, cols);
    this.#nodes.push({ op: 'columns', parts, out });
    return out;
  }

  add(a: Tensor, b: Tensor): Tensor {
    expectSize('add', 'b cols', b.cols, a.cols);
    expectSameRows('add', a, b);
    const out = this.#tensor(a.rows, a.cols);
    this.#nodes.push({ op: 'add', a, b, out });
    return out;
  }

  /** What the slab has from `column` on (a multiple of 4), added where tokens name its rows. */
  addFeatures(x: Tensor, features: FeatureSlab, column: number): Tensor {
    checkAddFeatures(x, features, column);
    const out = this.#tensor('tokens', x.cols);
    this.#nodes.push({ op: 'add-features', x, features, column, out });
    return out;
  }

  /** Weighed rows of a table: positions that were learnt. `taps` `[rows, 2k]`, or by the positions of tokens: see graph.ts. */
  addGathered(x: Tensor, table: Vector, taps: Tensor | 'position'): Tensor {
    checkAddGathered(x, table, taps);
    const out = this.#tensor(x.rows, x.cols);
    this.#nodes.push({ op: 'add-gathered', x, table, taps, out });
    return out;
  }

  /** `factor · x`; with `softcap` c `c · tanh(factor · x / c)`, as Gemma 2 has it for its logits. */
  scale(x: Tensor, factor: number, softcap: number | null = null): Tensor {
    if (!Number.isFinite(factor)) throw shapeError('scale', `a factor of ${factor}`);
    if (softcap !== null && !(softcap > 0 && softcap < Number.POSITIVE_INFINITY))
      throw shapeError('scale', `a cap of ${softcap}`);
    const out = this.#tensor(x.rows, x.cols);
    this.#nodes.push({ op: 'scale', x, factor, softcap, out });
    return out;
  }

  /** `min(max(x, low), high)`. `bounds` `[runs, 2]`: of runs of columns of one width, a multiple of 4 where there are several. */
  clamp(x: Tensor, bounds: Vector): Tensor {
    const runs = bounds.length / 2;
    const width = x.cols / runs;
    if (!(Number.isInteger(runs) && runs >= 1 && (runs === 1 || Number.isInteger(width / 4))))
      throw shapeError('clamp', `${bounds.length} bounds of ${x.cols} columns`);
    const out = this.#tensor(x.rows, x.cols);
    this.#nodes.push({ op: 'clamp', x, bounds, out });
    return out;
  }

  /** The experts of each row, from router logits `[rows, experts]`: `[rows, 2k]`, ids and then weights. */
  route(logits: Tensor, spec: RouteSpec): Tensor {
    checkRoute(logits, spec);
    const out = this.#tensor(logits.rows, 2 * spec.k);
    this.#nodes.push({ op: 'route', logits, spec, out });
    return out;
  }

  /** Heads rotated by angles of each row's own: see graph.ts. */
  rotate(x: Tensor, angles: Tensor, options: RotateOptions): Tensor {
    const { heads, headDim, style } = options;
    checkRotate(x, angles, options);
    const out = this.#tensor(x.rows, x.cols);
    this.#nodes.push({ op: 'rotate', x, angles, heads, headDim, style, out });
    return out;
  }

  /** Attention of rows among themselves, in segments: see graph.ts. */
  attendSegments(qkv: Tensor, bounds: Tensor, options: AttendSegmentsOptions): Tensor {
    const { heads, headDim, scale = 1 / Math.sqrt(headDim), most } = options;
    checkAttendSegments(qkv, bounds, options);
    const out = this.#tensor(qkv.rows, heads * headDim);
    const reach = most === undefined ? {} : { most };
    this.#nodes.push({ op: 'attend-segments', qkv, bounds, heads, headDim, scale, ...reach, out });
    return out;
  }

  /** The experts that `route` names of stacks of `count`, weighed and added up. */
  experts(x: Tensor, route: Tensor, options: ExpertsOptions): Tensor {
    const { count, gateUp, down, activation, residual = null } = options;
    checkExperts(x, route, options);
    const out = this.#tensor(x.rows, down.rows / count);
    this.#nodes.push({ op: 'experts', x, route, count, gateUp, down, activation, residual, out });
    return out;
  }

  /** `each`: rows that an output names, which it puts side by side. */
  selectOutputs(x: Tensor, each = 1): Tensor {
    checkSelect(x, each, false);
    const out = this.#tensor('outputs', x.cols * each);
    this.#nodes.push({ op: 'select-outputs', x, out });
    return out;
  }

  /** The mean of the `each` rows that an output names. */
  meanOutputs(x: Tensor, each: number): Tensor {
    checkSelect(x, each, true);
    const out = this.#tensor('outputs', x.cols);
    this.#nodes.push({ op: 'select-outputs', x, mean: each, out });
    return out;
  }

  sample(logits: Tensor): void {
    if (logits.rows !== 'outputs')
      throw shapeError('sample', 'logits must be selected with selectOutputs first');
    this.#nodes.push({ op: 'sample', logits });
  }

  /** Marks a tensor that the host will read. */
  keep(tensor: Tensor): Tensor {
    if (!this.#kept.includes(tensor)) this.#kept.push(tensor);
    return tensor;
  }

  /** Marks the tensor whose rows the results of steps bring where they are asked to: last hidden states. */
  hidden(tensor: Tensor): Tensor {
    if (this.#hidden !== null) throw shapeError('hidden', 'a second tensor of hidden rows');
    this.#hidden = tensor;
    return this.keep(tensor);
  }

  finish(): Graph {
    return {
      nodes: [...this.#nodes],
      tensors: [...this.#tensors],
      kept: [...this.#kept],
      hidden: this.#hidden,
    };
  }

  #tensor(rows: RowKind, cols: number): Tensor {
    if (!Number.isInteger(cols) || cols < 1) throw shapeError('tensor', `${cols} columns`);
    const tensor: Tensor = { id: this.#tensors.length, rows, cols };
    this.#tensors.push(tensor);
    return tensor;
  }
}

/** The shape alone of options that have one. */
function shapeOf({ heads, kvHeads, headDim, valueDim }: AttentionShape): AttentionShape {
  return { heads, kvHeads, headDim, ...(valueDim !== undefined && { valueDim }) };
}
