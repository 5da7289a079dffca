/** The parameter words of the kernels that take single rows (each kernel in assembly/ lists its own). */
import type { Vector } from '../device.js';
import { ACTIVATIONS, type NodeOf, type Tensor, UNGATED_ACTIVATIONS } from '../graph.js';
import { type Command, f32Word } from './command.js';
import { type CommandPlace, rowCountAt } from './command-place.js';
import {
  OP_ACT,
  OP_ADD,
  OP_COLUMNS,
  OP_EMBED,
  OP_GLU,
  OP_NORM,
  OP_RMS_NORM,
  OP_ROUTE,
  OP_SCALE,
  OP_SELECT_OUTPUTS,
} from './opcodes.js';

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
      // None is no row of any table.
      node.featureRow ?? 0xffff_ffff,
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
