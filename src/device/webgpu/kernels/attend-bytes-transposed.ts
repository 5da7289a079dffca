/**
 * Attention on matrices of bytes: values that lie transposed (kv-layout.ts), four positions of a dim to a word as matrices on the
 * left have them. A lane has, of 16 positions, the four words of eight dims each; of every word a round stages two dims, of all
 * 16 positions at once. So nothing is left to exchange between words, and what is stored goes in vectors of 16 bytes.
 */

import type { AttendShape } from './attend.js';
import {
  type BytesSide,
  HEADS,
  MOST,
  ROWS,
  SUM_STRIDE,
  startOf,
  TILES,
  type Turn,
  VALUE_STRIDE,
} from './attend-bytes-plan.js';
import { mixed, sixteenCentroids } from './attend-planes.js';
import { count } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { TRANSPOSED_TOKENS } from './kv-formats/turbo-layout.js';

/** Lanes that share positions; and dims that each has of them, those of a vector of 16 bytes. */
const SHARERS = 16;
const DIMS = 8;
/** Words of such a vector, of two dims: a round each. */
const WORDS = 4;
/** Groups of four positions of a lane. */
const FOURS = TRANSPOSED_TOKENS / 4;

const component = (round: number): string => 'xyzw'[round]!;

/** Declares what a turn of values needs, and loads the first. */
export function firstTransposed(values: BytesSide): string[] {
  return [...count(FOURS).map((u) => `  var v${u}: ${values.type};`), transposedLoads(values, 'zero')];
}

/** Statements that load a lane's words. */
export function transposedLoads(values: BytesSide, at: Turn): string {
  return [
    `    { let t = ${startOf(at)} + lane / ${SHARERS}u * ${TRANSPOSED_TOKENS}u;
      let a = ${values.vector('t', at, true)} * ${values.stride}u + lane % ${SHARERS}u;`,
    ...count(FOURS).map((u) => `      v${u} = values[a + ${u * SHARERS}u];`),
    '    }',
  ].join('\n');
}

/** Statement that declares where a lane stores: a row of a tile has a dim of every lane of the same positions. */
export const TRANSPOSED_PLACE = `  let to_values = lane % ${SHARERS}u * ${VALUE_STRIDE}u + lane / ${SHARERS}u;`;

/** Words of the last round by names of their own: it comes in the next turn, when others are on their way. */
const LATE = count(FOURS).map((u) => `late${u}`);

export interface TransposedRound {
  /** Words of an earlier round that it reads. */
  readonly reads: readonly string[];
  /** Statements that come before the stores, and the stores. */
  readonly before: readonly string[];
  readonly stores: readonly string[];
  /** The next words may be loaded behind it. */
  readonly free: boolean;
}

export function transposedRounds({ mask }: BytesSide): TransposedRound[] {
  return count(WORDS).map((r) => {
    const late = r === WORDS - 1;
    const raw = (u: number): string => (late ? LATE[u]! : `v${u}.${component(r)}`);
    return {
      reads: late ? LATE : [],
      before: [
        ...count(FOURS).map((u) => sixteenCentroids(`x${r}_${u}_`, raw(u), mask)),
        ...(r > 0 ? [] : LATE.map((name, u) => `let ${name} = v${u}.${component(WORDS - 1)};`)),
      ],
      stores: count(TILES).map(
        (t) =>
          `    area[to_values + ${t * ROWS * VALUE_STRIDE}u] = vec4<u32>(${count(FOURS)
            .map((u) => `x${r}_${u}_${t}`)
            .join(', ')});`,
      ),
      free: r === WORDS - 2,
    };
  });
}

/** Statement that declares which lane of those one is that exchange weights. */
export const TRANSPOSED_LANES = `  let later_sixteens = lane >= 16u;
  let later_eights = (lane & 8u) != 0u;`;

/**
 * Statements that make words `n0_0_word` and `n1_0_word` of a lane's two heads of the weights `n0_0` and `n1_0`, integers of 16 bits
 * and 128 of a position of either block. Four lanes have the four positions of a word, in either block: each gives the weights
 * of the block that is not its own, then the plane of bytes that is not.
 */
export function transposedWeights(values: BytesSide): string {
  const both = (b: number): string => {
    const own = 'xy'[b];
    return `let both${b} = ((n0_0.${own} & 0xffffu) | (n1_0.${own} << 16u)) ^ 0x00800080u;`;
  };
  return `    ${both(0)}
    ${both(1)}
    let given = select(both1, both0, later_eights);
    let others = subgroupShuffleXor(given, 8u);
    let left = select(both0, others, later_eights);
    let right = select(others, both1, later_eights);
${transposedWords(values, 'later_sixteens', 16)}`;
}

/**
 * Statements that make them of `left` and `right`, two heads' weights at two positions of a word, four apart: the lane `bit` away has
 * the other two, `later` if they come before a lane's own.
 */
export function transposedWords({ mask }: BytesSide, later: string, bit: number): string {
  return `    let low_bytes = ${mixed('left', '(right << 8u)', mask(8))};
    let high_bytes = ${mixed('(left >> 8u)', 'right', mask(8))};
    let handed = select(low_bytes, high_bytes, ${later});
    let across = subgroupShuffleXor(handed, ${bit}u);
    let front = select(high_bytes, across, ${later});
    let back = select(across, low_bytes, ${later});
    let n0_0_word = ${mixed('front', '(back << 16u)', mask(16))};
    let n1_0_word = ${mixed('(front >> 16u)', 'back', mask(16))};`;
}

/** The sums `oI`, of round I / 2 and tile I % 2, through `area` and out: a lane has eight dims of two heads. */
export function transposedEnd({ heads, kvHeads, headDim }: AttendShape, { unit }: BytesSide): string[] {
  const group = heads / kvHeads;
  const vectors = headDim / 4;
  const lines = [
    `  let first_head = lane % 2u * 2u;
  let sums_at = (item_at * ${heads}u + kv * ${group}u + first_head) * ${vectors}u + lane / 2u * ${DIMS / 4}u;
  let undo = ${f32Literal(unit / MOST)};`,
  ];
  for (const r of count(WORDS)) {
    lines.push('  workgroupBarrier();');
    for (const t of count(TILES))
      lines.push(
        `  subgroupMatrixStore<row_major>(&area, ${t * ROWS * SUM_STRIDE}u, o${r * TILES + t}, ${SUM_STRIDE}u);`,
      );
    lines.push('  workgroupBarrier();');
    for (const t of count(TILES))
      lines.push(`  let sum${r}_${t} = bitcast<vec4<i32>>(area[lane + ${t * ROWS * SUM_STRIDE}u]);
  let value${r}_${t} = vec2<f32>(sum${r}_${t}.xz * 256 + sum${r}_${t}.yw) * undo;`);
    if (r % 2 === 0) continue;
    for (const h of [0, 1]) {
      const own = [r - 1, r].flatMap((from) => count(TILES).map((t) => `value${from}_${t}.${'xy'[h]}`));
      const write = `scratchSums[sums_at + ${h * vectors + (r - 1) / 2}u] = vec4<f32>(${own.join(', ')});`;
      lines.push(group === HEADS ? `  ${write}` : `  if (first_head + ${h}u < ${group}u) { ${write} }`);
    }
  }
  return lines;
}
