/** The command and parameter words of products of heads with matrices of their own (assembly/head-linear.ts). */
import type { NodeOf } from '../graph.js';
import type { Command } from './command.js';
import { type CommandPlace, rowCountAt } from './command-place.js';
import { onlySegment, segmentWords } from './linear-commands.js';
import { OP_HEAD_LINEAR } from './opcodes.js';
import type { PackedMatrix } from './pack-layout.js';

/** Bytes of a thread for the parameters of one product. */
const PARAMETER_BYTES = 128;

export function headLinearScratchBytes(threads: number): number {
  return threads * PARAMETER_BYTES;
}

export function headLinearCommand(
  place: CommandPlace,
  node: NodeOf<'head-linear'>,
  matrix: PackedMatrix,
  x: number,
  out: number,
): Command {
  const { heads, from, step } = node;
  const rows = matrix.rows / heads;
  return {
    opcode: OP_HEAD_LINEAR,
    words: [
      ...segmentWords(onlySegment(matrix, 'headLinear'), matrix.cols),
      rowCountAt(place, node.x.rows),
      x + from * 4,
      node.x.cols * 4,
      out,
      matrix.rows * 4,
      // No residual; x is f32.
      0,
      1,
      // Two words of the kernel's own: the next piece of work, and the threads that found none left.
      0,
      0,
      heads,
      rows,
      step * 4,
      place.scratch,
      PARAMETER_BYTES,
    ],
  };
}
