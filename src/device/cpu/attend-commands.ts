/** The parameter words of attention over a cache and in segments, and the scratch they need. */
import type { Precision } from '../device.js';
import type { AttentionShape, NodeOf } from '../graph.js';
import type { KvLayerSpec } from '../kv.js';
import { type Command, f32Word } from './command.js';
import { type CommandPlace, type LayerPlace, rowCountAt } from './command-place.js';
import { headTokens, isCoded, valueGroups } from './kv-store.js';
import { OP_ATTEND, OP_ATTEND_MERGE, OP_ATTEND_SEGMENTS } from './opcodes.js';

/** Positions of a split of attention; SPLIT of assembly/attend-job.ts. */
export const ATTENTION_SPLIT = 256;
/** Query rows that one unit of attention takes, or the heads of a group if those are more. */
const ATTENTION_ROWS = 96;
/** The same of attention in segments. */
const SEGMENT_ROWS = 96;

/** The floats that a layer's queries read beside what is stored of all positions. */
export interface LayerFloats {
  /** Tokens of a float head, 0 for none. */
  readonly head: number;
  readonly tail: boolean;
}

interface AttentionScratch {
  readonly maxRows: number;
  /** Where centres of keys begin, and queries for floats. */
  readonly centresAt: number;
  readonly floatQueriesAt: number;
  /** Bytes of a thread: its unit's queries, scores and sums, and K and V widened; centres of keys, queries for floats. */
  readonly stride: number;
  /** Bytes of a region of partial results. */
  readonly partialStride: number;
}

/** Rows of a unit that pay for bringing a tile of latents into the order of values. */
const LATENT_ROWS = 8;

/**
 * KV heads as the kernels take work apart. Latents have one, and the heads that look at it are many: they are dealt in as many parts as
 * there are threads, unless those get too few.
 */
function workHeads({ heads, kvHeads, valueDim }: AttentionShape, threads: number): number {
  if (valueDim === undefined) return kvHeads;
  const most = Math.min(threads, Math.floor(heads / LATENT_ROWS));
  for (let parts = most; parts > 1; parts--) if (heads % parts === 0) return parts;
  return 1;
}

/** As attend-job.ts of the kernels lays it out. */
function attentionScratch(
  node: NodeOf<'attend'>,
  own: KvLayerSpec,
  { head, tail }: LayerFloats,
  maxContext: number,
  threads: number,
): AttentionScratch {
  const { heads, kvHeads, headDim } = node.shape;
  const group = heads / workHeads(node.shape, threads);
  const maxRows = Math.max(ATTENTION_ROWS, group);
  const floats = maxRows * (3 * headDim + ATTENTION_SPLIT + 4) + 16 * headDim + 16 * ATTENTION_SPLIT;
  // Integer queries with 80 bytes each, a tile's scales, spare vectors; floats of a split; weights of every group.
  const codes = isCoded(own)
    ? maxRows * (2 * headDim + 80) +
      2048 +
      8 * headDim +
      64 * ATTENTION_SPLIT +
      2048 +
      maxRows * valueGroups(own) * 580
    : 0;
  const centres = node.centre ? 4 * (kvHeads * headDim + node.centre.rope.dims) : 0;
  const floatQueries = head === 0 && !tail ? 0 : 4 * maxRows * headDim;
  const splits = Math.ceil(maxContext / ATTENTION_SPLIT) + 1 + (head === 0 ? 0 : 1) + (tail ? 1 : 0);
  return {
    maxRows,
    centresAt: 4 * floats + codes,
    floatQueriesAt: 4 * floats + codes + centres,
    stride: Math.ceil((4 * floats + codes + centres + floatQueries) / 64) * 64,
    // A unit may be all heads that fit its rows.
    partialStride: Math.ceil((splits * Math.min(heads, maxRows) * (headDim + 4)) / 16) * 64,
  };
}

export function attentionScratchBytes(
  node: NodeOf<'attend'>,
  own: KvLayerSpec,
  floats: LayerFloats,
  maxContext: number,
  threads: number,
): number {
  const { stride, partialStride } = attentionScratch(node, own, floats, maxContext, threads);
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
  const { heads, headDim, valueDim = 0 } = node.shape;
  const own = layer.formats;
  // Of latents in codes scores and sums are both made of floats.
  const plain = precision === 'reference' || valueDim > 0;
  const { maxRows, centresAt, floatQueriesAt, stride, partialStride } = attentionScratch(
    node,
    own,
    { head: headTokens(own, layer.spec), tail: layer.tail !== null },
    maxContext,
    place.threads,
  );
  const words = [
    q,
    out,
    place.step,
    place.step + 4 * place.layout.sequences,
    4 * place.layout.seqStride,
    heads,
    workHeads(node.shape, place.threads),
    headDim,
    f32Word(node.scale),
    node.window ?? 0,
    f32Word(node.softcap ?? 0),
    layer.store,
    plain ? 1 : 0,
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
    floatQueriesAt,
    sinks,
    (node.ahead ?? false) === false ? 0 : place.step + 4 * place.layout.visible!,
    layer.tail?.tokens ?? 0,
    layer.tail?.store ?? 0,
    layer.tail?.tables ?? 0,
    node.ahead === 'window' ? node.window! : 0,
    valueDim,
  ];
  const commands = [{ opcode: OP_ATTEND, words }];
  if (place.threads > 1) commands.push({ opcode: OP_ATTEND_MERGE, words });
  return commands;
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
