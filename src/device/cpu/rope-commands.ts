/** The parameter words of rotations, and the scratch they need (assembly/rope-append.ts, assembly/rotate-rows.ts). */
import { KvantError } from '../../errors.js';
import type { NodeOf } from '../graph.js';
import type { RopeTable } from '../rope.js';
import { type Command, f32Word } from './command.js';
import { type CommandPlace, type LayerPlace, rowCountAt } from './command-place.js';
import { OP_ROPE_APPEND, OP_ROTATE } from './opcodes.js';

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
      layer.tail?.store ?? 0,
      layer.tail?.tables ?? 0,
      node.shape.valueDim === undefined ? 0 : 1,
    ],
  };
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
