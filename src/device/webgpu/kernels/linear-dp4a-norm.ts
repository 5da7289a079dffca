/**
 * A norm between two dp4a products, without a launch of its own. The first leaves its outputs times the weights of the norm
 * as bytes, which have a scale for every piece anyway, and the sums of their squares, one for each of its workgroups and rows. The
 * second reads the bytes, and divides what it made by the root of the mean square, which stands before all of it. That
 * rounds where the launch would have, by as much; only sums of squares are taken in another order.
 */

import { floatText } from './linear-spec.js';

/** The role of the sums of squares, `[row][workgroup]`. */
export const SQUARES = 'scratchSquares';

const count = (length: number): number[] => Array.from({ length }, (_, i) => i);

/** Of the product that reads bytes times the norm's weights. */
export interface NormRead {
  readonly rows: number;
  readonly k: number;
  readonly eps: number;
  /** Sums of squares of a row. */
  readonly tiles: number;
  readonly subgroups: number;
  readonly lanes: number;
}

/** Turns in which subgroups take rows. */
const turnsOf = ({ rows, subgroups }: Pick<NormRead, 'rows' | 'subgroups'>): number =>
  Math.ceil(rows / subgroups);

/** Bytes of workgroup memory that `inverse_` wants. */
export const inverseBytes = (read: Pick<NormRead, 'rows' | 'subgroups'>): number =>
  turnsOf(read) * read.subgroups * 4;

/**
 * `fn inverse_(row)`: what outputs of a row are multiplied by; statements that load what it is made of, early, and such as make it, in
 * uniform control flow, with `sub` and `lane`. A barrier has to follow before it is called.
 */
export function inverseText(read: NormRead): {
  readonly declarations: string;
  readonly load: string;
  readonly sum: string;
} {
  const { rows, k, eps, tiles, subgroups, lanes } = read;
  const loads = Math.ceil(tiles / lanes);
  const turns = count(turnsOf(read));
  const row = (turn: number): string => `min(sub + ${turn * subgroups}u, ${rows - 1}u)`;
  const at = (turn: number, i: number): string => {
    const whole = (i + 1) * lanes <= tiles;
    const value = `${SQUARES}[${row(turn)} * ${tiles}u + ${whole ? `lane + ${i * lanes}u` : `min(lane + ${i * lanes}u, ${tiles - 1}u)`}]`;
    return whole ? value : `select(0.0, ${value}, lane + ${i * lanes}u < ${tiles}u)`;
  };
  return {
    declarations: `var<workgroup> squares: array<f32, ${turns.length * subgroups}>;
fn inverse_(row: u32) -> f32 { return inverseSqrt(squares[row] / ${k}.0 + ${floatText(eps)}); }`,
    load: turns
      .flatMap((turn) => count(loads).map((i) => `  let square${turn}_${i} = ${at(turn, i)};`))
      .join('\n'),
    sum: turns
      .map(
        (turn) => `  { let all = subgroupAdd(${count(loads)
          .map((i) => `square${turn}_${i}`)
          .join(' + ')});
    if (lane == 0u) { squares[sub + ${turn * subgroups}u] = all; } }`,
      )
      .join('\n'),
  };
}

/** Of the product that leaves them: its workgroups, and threads side by side that have a workgroup's outputs of a row. */
export interface NormLeft {
  readonly tiles: number;
  readonly perRow: number;
}

/**
 * Statements that leave the sum of squares of `values`, those of a thread before the norm's weights, of `row` and workgroup `tile`.
 * `thread % perRow` is its place among those that share it; all lanes have to come by; `here`: whether it counts.
 */
export function squaresText(values: readonly string[], { tiles, perRow }: NormLeft): string {
  const steps = count(Math.log2(perRow)).map((i) => `    square += subgroupShuffleXor(square, ${2 ** i}u);`);
  return `    var square = ${values.map((v) => `dot(${v}, ${v})`).join(' + ')};
${steps.join('\n')}
    if (here && thread % ${perRow}u == 0u) { ${SQUARES}[row * ${tiles}u + tile] = square; }`;
}
