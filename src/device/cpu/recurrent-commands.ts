/** The parameter words of the kernels of recurrent layers, and the scratch they need. */
import { GATE_ACTIVATIONS, type NodeOf } from '../graph.js';
import { stateBytes, stateMatrixAt } from '../state.js';
import { type Command, f32Word } from './command.js';
import { type CommandPlace, rowCountAt } from './command-place.js';
import { OP_GATE, OP_GATED_DELTA, OP_SELECTIVE_SCAN, OP_SHORT_CONV, STEP_SEQUENCES } from './opcodes.js';
import type { NodeState } from './placement.js';

/** Channels of a piece of work; PIECE of assembly/short-conv.ts. */
const CONV_PIECE = 64;

/** What a kernel finds the state of a step's sequences by. */
function stateWords(place: CommandPlace, state: NodeState): number[] {
  return [
    place.step + 4 * STEP_SEQUENCES,
    place.step + 4 * place.layout.sequences,
    4 * place.layout.seqStride,
    state.tables,
    4 * state.maxBlocksPerSlot,
    state.at,
    stateBytes(state.shape),
  ];
}

/** Bytes of a thread: the inputs that a piece of channels looks back on. */
function convStride(taps: number): number {
  return taps * CONV_PIECE * 4;
}

export function shortConvScratchBytes(node: NodeOf<'short-conv'>, threads: number): number {
  return threads * convStride(node.taps);
}

/** `weight`, `bias`: addresses, 0 for no bias. */
export function shortConvCommand(
  place: CommandPlace,
  node: NodeOf<'short-conv'>,
  state: NodeState,
  at: { readonly x: number; readonly out: number; readonly weight: number; readonly bias: number },
): Command {
  const { x, from, taps, gated, activation, out } = node;
  return {
    opcode: OP_SHORT_CONV,
    words: [
      ...stateWords(place, state),
      at.x + 4 * from,
      at.out,
      at.weight,
      at.bias,
      out.cols,
      taps,
      gated ? 1 : 0,
      activation === 'silu' ? 1 : 0,
      place.scratch,
      convStride(taps),
      4 * x.cols,
    ],
  };
}

/** Columns of a state that a piece of work takes; TILE of assembly/recurrent.ts. */
const TILE = 16;

/** Bytes of a thread: a tile of a state, and q and k of a token. */
function deltaStride(rows: number): number {
  return (TILE + 2) * rows * 4;
}

export function deltaScratchBytes({ rows }: NodeOf<'gated-delta'>, threads: number): number {
  return threads * deltaStride(rows);
}

export function gatedDeltaCommand(
  place: CommandPlace,
  { gates, gatesFrom, keyHeads, heads, rows, cols }: NodeOf<'gated-delta'>,
  state: NodeState,
  at: { readonly qkv: number; readonly gates: number; readonly out: number; readonly decay: number },
): Command {
  return {
    opcode: OP_GATED_DELTA,
    words: [
      ...stateWords(place, state),
      at.qkv,
      at.gates + 4 * gatesFrom,
      at.out,
      at.decay,
      keyHeads,
      heads,
      rows,
      cols,
      4 * stateMatrixAt(state.shape),
      f32Word(1 / Math.sqrt(rows)),
      place.scratch,
      deltaStride(rows),
      4 * gates.cols,
    ],
  };
}

/** Bytes of a thread: a tile of a state. */
function scanStride(rows: number): number {
  return TILE * rows * 4;
}

export function scanScratchBytes({ rows }: NodeOf<'selective-scan'>, threads: number): number {
  return threads * scanStride(rows);
}

export function selectiveScanCommand(
  place: CommandPlace,
  { steps, stepsFrom, groups, heads, rows, cols, limits }: NodeOf<'selective-scan'>,
  state: NodeState,
  at: { readonly x: number; readonly steps: number; readonly out: number; readonly decay: number },
): Command {
  return {
    opcode: OP_SELECTIVE_SCAN,
    words: [
      ...stateWords(place, state),
      at.x,
      at.steps + 4 * stepsFrom,
      at.out,
      at.decay,
      groups,
      heads,
      rows,
      cols,
      4 * stateMatrixAt(state.shape),
      f32Word(limits[0]),
      f32Word(limits[1]),
      place.scratch,
      scanStride(rows),
      4 * steps.cols,
    ],
  };
}

/** `weight`: its address, 0 for no norm. */
export function gateCommand(
  place: CommandPlace,
  { x, from, gate, gateFrom, activation, norm, out }: NodeOf<'gate'>,
  at: { readonly x: number; readonly gate: number; readonly out: number; readonly weight: number },
): Command {
  return {
    opcode: OP_GATE,
    words: [
      at.x,
      at.gate + 4 * gateFrom,
      at.out,
      rowCountAt(place, x.rows),
      out.cols,
      norm?.weight.length ?? out.cols,
      at.weight,
      f32Word(norm?.eps ?? 0),
      GATE_ACTIVATIONS.indexOf(activation),
      x.cols,
      from,
      gate.cols,
    ],
  };
}
