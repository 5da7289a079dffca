/** The commands and parameter words of products with stacks of experts (assembly/experts.ts). */
import { KvantError } from '../../errors.js';
import type { Precision } from '../device.js';
import { ACTIVATIONS, type ExpertActivation, type NodeOf } from '../graph.js';
import { type Command, f32Word } from './command.js';
import { type CommandPlace, rowCountAt } from './command-place.js';
import { alignUp, groupOf, onlySegment, panelRoom, rowStride, segmentWords } from './linear-commands.js';
import type { MemorySet } from './memory.js';
import { OP_EXPERT_LINEAR, OP_EXPERT_PAIRS, OP_EXPERT_ROWS, OP_EXPERT_SUM } from './opcodes.js';
import type { PackedMatrix, PackedSegment } from './pack-layout.js';
import { ownMatrix } from './resident.js';

/** Bytes of a thread for the parameters of one product. */
const PARAMETER_BYTES = 128;

export interface ExpertsPlace {
  readonly x: number;
  readonly route: number;
  /** 0 for none. */
  readonly residual: number;
  readonly out: number;
}

export interface ExpertStacks {
  readonly gateUp: PackedMatrix;
  readonly down: PackedMatrix;
}

/** The stacks of a node. Throws where they lie in different memories. */
export function stacksOf(set: MemorySet, node: NodeOf<'experts'>): ExpertStacks {
  const gateUp = ownMatrix(set, node.gateUp);
  const down = ownMatrix(set, node.down);
  if (gateUp.memory === down.memory) return { gateUp: gateUp.packed, down: down.packed };
  throw new KvantError('shape-mismatch', 'experts: the two stacks of a layer lie in different memories.', {
    where: 'experts',
    fix: 'Load them into one placement group, with room for both.',
  });
}

/** Where things lie in scratch. */
interface Areas {
  readonly pairs: number;
  readonly rowOf: number;
  readonly placeOf: number;
  /** Rows for the first product, what it leaves, rows for the second, what that leaves. */
  readonly first: number;
  readonly inner: number;
  readonly second: number;
  readonly results: number;
  readonly panels: number;
  readonly panelBytes: number;
  readonly parameters: number;
  readonly bytes: number;
}

export function expertScratchBytes(
  node: NodeOf<'experts'>,
  stacks: ExpertStacks,
  maxRows: number,
  precision: Precision,
  threads: number,
): number {
  return areasOf(node, stacks, maxRows, precision, threads, 0).bytes;
}

export function expertCommands(
  place: CommandPlace,
  node: NodeOf<'experts'>,
  stacks: ExpertStacks,
  where: ExpertsPlace,
  maxRows: number,
  precision: Precision,
): Command[] {
  const { count } = node;
  const k = node.route.cols / 2;
  const rowsAt = rowCountAt(place, node.x.rows);
  const a = areasOf(node, stacks, maxRows, precision, place.threads, place.scratch);
  const product = (
    matrix: PackedMatrix,
    x: number,
    rows: number,
    out: number,
    glu: readonly number[],
  ): readonly Command[] => {
    const segment = segmentOf(matrix);
    const group = groupOf(segment, precision);
    const stride = group === 0 ? matrix.cols * 4 : rowStride(matrix, group);
    const n = matrix.rows / count;
    return [
      {
        opcode: OP_EXPERT_ROWS,
        // Panels are free until the products begin.
        words: [a.pairs, a.rowOf, x, matrix.cols, group, rows, stride, ...glu, a.panels, a.panelBytes],
      },
      {
        opcode: OP_EXPERT_LINEAR,
        words: [
          ...segmentWords(segment, matrix.cols),
          a.pairs,
          rows,
          stride,
          out,
          n * 4,
          n,
          group === 0 ? 1 : 0,
          // Two words of the kernel's own: the next piece of work, and the threads that found none left.
          0,
          0,
          a.panels,
          a.panelBytes,
          a.parameters,
          PARAMETER_BYTES,
        ],
      },
    ];
  };
  return [
    { opcode: OP_EXPERT_PAIRS, words: [rowsAt, where.route, k, count, a.pairs, a.rowOf, a.placeOf] },
    ...product(stacks.gateUp, where.x, a.first, a.inner, [0, 0, 0]),
    ...product(stacks.down, a.inner, a.second, a.results, activationWords(node.activation)),
    {
      opcode: OP_EXPERT_SUM,
      words: [rowsAt, where.route, k, a.placeOf, a.results, node.out.cols, where.out, where.residual],
    },
  ];
}

function areasOf(
  node: NodeOf<'experts'>,
  { gateUp, down }: ExpertStacks,
  maxRows: number,
  precision: Precision,
  threads: number,
  from: number,
): Areas {
  const { count } = node;
  const pairs = (maxRows * node.route.cols) / 2;
  // Those of an expert begin at a multiple of 4.
  const places = pairs + 3 * Math.min(count, pairs);
  const rowBytes = (matrix: PackedMatrix): number => {
    const group = groupOf(segmentOf(matrix), precision);
    return group === 0 ? matrix.cols * 4 : rowStride(matrix, group);
  };
  let at = from;
  const take = (bytes: number): number => {
    const start = at;
    at += alignUp(bytes);
    return start;
  };
  const panelBytes = Math.max(
    alignUp(512),
    panelRoom(gateUp, precision, maxRows),
    panelRoom(down, precision, maxRows),
  );
  return {
    pairs: take(16 + count * 20),
    rowOf: take(places * 4),
    placeOf: take(pairs * 4),
    first: take(places * rowBytes(gateUp)),
    inner: take((places * gateUp.rows * 4) / count),
    second: take(places * rowBytes(down)),
    results: take((places * down.rows * 4) / count),
    panels: take(threads * panelBytes),
    panelBytes,
    parameters: take(threads * PARAMETER_BYTES),
    bytes: at - from,
  };
}

/** Which activation, and the numbers of the clamped one. */
function activationWords(activation: ExpertActivation): readonly number[] {
  if (typeof activation === 'string') return [1 + ACTIVATIONS.indexOf(activation), 0, 0];
  return [1 + ACTIVATIONS.length, f32Word(activation.alpha), f32Word(activation.limit)];
}

const segmentOf = (matrix: PackedMatrix): PackedSegment => onlySegment(matrix, 'experts');
