/**
 * Attention on matrices of bytes: lanes that have a position of a turn to themselves, with all four heads, in scores and in
 * weights: TurboQuant's keys of 3 bits, of which a lane takes whole ones, and values that lie transposed. So what goes with a vector
 * need not be handed to other lanes.
 *
 * A lane has the two heads of `own_pair` first, then the others: so lanes four apart read sums from other banks, and each
 * has first what it keeps of weights.
 */

import type { AttendShape } from './attend.js';
import { type BytesSide, COLUMNS, HEADS, MOST, ROUNDING, WEIGHT_STRIDE } from './attend-bytes-plan.js';
import { transposedWords } from './attend-bytes-transposed.js';
import { firstSeen } from './kv-head.js';

/** Whether lanes have positions to themselves. */
export function ownPositions(keys: BytesSide, values: BytesSide): boolean {
  return keys.ownKey && keys.handedOn && values.transposed;
}

/** Declares `own_pair`, and `end` of a lane's heads, of what the lanes of each head have in `most_end`. */
export function ownEnds(headLanes: number): string {
  const from = (slot: string): string => `subgroupShuffle(most_end, ${slot})`;
  return `  let own_pair = lane / 4u % 2u;
  let own_from = own_pair * ${2 * headLanes}u;
  let end = vec4<f32>(${from('own_from')}, ${from(`own_from + ${headLanes}u`)}, ${from(`own_from ^ ${2 * headLanes}u`)}, ${from(`(own_from ^ ${2 * headLanes}u) + ${headLanes}u`)});`;
}

/** Statement that declares `all`, the integer scores of a lane's position, of sums that lie there in rows of all heads. */
export const OWN_SUMS = `      let sums_first = bitcast<vec4<i32>>(area[lane * 2u + own_pair]);
      let sums_second = bitcast<vec4<i32>>(area[(lane * 2u + own_pair) ^ 1u]);
      let all = vec4<f32>(vec4<i32>(sums_first.xz, sums_second.xz) * 256 + vec4<i32>(sums_first.yw, sums_second.yw));`;

/** Statements that declare `NAME_pair`, what all positions have of the pair that a lane has first. */
function overLanes(name: string, join: (a: string, b: string) => string): string {
  const lines = [
    `  let ${name}_others = ${name}.zw;
  var ${name}_pair = ${join(`${name}.xy`, `subgroupShuffleXor(${name}_others, 4u)`)};`,
  ];
  for (const bit of [16, 8, 2, 1])
    lines.push(`  ${name}_pair = ${join(`${name}_pair`, `subgroupShuffleXor(${name}_pair, ${bit}u)`)};`);
  return lines.join('\n');
}

/** What comes before the turns: `top`, the greatest weights' logarithms, of all heads over all positions, `sum`, and the lanes of an exchange. */
export const OWN_FIRST = `${overLanes('top', (a, b) => `max(${a}, ${b})`)}
  top = vec4<f32>(top_pair, subgroupShuffleXor(top_pair, 4u));
  var sum = vec4<f32>();
  let later_fours = own_pair == 1u;
  let later_eights = (lane & 8u) != 0u;
  let weight_at = (own_pair * ${COLUMNS / 2}u + lane / 8u % 2u) * ${WEIGHT_STRIDE}u + lane / 16u;
  let weight_word = lane % 4u;`;

/**
 * What goes with the values of a position, `none` where it is behind a window or in a float head, for that may be anything. What is beyond the last
 * position is of a token that was there before, or zero: never NaN, and with a weight of zero it adds nothing.
 */
export function ofSeen(shape: AttendShape, value: string, none: string, turn: string): string {
  return firstSeen(shape, 'last') === null ? value : `select(${none}, ${value}, ${turn} >= own_first)`;
}

/** Statements that make words `n0_0_word` and `n1_0_word` of weights. `scaled`: scores times `end`, if they are not yet. */
export function ownWeights(shape: AttendShape, values: BytesSide, scaled: boolean): string {
  return `    let norm = ${ofSeen(shape, `${values.meta('wm0', 0)}.x * ${MOST}.0`, '0.0', 'i32(base)')};
    let e = exp2(sc${scaled ? ' * end' : ''} - top);
    sum += e;
    let n = bitcast<vec4<u32>>(e * norm + ${ROUNDING});
    let kept = ((n.x & 0xffffu) | (n.y << 16u)) ^ 0x00800080u;
    let given = ((n.z & 0xffffu) | (n.w << 16u)) ^ 0x00800080u;
    let others = subgroupShuffleXor(given, 4u);
    let left = select(kept, others, later_fours);
    let right = select(others, kept, later_fours);
${transposedWords(values, 'later_eights', 8)}`;
}

/** The sums of weights, relative to the greatest of them, norm and all, which is to `scratchTops` what a greatest score is; `ln2`, as text. */
export function ownLast({ heads, kvHeads }: AttendShape, ln2: string): string[] {
  const group = heads / kvHeads;
  const lines = [overLanes('sum', (a, b) => `${a} + ${b}`), '  if ((lane & 27u) == 0u) {'];
  for (const h of [0, 1]) {
    const own = 'xy'[h];
    const write = `scratchTops[item_at * ${heads}u + kv * ${group}u + own_pair * 2u + ${h}u] = vec2<f32>(top.${own} * ${ln2}, sum_pair.${own});`;
    lines.push(group === HEADS ? `    ${write}` : `    if (own_pair * 2u + ${h}u < ${group}u) { ${write} }`);
  }
  lines.push('  }');
  return lines;
}
