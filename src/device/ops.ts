/**
 * Ops: what a model is written against. Each call checks its shapes, appends a node to the graph and returns the
 * symbolic result. Shapes are those of graph.ts.
 */

import { KvantError } from '../errors.js';
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
import { ROPE_AXES } from './rope.js';

/** Widest head that kernels of segments have room for. */
const MAX_SEGMENT_HEAD = 128;

/** Widths in an expert are multiples of so many. */
const STACK_ROWS = 8;
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

  rmsNorm(x: Tensor, weight: Vector, eps: number): Tensor {
    this.#expect('rmsNorm', 'weight', weight.length, x.cols);
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
    let end = 0;
    for (const { from, cols, groups, weight, bias } of parts) {
      if (from < end || cols < 1 || groups < 1 || from + cols * groups > x.cols)
        throw shapeError('norm', `${groups} groups of ${cols} columns from ${from}, of ${x.cols} in all`);
      end = from + cols * groups;
      if (weight !== null) this.#expect('norm', 'weight', weight.length, cols * groups);
      if (bias !== null) this.#expect('norm', 'bias', bias.length, cols * groups);
    }
    const out = this.#tensor(x.rows, x.cols);
    this.#nodes.push({ op: 'norm', x, kind, parts, eps, out });
    return out;
  }

  /** `exact`: x is read as it is, whatever the precision of the device. */
  linear(x: Tensor, weight: Matrix, residual: Tensor | null = null, exact = false): Tensor {
    this.#expect('linear', 'weight cols', weight.cols, x.cols);
    if (residual !== null) {
      this.#expect('linear', 'residual cols', residual.cols, weight.rows);
      this.#sameRows('linear', residual, x);
    }
    const out = this.#tensor(x.rows, weight.rows);
    this.#nodes.push({ op: 'linear', x, weight, residual, ...(exact && { exact }), out });
    return out;
  }

  /** Each head by a matrix of its own: `[rows, weight.rows]`. See graph.ts; `weight` is loaded with `unit: weight.rows / heads`. */
  headLinear(x: Tensor, weight: Matrix, options: HeadLinearOptions): Tensor {
    const { heads, from = 0, step = weight.cols } = options;
    const each = weight.rows / heads;
    if (!Number.isInteger(each / STACK_ROWS))
      throw shapeError(
        'headLinear',
        `${weight.rows} rows for ${heads} heads, no multiple of ${STACK_ROWS} each`,
      );
    const ends = from + (heads - 1) * step + weight.cols;
    if ([from, step, weight.cols].some((n) => !(Number.isInteger(n / 4) && n >= 0)) || ends > x.cols)
      throw shapeError(
        'headLinear',
        `${heads} runs of ${weight.cols} columns, ${step} apart from ${from} on, of ${x.cols}`,
      );
    const out = this.#tensor(x.rows, weight.rows);
    this.#nodes.push({ op: 'head-linear', x, weight, heads, from, step, out });
    return out;
  }

  ropeAppend(qkv: Tensor, options: RopeAppendOptions): Tensor {
    const { layer, heads, kvHeads, headDim, rope } = options;
    const queriesOnly = options.queriesOnly === true;
    const latent = this.#latent('ropeAppend', options);
    const others = queriesOnly ? 0 : options.valueDim === undefined ? 2 * kvHeads : kvHeads;
    this.#expect('ropeAppend', 'qkv cols', qkv.cols, (heads + others) * headDim);
    const norm = options.norm ?? null;
    if (rope?.axes) {
      this.#expect('ropeAppend', 'axes of the rotation', rope.axes.length, rope.dims / 2);
      if (rope.axes.some((axis) => axis >= ROPE_AXES))
        throw shapeError('ropeAppend', `an axis that is not below ${ROPE_AXES}`);
    }
    if (norm !== null) {
      this.#expect('ropeAppend', 'q norm', norm.q.length, headDim);
      this.#expect('ropeAppend', 'k norm', norm.k.length, headDim);
    }
    const out = this.#tensor(qkv.rows, heads * headDim);
    const queryGrowth = options.queryGrowth ?? null;
    if (queryGrowth !== null && !(Number.isSafeInteger(queryGrowth.every) && queryGrowth.every > 0))
      throw shapeError('ropeAppend', `one factor of q for every ${queryGrowth.every} positions`);
    const shape = { heads, kvHeads, headDim, ...latent };
    const centre = options.centre ?? null;
    if (centre !== null) {
      if (options.valueDim !== undefined)
        throw shapeError('ropeAppend', 'keys with a centre, whose values are a view of them');
      this.#expect('ropeAppend', 'centre', centre.vector.length, 3 * kvHeads * headDim);
      if (centre.turns && rope === null)
        throw shapeError('ropeAppend', 'a centre that turns, but no rotation');
      if (centre.turns && rope?.axes)
        throw shapeError('ropeAppend', 'a centre that turns by cache indexes, but a rotation by axes');
    }
    const only = queriesOnly ? { queriesOnly } : {};
    this.#nodes.push({ op: 'rope-append', qkv, layer, shape, norm, rope, queryGrowth, ...only, centre, out });
    return out;
  }

  attend(q: Tensor, options: AttendOptions): Tensor {
    const { layer, heads, kvHeads, headDim, valueDim } = options;
    this.#expect('attend', 'q cols', q.cols, heads * headDim);
    if (heads % kvHeads !== 0)
      throw shapeError('attend', `${heads} heads do not share ${kvHeads} KV heads evenly`);
    if (options.sinks) this.#expect('attend', 'sinks', options.sinks.length, heads);
    const { ahead = false } = options;
    if (ahead === 'window' && !options.window)
      throw shapeError('attend', 'tokens that see as far ahead as back, without a window');
    const latent = this.#latent('attend', options);
    if (valueDim !== undefined && options.centre)
      throw shapeError('attend', 'keys with a centre, whose values are a view of them');
    const out = this.#tensor(q.rows, heads * (valueDim ?? headDim));
    this.#nodes.push({
      op: 'attend',
      q,
      layer,
      shape: { heads, kvHeads, headDim, ...latent },
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
    const { layer, taps, weight, bias = null, gated = false, activation = null } = options;
    const channels = gated ? x.cols / 3 : x.cols;
    if (channels % 4 !== 0) throw shapeError('shortConv', `${channels} channels, not a multiple of 4`);
    if (!(Number.isInteger(taps) && taps >= 2 && taps <= 8))
      throw shapeError('shortConv', `${taps} taps, not 2 to 8`);
    this.#expect('shortConv', 'weight', weight.length, taps * channels);
    if (bias !== null) this.#expect('shortConv', 'bias', bias.length, channels);
    const out = this.#tensor(x.rows, channels);
    this.#nodes.push({ op: 'short-conv', x, layer, taps, weight, bias, gated, activation, out });
    return out;
  }

  /** The gated delta rule: `[tokens, heads · cols]`. */
  gatedDelta(qkv: Tensor, gates: Tensor, options: GatedDeltaOptions): Tensor {
    const { keyHeads, heads, rows, cols, decay } = options;
    if (heads % keyHeads !== 0)
      throw shapeError('gatedDelta', `${heads} heads do not share ${keyHeads} key heads evenly`);
    if (rows % 4 !== 0 || cols % 4 !== 0)
      throw shapeError('gatedDelta', `states of ${rows} × ${cols}, not multiples of 4`);
    this.#expect('gatedDelta', 'qkv cols', qkv.cols, 2 * keyHeads * rows + heads * cols);
    this.#expect('gatedDelta', 'gates cols', gates.cols, 2 * heads);
    this.#expect('gatedDelta', 'decay', decay.length, 2 * heads);
    this.#sameRows('gatedDelta', qkv, gates);
    const out = this.#tensor(qkv.rows, heads * cols);
    this.#nodes.push({ op: 'gated-delta', qkv, gates, ...options, out });
    return out;
  }

  /** The selective state space: `[tokens, heads · cols]`. */
  selectiveScan(x: Tensor, steps: Tensor, options: SelectiveScanOptions): Tensor {
    const { groups, heads, rows, cols, limits, decay } = options;
    if (heads % groups !== 0)
      throw shapeError('selectiveScan', `${heads} heads do not share ${groups} groups evenly`);
    if (rows % 4 !== 0 || cols % 4 !== 0)
      throw shapeError('selectiveScan', `states of ${rows} × ${cols}, not multiples of 4`);
    if (!(limits[0] >= 0 && limits[0] <= limits[1]))
      throw shapeError('selectiveScan', `time steps from ${limits[0]} to ${limits[1]}`);
    this.#expect('selectiveScan', 'x cols', x.cols, heads * cols + 2 * groups * rows);
    this.#expect('selectiveScan', 'steps cols', steps.cols, heads);
    this.#expect('selectiveScan', 'decay', decay.length, 3 * heads);
    this.#sameRows('selectiveScan', x, steps);
    const out = this.#tensor(x.rows, heads * cols);
    this.#nodes.push({ op: 'selective-scan', x, steps, ...options, out });
    return out;
  }

  /** `norm(x) · act(gate)`; of x the columns from `from` on, as many as the gate has. */
  gate(
    x: Tensor,
    gate: Tensor,
    activation: GateActivation,
    norm: { readonly weight: Vector; readonly eps: number } | null = null,
    from = 0,
  ): Tensor {
    const { cols } = gate;
    if (norm !== null || x.cols === cols) this.#expect('gate', 'x cols', x.cols, cols);
    if (!Number.isInteger(from) || from < 0 || from + cols > x.cols || (x.cols !== cols && cols % 4 !== 0))
      throw shapeError('gate', `${cols} columns from ${from}, of ${x.cols} in all`);
    this.#sameRows('gate', x, gate);
    if (norm !== null && cols % norm.weight.length !== 0)
      throw shapeError('gate', `${cols} columns in runs of ${norm.weight.length}`);
    const out = this.#tensor(x.rows, cols);
    this.#nodes.push({ op: 'gate', x, from, gate, activation, norm, out });
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
    this.#expect('act', `parameters of ${activation}`, parameters?.length ?? 0, wanted);
    const out = this.#tensor(x.rows, x.cols);
    this.#nodes.push({ op: 'act', x, activation, parameters, out });
    return out;
  }

  /** `[rows, cols]` of runs of columns; all their numbers are multiples of 4, and no two runs meet. */
  columns(cols: number, parts: readonly ColumnPart[]): Tensor {
    const [first] = parts;
    if (first === undefined) throw shapeError('columns', 'no parts');
    for (const part of parts) {
      const { x, count, ...places } = part;
      this.#sameRows('columns', x, first.x);
      const last = count - 1;
      const ends = [
        places.from + last * places.fromStep + places.cols - x.cols,
        places.to + last * places.toStep + places.cols - cols,
      ];
      const sizes = [cols, x.cols, ...Object.values(places)];
      if (
        !sizes.every((size) => Number.isInteger(size / 4) && size >= 0) ||
        !(Number.isInteger(count) && count >= 1) ||
        !(places.cols >= 1 && places.toStep >= places.cols) ||
        ends.some((beyond) => beyond > 0)
      )
        throw shapeError(
          'columns',
          `runs of ${JSON.stringify({ ...places, count })} of ${x.cols} for ${cols}`,
        );
    }
    const out = this.#tensor(first.x.rows, cols);
    this.#nodes.push({ op: 'columns', parts, out });
    return out;
  }

  add(a: Tensor, b: Tensor): Tensor {
    this.#expect('add', 'b cols', b.cols, a.cols);
    this.#sameRows('add', a, b);
    const out = this.#tensor(a.rows, a.cols);
    this.#nodes.push({ op: 'add', a, b, out });
    return out;
  }

  /** What the slab has from `column` on (a multiple of 4), added where tokens name its rows. */
  addFeatures(x: Tensor, features: FeatureSlab, column: number): Tensor {
    if (x.rows !== 'tokens') throw shapeError('addFeatures', `rows of ${x.rows}, not of tokens`);
    if (!(Number.isInteger(column / 4) && column >= 0) || column + x.cols > features.cols)
      throw shapeError(
        'addFeatures',
        `${x.cols} columns from column ${column}, of rows of ${features.cols} features`,
      );
    const out = this.#tensor('tokens', x.cols);
    this.#nodes.push({ op: 'add-features', x, features, column, out });
    return out;
  }

  /** Weighed rows of a table: positions that were learnt. `taps` `[rows, 2k]`, or by the positions of tokens: see graph.ts. */
  addGathered(x: Tensor, table: Vector, taps: Tensor | 'position'): Tensor {
    if (taps === 'position') {
      if (x.rows !== 'tokens') throw shapeError('addGathered', `positions of rows of ${x.rows}`);
    } else {
      this.#sameRows('addGathered', taps, x);
      if (taps.cols % 2 !== 0) throw shapeError('addGathered', `taps of ${taps.cols} columns`);
    }
    if (table.length === 0 || table.length % x.cols !== 0)
      throw shapeError('addGathered', `a table of ${table.length} numbers for rows of ${x.cols}`);
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

  /** The experts of each row, from router logits `[rows, experts]`: `[rows, 2k]`, ids and then weights. */
  route(logits: Tensor, spec: RouteSpec): Tensor {
    const { k, bias, groups, expertScales } = spec;
    const experts = logits.cols;
    if (!(Number.isInteger(k) && k >= 1 && k <= experts))
      throw shapeError('route', `${k} of ${experts} experts`);
    if (bias !== null) this.#expect('route', 'bias', bias.length, experts);
    if (expertScales) this.#expect('route', 'scales of experts', expertScales.length, experts);
    if (groups !== null) {
      const { count, kept, by } = groups;
      const each = experts / count;
      const least = by === 'best' ? 1 : 2;
      if (!(Number.isInteger(each) && each >= least && kept >= 1 && kept <= count && kept * each >= k))
        throw shapeError('route', `${k} of ${experts} experts, from ${kept} of ${count} groups`);
    }
    const out = this.#tensor(logits.rows, 2 * k);
    this.#nodes.push({ op: 'route', logits, spec, out });
    return out;
  }

  /** Heads turned by angles of each row's own: see graph.ts. */
  rotate(x: Tensor, angles: Tensor, options: RotateOptions): Tensor {
    const { heads, headDim, style } = options;
    this.#sameRows('rotate', angles, x);
    const dims = angles.cols;
    if (heads * headDim > x.cols || headDim % 4 !== 0 || dims % 2 !== 0 || dims > headDim)
      throw shapeError('rotate', `${dims} of ${headDim} dims in ${heads} heads, of ${x.cols} columns in all`);
    const out = this.#tensor(x.rows, x.cols);
    this.#nodes.push({ op: 'rotate', x, angles, heads, headDim, style, out });
    return out;
  }

  /** Attention of rows among themselves, in segments: see graph.ts. */
  attendSegments(qkv: Tensor, bounds: Tensor, options: AttendSegmentsOptions): Tensor {
    const { heads, headDim, scale = 1 / Math.sqrt(headDim) } = options;
    this.#expect('attendSegments', 'qkv cols', qkv.cols, 3 * heads * headDim);
    this.#expect('attendSegments', 'bounds cols', bounds.cols, 2);
    this.#sameRows('attendSegments', bounds, qkv);
    if (headDim % 4 !== 0 || headDim > MAX_SEGMENT_HEAD)
      throw shapeError('attendSegments', `heads of ${headDim} dims`);
    const out = this.#tensor(qkv.rows, heads * headDim);
    this.#nodes.push({ op: 'attend-segments', qkv, bounds, heads, headDim, scale, out });
    return out;
  }

  /** The experts that `route` names of stacks of `count`, weighed and added up. */
  experts(x: Tensor, route: Tensor, options: ExpertsOptions): Tensor {
    const { count, gateUp, down, activation, residual = null } = options;
    this.#sameRows('experts', route, x);
    this.#expect('experts', 'gateUp cols', gateUp.cols, x.cols);
    const inner = gateUp.rows / count / 2;
    const cols = down.rows / count;
    // Experts begin at whole blocks of rows.
    for (const width of [x.cols, inner, cols])
      if (!Number.isInteger(width / STACK_ROWS))
        throw shapeError('experts', `a width of ${width} in ${count} experts, no multiple of ${STACK_ROWS}`);
    this.#expect('experts', 'down cols', down.cols, inner);
    if (route.cols % 2 !== 0 || route.cols / 2 > count)
      throw shapeError('experts', `a route of ${route.cols} columns, to ${count} experts`);
    if (typeof activation !== 'string' && !(activation.limit > 0 && Number.isFinite(activation.alpha)))
      throw shapeError('experts', `an activation with a limit of ${activation.limit}`);
    if (residual !== null) {
      this.#expect('experts', 'residual cols', residual.cols, cols);
      this.#sameRows('experts', residual, x);
    }
    const out = this.#tensor(x.rows, cols);
    this.#nodes.push({ op: 'experts', x, route, count, gateUp, down, activation, residual, out });
    return out;
  }

  /** `each`: rows that an output names, which it puts side by side. */
  selectOutputs(x: Tensor, each = 1): Tensor {
    if (!(Number.isInteger(each) && each >= 1) || (each > 1 && x.cols % 4 !== 0))
      throw shapeError('selectOutputs', `${each} rows of ${x.cols} columns side by side`);
    const out = this.#tensor('outputs', x.cols * each);
    this.#nodes.push({ op: 'select-outputs', x, out });
    return out;
  }

  /** The mean of the `each` rows that an output names. */
  meanOutputs(x: Tensor, each: number): Tensor {
    if (!(Number.isInteger(each) && each >= 1) || x.cols % 4 !== 0)
      throw shapeError('meanOutputs', `the mean of ${each} rows of ${x.cols} columns`);
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

  #expect(op: string, what: string, got: number, want: number): void {
    if (got !== want) throw shapeError(op, `${what} is ${got}, ${want} is needed`);
  }

  /** The field of a shape whose values are a view of its keys. */
  #latent(op: string, { kvHeads, headDim, valueDim }: AttentionShape): Pick<AttentionShape, 'valueDim'> {
    if (valueDim === undefined) return {};
    if (kvHeads !== 1 || valueDim % 16 !== 0 || (headDim - valueDim) % 4 !== 0 || valueDim > headDim)
      throw shapeError(op, `values of ${valueDim} in ${kvHeads} keys of ${headDim}`);
    return { valueDim };
  }

  #sameRows(op: string, a: Tensor, b: Tensor): void {
    if (a.rows !== b.rows) throw shapeError(op, `rows of ${a.rows} meet rows of ${b.rows}`);
  }
}

function shapeError(op: string, message: string): KvantError {
  return new KvantError('shape-mismatch', `${op}: ${message}.`, {
    where: op,
    fix: 'Check the model file that records this op.',
  });
}
