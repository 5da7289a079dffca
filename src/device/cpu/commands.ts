/** The parameter words of the kernels (each kernel in assembly/ lists its own), and the scratch they need. */
import { KvantError } from '../../errors.js';
import type { Precision, Vector } from '../device.js';
import { ACTIVATIONS, type NodeOf, type Tensor, UNGATED_ACTIVATIONS } from '../graph.js';
import type { KvLayerSpec, KvPoolSpec } from '../kv.js';
import type { RopeTable } from '../rope.js';
import { type Command, f32Word } from './command.js';
import { headTokens, isCoded, valueGroups } from './kv-store.js';
import {
  OP_ACT,
  OP_ADD,
  OP_ATTEND,
  OP_ATTEND_MERGE,
  OP_ATTEND_SEGMENTS,
  OP_COLUMNS,
  OP_EMBED,
  OP_GLU,
  OP_NORM,
  OP_RMS_NORM,
  OP_ROPE_APPEND,
  OP_ROTATE,
  OP_ROUTE,
  OP_SCALE,
  OP_SELECT_OUTPUTS,
  STEP_OUTPUTS,
  STEP_TOKENS,
} from './opcodes.js';
import type { StepLayout } from './step-layout.js';

/** Positions of a split of attention; SPLIT of assembly/attend-job.ts. */
export const ATTENTION_SPLIT = 256;
/** Query rows that one unit of attention takes, or the heads of a group if those are more. */
const ATTENTION_ROWS = 96;
/** The same of attention in segments. */
const SEGMENT_ROWS = 96;

/** What commands of a program in one memory have in common. */
export interface CommandPlace {
  /** Address of the step in this memory. */
  readonly step: number;
  readonly layout: StepLayout;
  readonly threads: number;
  /** Address of scratch, free for each node. */
  readonly scratch: number;
}

/** A layer's cache, as commands name it. */
export interface LayerPlace {
  /** Address of its description (kv-layout.ts). */
  readonly store: number;
  readonly tables: number;
  readonly formats: KvLayerSpec;
  readonly spec: KvPoolSpec;
}

export function rowCountAt(place: CommandPlace, rows: 'tokens' | 'outputs'): number {
  return place.step + 4 * (rows === 'tokens' ? STEP_TOKENS : STEP_OUTPUTS);
}

export function embedCommand(
  place: CommandPlace,
  node: NodeOf<'embed'>,
  table: number,
  features: { readonly at: number; readonly rows: number; readonly cols: number } | null,
  out: number,
): Command {
  return {
    opcode: OP_EMBED,
    words: [
      table,
      place.step + 4 * place.layout.tokens,
      rowCountAt(place, 'tokens'),
      out,
      node.out.cols,
      f32Word(node.scale),
      features?.at ?? 0,
      features?.rows ?? 0,
      features?.cols ?? 0,
    ],
  };
}

export function rmsNormCommand(
  place: CommandPlace,
  node: NodeOf<'rms-norm'>,
  x: number,
  weight: number,
  out: number,
): Command {
  return {
    opcode: OP_RMS_NORM,
    words: [x, out, weight, rowCountAt(place, node.x.rows), node.x.cols, f32Word(node.eps)],
  };
}

const NORM_CODES = { rms: 0, layer: 1 } as const;
const NORM_COPY = 2;

/** One for each part, and one for the columns between them, which are copied. `addressOf` of no vector is 0. */
export function normCommands(
  place: CommandPlace,
  { x, parts, kind, eps }: NodeOf<'norm'>,
  from: number,
  out: number,
  addressOf: (vector: Vector | null) => number,
): Command[] {
  const rows = rowCountAt(place, x.rows);
  const commands: Command[] = [];
  const copy = (first: number, end: number): void => {
    if (end > first)
      commands.push({
        opcode: OP_NORM,
        words: [from, out, 0, 0, rows, x.cols, first, end - first, 1, 0, NORM_COPY],
      });
  };
  let done = 0;
  for (const part of parts) {
    copy(done, part.from);
    const vectors = [addressOf(part.weight), addressOf(part.bias)];
    const shape = [x.cols, part.from, part.cols, part.groups];
    commands.push({
      opcode: OP_NORM,
      words: [from, out, ...vectors, rows, ...shape, f32Word(eps), NORM_CODES[kind]],
    });
    done = part.from + part.cols * part.groups;
  }
  copy(done, x.cols);
  return commands;
}

export function actCommand(
  place: CommandPlace,
  node: NodeOf<'act'>,
  x: number,
  out: number,
  parameters: number,
): Command {
  const activation = UNGATED_ACTIVATIONS.indexOf(node.activation);
  return {
    opcode: OP_ACT,
    words: [x, out, rowCountAt(place, node.x.rows), node.x.cols, activation, parameters],
  };
}

export function gluCommand(place: CommandPlace, node: NodeOf<'glu'>, x: number, out: number): Command {
  return {
    opcode: OP_GLU,
    words: [x, out, rowCountAt(place, node.x.rows), node.out.cols, ACTIVATIONS.indexOf(node.activation)],
  };
}

export function addCommand(
  place: CommandPlace,
  node: NodeOf<'add'>,
  a: number,
  b: number,
  out: number,
): Command {
  return { opcode: OP_ADD, words: [a, b, out, rowCountAt(place, node.a.rows), node.a.cols] };
}

export function scaleCommand(place: CommandPlace, node: NodeOf<'scale'>, x: number, out: number): Command {
  const cap = node.softcap ?? 0;
  return {
    opcode: OP_SCALE,
    words: [x, out, rowCountAt(place, node.x.rows), node.x.cols, f32Word(node.factor), f32Word(cap)],
  };
}

export function selectCommand(
  place: CommandPlace,
  node: NodeOf<'select-outputs'>,
  x: number,
  out: number,
): Command {
  const outputs = place.step + 4 * place.layout.outputs;
  const words = [x, out, outputs, rowCountAt(place, 'outputs'), node.out.cols, node.mean ?? 1];
  return { opcode: OP_SELECT_OUTPUTS, words };
}

/** `at`: where a tensor is. */
export function columnsCommand(
  place: CommandPlace,
  { parts, out }: NodeOf<'columns'>,
  at: (tensor: Tensor) => number,
): Command {
  const words = parts.flatMap(({ x, from, to, cols, count, fromStep, toStep }) => [
    at(x),
    x.cols,
    from,
    to,
    cols,
    count,
    fromStep,
    toStep,
  ]);
  return {
    opcode: OP_COLUMNS,
    words: [at(out), rowCountAt(place, out.rows), out.cols, parts.length, ...words],
  };
}

export function rotateCommand(
  place: CommandPlace,
  node: NodeOf<'rotate'>,
  x: number,
  angles: number,
  out: number,
): Command {
  const { heads, headDim, style } = node;
  const shape = [node.x.cols, heads, headDim, node.angles.cols, style === 'interleaved' ? 1 : 0];
  return { opcode: OP_ROTATE, words: [x, angles, out, rowCountAt(place, node.x.rows), ...shape] };
}

/** Bytes of a thread, laid out by assembly/attend-segments.ts. */
function segmentsStride(headDim: number): number {
  const padded = Math.ceil(headDim / 16) * 16;
  const floats =
    SEGMENT_ROWS * (headDim + 2 * padded + ATTENTION_SPLIT + 4) + 16 * (headDim + ATTENTION_SPLIT);
  return Math.ceil(floats / 16) * 64;
}

export function segmentsScratchBytes(node: NodeOf<'attend-segments'>, threads: number): number {
  return threads * segmentsStride(node.headDim);
}

export function attendSegmentsCommand(
  place: CommandPlace,
  node: NodeOf<'attend-segments'>,
  qkv: number,
  bounds: number,
  out: number,
): Command {
  const { heads, headDim, scale } = node;
  const shape = [heads, headDim, f32Word(scale), SEGMENT_ROWS];
  return {
    opcode: OP_ATTEND_SEGMENTS,
    words: [
      qkv,
      bounds,
      out,
      rowCountAt(place, node.qkv.rows),
      ...shape,
      place.scratch,
      segmentsStride(headDim),
    ],
  };
}

/** Where the vectors and tables of a rotation lie; 0 for what it has not. */
export interface RopePlace {
  readonly qNorm: number;
  readonly kNorm: number;
  readonly fine: number;
  readonly coarse: number;
  /** The axis of each pair. */
  readonly axes: number;
  /** Of the keys' centre. */
  readonly centre: number;
}

export function ropeScratchBytes({ shape, rope }: NodeOf<'rope-append'>, threads: number): number {
  return threads * ropeStride(shape.headDim, rope);
}

function ropeStride(headDim: number, rope: RopeTable | null): number {
  return Math.ceil((4 * headDim + 2 * (rope?.dims ?? 0)) / 16) * 64;
}

export function ropeAppendCommand(
  place: CommandPlace,
  node: NodeOf<'rope-append'>,
  layer: LayerPlace,
  rope: RopePlace,
  qkv: number,
  out: number,
): Command {
  const { heads, kvHeads, headDim } = node.shape;
  return {
    opcode: OP_ROPE_APPEND,
    words: [
      qkv,
      out,
      rowCountAt(place, 'tokens'),
      place.step + 4 * place.layout.sequences,
      4 * place.layout.seqStride,
      heads,
      kvHeads,
      headDim,
      rope.qNorm,
      rope.kNorm,
      f32Word(node.norm?.eps ?? 0),
      node.rope?.dims ?? 0,
      node.rope?.style === 'interleaved' ? 1 : 0,
      rope.fine,
      rope.coarse,
      layer.store,
      node.norm?.order === 'after' ? 1 : 0,
      f32Word(node.queryGrowth?.beta ?? 0),
      node.queryGrowth?.every ?? 0,
      layer.tables,
      layer.spec.maxBlocksPerSlot,
      Math.log2(layer.spec.blockTokens),
      place.scratch,
      ropeStride(headDim, node.rope),
      rope.centre,
      node.centre?.turns === true ? 1 : 0,
      rope.axes,
      rope.axes === 0 ? 0 : place.step + 4 * place.layout.rotary!,
      node.queriesOnly === true ? 1 : 0,
    ],
  };
}

interface AttentionScratch {
  readonly maxRows: number;
  /** Where centres of keys begin, and queries of a float head. */
  readonly centresAt: number;
  readonly headQueriesAt: number;
  /** Bytes of a thread: its unit's queries, scores and sums, and K and V widened; centres of keys, queries of a float head. */
  readonly stride: number;
  /** Bytes of a region of partial results. */
  readonly partialStride: number;
}

/** As attend-job.ts of the kernels lays it out. */
function attentionScratch(
  node: NodeOf<'attend'>,
  own: KvLayerSpec,
  head: number,
  maxContext: number,
): AttentionScratch {
  const { heads, kvHeads, headDim } = node.shape;
  const group = heads / kvHeads;
  const maxRows = Math.max(ATTENTION_ROWS, group);
  const floats = maxRows * (3 * headDim + ATTENTION_SPLIT + 4) + 16 * headDim + 16 * ATTENTION_SPLIT;
  // Integer queries with 80 bytes each, a tile's scales, spare vectors; floats of a split; weights of every group.
  const codes = isCoded(own)
    ? maxRows * (2 * headDim + 80) +
      512 +
      8 * headDim +
      64 * ATTENTION_SPLIT +
      2048 +
      maxRows * valueGroups(own) * 580
    : 0;
  const centres = node.centre ? 4 * (kvHeads * headDim + node.centre.rope.dims) : 0;
  const headQueries = head === 0 ? 0 : 4 * maxRows * headDim;
  const splits = Math.ceil(maxContext / ATTENTION_SPLIT) + (head === 0 ? 1 : 2);
  return {
    maxRows,
    centresAt: 4 * floats + codes,
    headQueriesAt: 4 * floats + codes + centres,
    stride: Math.ceil((4 * floats + codes + centres + headQueries) / 64) * 64,
    // A unit may be all heads that fit its rows.
    partialStride: Math.ceil((splits * Math.min(heads, maxRows) * (headDim + 4)) / 16) * 64,
  };
}

export function attentionScratchBytes(
  node: NodeOf<'attend'>,
  own: KvLayerSpec,
  head: number,
  maxContext: number,
  threads: number,
): number {
  const { stride, partialStride } = attentionScratch(node, own, head, maxContext);
  return threads * (stride + partialStride);
}

/** Where the mean of a centre of keys lies, and the tables it turns by. */
export interface AttendCentrePlace {
  readonly mean: number;
  readonly fine: number;
  readonly coarse: number;
}

export function attendCommands(
  place: CommandPlace,
  node: NodeOf<'attend'>,
  layer: LayerPlace,
  maxContext: number,
  precision: Precision,
  q: number,
  out: number,
  outputsOnly: boolean,
  centre: AttendCentrePlace | null,
  /** Address, 0 for none. */
  sinks: number,
): Command[] {
  const { heads, kvHeads, headDim } = node.shape;
  const own = layer.formats;
  const { maxRows, centresAt, headQueriesAt, stride, partialStride } = attentionScratch(
    node,
    own,
    headTokens(own, layer.spec),
    maxContext,
  );
  const words = [
    q,
    out,
    place.step,
    place.step + 4 * place.layout.sequences,
    4 * place.layout.seqStride,
    heads,
    kvHeads,
    headDim,
    f32Word(node.scale),
    node.window ?? 0,
    f32Word(node.softcap ?? 0),
    layer.store,
    precision === 'reference' ? 1 : 0,
    outputsOnly ? place.step + 4 * place.layout.outputs : 0,
    0,
    layer.tables,
    layer.spec.maxBlocksPerSlot,
    Math.log2(layer.spec.blockTokens),
    place.scratch,
    stride,
    place.scratch + place.threads * stride,
    partialStride,
    maxRows,
    0,
    0,
    centre?.mean ?? 0,
    centre?.fine ?? 0,
    centre?.coarse ?? 0,
    node.centre?.rope.dims ?? 0,
    node.centre?.rope.style === 'interleaved' ? 1 : 0,
    centresAt,
    headQueriesAt,
    sinks,
    node.ahead === true ? place.step + 4 * place.layout.visible! : 0,
  ];
  const commands = [{ opcode: OP_ATTEND, words }];
  if (place.threads > 1) commands.push({ opcode: OP_ATTEND_MERGE, words });
  return commands;
}

/** Checks what the recorder cannot know. */
export function checkRope(rope: RopeTable | null, headDim: number, maxContext: number): void {
  if (rope === null) return;
  const rows = rope.dims === 0 ? 0 : rope.coarse.length / rope.dims;
  if (rope.dims > headDim || rope.dims % 2 !== 0 || rows * 256 < maxContext) {
    throw new KvantError(
      'shape-mismatch',
      `ropeAppend: a table of ${rope.dims} dims for ${rows * 256} positions, for heads of ${headDim} and a context of ${maxContext}.`,
      { where: 'ropeAppend', fix: 'Make the rope table for the context the program is compiled for.' },
    );
  }
}

/** What a thread holds of a row: scores, what experts are chosen by, and the same of groups. */
function routeThreadBytes({ logits, spec }: NodeOf<'route'>): number {
  return Math.ceil((2 * logits.cols + (spec.groups?.count ?? 0)) / 16) * 64;
}

export function routeScratchBytes(node: NodeOf<'route'>, threads: number): number {
  return threads * routeThreadBytes(node);
}

/** `bias`: its address, 0 for none. */
export function routeCommand(
  place: CommandPlace,
  node: NodeOf<'route'>,
  logits: number,
  out: number,
  bias: number,
  scales: number,
): Command {
  const { k, score, groups, normalise, scale } = node.spec;
  return {
    opcode: OP_ROUTE,
    words: [
      logits,
      out,
      rowCountAt(place, node.logits.rows),
      node.logits.cols,
      k,
      score === 'sigmoid' ? 1 : 0,
      bias,
      groups?.count ?? 0,
      groups?.kept ?? 0,
      groups?.by === 'two-best' ? 1 : 0,
      normalise === null ? 0 : 1,
      f32Word(normalise?.least ?? 0),
      f32Word(normalise?.add ?? 0),
      f32Word(scale),
      place.scratch,
      routeThreadBytes(node),
      scales,
    ],
  };
}
