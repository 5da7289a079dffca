/**
 * What the shapes of an operation's inputs have to be. Checked where a model records it (ops.ts), so that a wrong model file fails
 * there, with `shape-mismatch`, and not on a device.
 */

import { KvantError } from '../errors.js';
import type { Matrix, Vector } from './device.js';
import type { FeatureSlab } from './feature-slab.js';
import type { AttentionShape, ColumnPart, NormPart, RouteSpec, Tensor } from './graph.js';
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

/** Widths in an expert, and rows of a head's matrix, are multiples of so many. */
const STACK_ROWS = 8;

export function shapeError(op: string, message: string): KvantError {
  return new KvantError('shape-mismatch', `${op}: ${message}.`, {
    where: op,
    fix: 'Check the model file that records this op.',
  });
}

export function expectSize(op: string, what: string, got: number, want: number): void {
  if (got !== want) throw shapeError(op, `${what} is ${got}, ${want} is needed`);
}

export function expectSameRows(op: string, a: Tensor, b: Tensor): void {
  if (a.rows !== b.rows) throw shapeError(op, `rows of ${a.rows} meet rows of ${b.rows}`);
}

export function checkNorm(x: Tensor, parts: readonly NormPart[]): void {
  let end = 0;
  for (const { from, cols, groups, weight, bias } of parts) {
    if (from < end || cols < 1 || groups < 1 || from + cols * groups > x.cols)
      throw shapeError('norm', `${groups} groups of ${cols} columns from ${from}, of ${x.cols} in all`);
    end = from + cols * groups;
    if (weight !== null) expectSize('norm', 'weight', weight.length, cols * groups);
    if (bias !== null) expectSize('norm', 'bias', bias.length, cols * groups);
  }
}

export function checkLinear(x: Tensor, weight: Matrix, residual: Tensor | null): void {
  expectSize('linear', 'weight cols', weight.cols, x.cols);
  if (residual === null) return;
  expectSize('linear', 'residual cols', residual.cols, weight.rows);
  expectSameRows('linear', residual, x);
}

export function checkHeadLinear(x: Tensor, weight: Matrix, options: Required<HeadLinearOptions>): void {
  const { heads, from, step } = options;
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
}

export function checkRopeAppend(qkv: Tensor, options: RopeAppendOptions): void {
  const { heads, kvHeads, headDim, valueDim, rope, norm, queryGrowth, centre } = options;
  checkLatent('ropeAppend', options);
  const others = options.queriesOnly === true ? 0 : valueDim === undefined ? 2 * kvHeads : kvHeads;
  expectSize('ropeAppend', 'qkv cols', qkv.cols, (heads + others) * headDim);
  if (rope?.axes) {
    expectSize('ropeAppend', 'axes of the rotation', rope.axes.length, rope.dims / 2);
    if (rope.axes.some((axis) => axis >= ROPE_AXES))
      throw shapeError('ropeAppend', `an axis that is not below ${ROPE_AXES}`);
  }
  if (norm) {
    expectSize('ropeAppend', 'q norm', norm.q.length, headDim);
    expectSize('ropeAppend', 'k norm', norm.k.length, headDim);
  }
  if (queryGrowth && !(Number.isSafeInteger(queryGrowth.every) && queryGrowth.every > 0))
    throw shapeError('ropeAppend', `one factor of q for every ${queryGrowth.every} positions`);
  if (!centre) return;
  if (valueDim !== undefined)
    throw shapeError('ropeAppend', 'keys with a centre, whose values are a view of them');
  expectSize('ropeAppend', 'centre', centre.vector.length, 3 * kvHeads * headDim);
  if (centre.turns && rope === null) throw shapeError('ropeAppend', 'a centre that turns, but no rotation');
  if (centre.turns && rope?.axes)
    throw shapeError('ropeAppend', 'a centre that turns by cache indexes, but a rotation by axes');
}

export function checkAttend(q: Tensor, options: AttendOptions): void {
  const { heads, kvHeads, headDim, valueDim, sinks } = options;
  expectSize('attend', 'q cols', q.cols, heads * headDim);
  if (heads % kvHeads !== 0)
    throw shapeError('attend', `${heads} heads do not share ${kvHeads} KV heads evenly`);
  if (sinks) expectSize('attend', 'sinks', sinks.length, heads);
  if (options.ahead === 'window' && !options.window)
    throw shapeError('attend', 'tokens that see as far ahead as back, without a window');
  checkLatent('attend', options);
  if (valueDim !== undefined && options.centre)
    throw shapeError('attend', 'keys with a centre, whose values are a view of them');
}

/** Values that are a view of the keys. */
function checkLatent(op: string, { kvHeads, headDim, valueDim }: AttentionShape): void {
  if (valueDim === undefined) return;
  if (kvHeads !== 1 || valueDim % 16 !== 0 || (headDim - valueDim) % 4 !== 0 || valueDim > headDim)
    throw shapeError(op, `values of ${valueDim} in ${kvHeads} keys of ${headDim}`);
}

/** Answers the channels. */
export function checkShortConv(x: Tensor, { from, taps, weight, bias, gated }: ShortConvOptions): number {
  const channels = from === undefined ? x.cols / (gated ? 3 : 1) : weight.length / taps;
  if (from !== undefined) checkPart('shortConv', 'channels', x, from, gated ? 3 * channels : channels);
  if (channels % 4 !== 0) throw shapeError('shortConv', `${channels} channels, not a multiple of 4`);
  if (!(Number.isInteger(taps) && taps >= 2 && taps <= 8))
    throw shapeError('shortConv', `${taps} taps, not 2 to 8`);
  expectSize('shortConv', 'weight', weight.length, taps * channels);
  if (bias) expectSize('shortConv', 'bias', bias.length, channels);
  return channels;
}

/** Some of the columns of a tensor that has others too. `unit`: what they are read in. */
function checkPart(op: string, what: string, { cols }: Tensor, from: number, count: number, unit = 4): void {
  if (![from / unit, count / unit].every((n) => Number.isInteger(n) && n >= 0) || from + count > cols)
    throw shapeError(op, `${count} ${what} from column ${from} on, of ${cols}, or no multiple of ${unit}`);
}

export function checkGatedDelta(qkv: Tensor, gates: Tensor, options: GatedDeltaOptions): void {
  const { keyHeads, heads, rows, cols, decay, gatesFrom } = options;
  if (heads % keyHeads !== 0)
    throw shapeError('gatedDelta', `${heads} heads do not share ${keyHeads} key heads evenly`);
  checkState('gatedDelta', rows, cols);
  expectSize('gatedDelta', 'qkv cols', qkv.cols, 2 * keyHeads * rows + heads * cols);
  if (gatesFrom === undefined) expectSize('gatedDelta', 'gates cols', gates.cols, 2 * heads);
  else checkPart('gatedDelta', 'gates', gates, gatesFrom, 2 * heads, 1);
  expectSize('gatedDelta', 'decay', decay.length, 2 * heads);
  expectSameRows('gatedDelta', qkv, gates);
}

export function checkSelectiveScan(x: Tensor, steps: Tensor, options: SelectiveScanOptions): void {
  const { groups, heads, rows, cols, limits, decay, stepsFrom } = options;
  if (heads % groups !== 0)
    throw shapeError('selectiveScan', `${heads} heads do not share ${groups} groups evenly`);
  checkState('selectiveScan', rows, cols);
  if (!(limits[0] >= 0 && limits[0] <= limits[1]))
    throw shapeError('selectiveScan', `time steps from ${limits[0]} to ${limits[1]}`);
  expectSize('selectiveScan', 'x cols', x.cols, heads * cols + 2 * groups * rows);
  if (stepsFrom === undefined) expectSize('selectiveScan', 'steps cols', steps.cols, heads);
  else checkPart('selectiveScan', 'steps', steps, stepsFrom, heads, 1);
  expectSize('selectiveScan', 'decay', decay.length, 3 * heads);
  expectSameRows('selectiveScan', x, steps);
}

/** The state `[rows, cols]` of a head of a scan. */
function checkState(op: string, rows: number, cols: number): void {
  if (rows % 4 !== 0 || cols % 4 !== 0)
    throw shapeError(op, `states of ${rows} × ${cols}, not multiples of 4`);
}

/** Answers the columns of the result. */
export function checkGate(
  x: Tensor,
  gate: Tensor,
  normed: Vector | null,
  from: number,
  gateFrom: number | undefined,
): number {
  const { cols } = gateFrom === undefined ? gate : x;
  if (gateFrom !== undefined) checkPart('gate', 'columns of the gate', gate, gateFrom, cols, 1);
  if (normed !== null || x.cols === cols) expectSize('gate', 'x cols', x.cols, cols);
  if (!Number.isInteger(from) || from < 0 || from + cols > x.cols || (x.cols !== cols && cols % 4 !== 0))
    throw shapeError('gate', `${cols} columns from ${from}, of ${x.cols} in all`);
  expectSameRows('gate', x, gate);
  if (normed !== null && cols % normed.length !== 0)
    throw shapeError('gate', `${cols} columns in runs of ${normed.length}`);
  return cols;
}

/** Answers the first part: there is one. */
export function checkColumns(cols: number, parts: readonly ColumnPart[]): ColumnPart {
  const [first] = parts;
  if (first === undefined) throw shapeError('columns', 'no parts');
  for (const part of parts) {
    const { x, count, ...places } = part;
    expectSameRows('columns', x, first.x);
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
      throw shapeError('columns', `runs of ${JSON.stringify({ ...places, count })} of ${x.cols} for ${cols}`);
  }
  return first;
}

export function checkAddFeatures(x: Tensor, features: FeatureSlab, column: number): void {
  if (x.rows !== 'tokens') throw shapeError('addFeatures', `rows of ${x.rows}, not of tokens`);
  if (!(Number.isInteger(column / 4) && column >= 0) || column + x.cols > features.cols)
    throw shapeError(
      'addFeatures',
      `${x.cols} columns from column ${column}, of rows of ${features.cols} features`,
    );
}

export function checkAddGathered(x: Tensor, table: Vector, taps: Tensor | 'position'): void {
  if (taps === 'position') {
    if (x.rows !== 'tokens') throw shapeError('addGathered', `positions of rows of ${x.rows}`);
  } else {
    expectSameRows('addGathered', taps, x);
    if (taps.cols % 2 !== 0) throw shapeError('addGathered', `taps of ${taps.cols} columns`);
  }
  if (table.length === 0 || table.length % x.cols !== 0)
    throw shapeError('addGathered', `a table of ${table.length} numbers for rows of ${x.cols}`);
}

export function checkRoute(logits: Tensor, { k, bias, groups, expertScales }: RouteSpec): void {
  const experts = logits.cols;
  if (!(Number.isInteger(k) && k >= 1 && k <= experts))
    throw shapeError('route', `${k} of ${experts} experts`);
  if (bias !== null) expectSize('route', 'bias', bias.length, experts);
  if (expertScales) expectSize('route', 'scales of experts', expertScales.length, experts);
  if (groups === null) return;
  const { count, kept, by } = groups;
  const each = experts / count;
  const least = by === 'best' ? 1 : 2;
  if (!(Number.isInteger(each) && each >= least && kept >= 1 && kept <= count && kept * each >= k))
    throw shapeError('route', `${k} of ${experts} experts, from ${kept} of ${count} groups`);
}

export function checkRotate(x: Tensor, angles: Tensor, { heads, headDim }: RotateOptions): void {
  expectSameRows('rotate', angles, x);
  const dims = angles.cols;
  if (heads * headDim > x.cols || headDim % 4 !== 0 || dims % 2 !== 0 || dims > headDim)
    throw shapeError('rotate', `${dims} of ${headDim} dims in ${heads} heads, of ${x.cols} columns in all`);
}

export function checkAttendSegments(qkv: Tensor, bounds: Tensor, options: AttendSegmentsOptions): void {
  const { heads, headDim } = options;
  expectSize('attendSegments', 'qkv cols', qkv.cols, 3 * heads * headDim);
  expectSize('attendSegments', 'bounds cols', bounds.cols, 2);
  expectSameRows('attendSegments', bounds, qkv);
  if (headDim % 4 !== 0 || headDim > MAX_SEGMENT_HEAD)
    throw shapeError('attendSegments', `heads of ${headDim} dims`);
}

export function checkExperts(x: Tensor, route: Tensor, options: ExpertsOptions): void {
  const { count, gateUp, down, activation, residual } = options;
  expectSameRows('experts', route, x);
  expectSize('experts', 'gateUp cols', gateUp.cols, x.cols);
  const inner = gateUp.rows / count / 2;
  const cols = down.rows / count;
  // Experts begin at whole blocks of rows.
  for (const width of [x.cols, inner, cols])
    if (!Number.isInteger(width / STACK_ROWS))
      throw shapeError('experts', `a width of ${width} in ${count} experts, no multiple of ${STACK_ROWS}`);
  expectSize('experts', 'down cols', down.cols, inner);
  if (route.cols % 2 !== 0 || route.cols / 2 > count)
    throw shapeError('experts', `a route of ${route.cols} columns, to ${count} experts`);
  if (typeof activation !== 'string' && !(activation.limit > 0 && Number.isFinite(activation.alpha)))
    throw shapeError('experts', `an activation with a limit of ${activation.limit}`);
  if (!residual) return;
  expectSize('experts', 'residual cols', residual.cols, cols);
  expectSameRows('experts', residual, x);
}

/** `each` rows that an output names, side by side, or their `mean`, whose columns are always taken by fours. */
export function checkSelect(x: Tensor, each: number, mean: boolean): void {
  if (Number.isInteger(each) && each >= 1 && ((each === 1 && !mean) || x.cols % 4 === 0)) return;
  throw mean
    ? shapeError('meanOutputs', `the mean of ${each} rows of ${x.cols} columns`)
    : shapeError('selectOutputs', `${each} rows of ${x.cols} columns side by side`);
}
