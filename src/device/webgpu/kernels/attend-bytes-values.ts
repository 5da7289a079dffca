/** Attention on matrices of bytes, second pass: the softmax, weights as integers, values turned, and the sums of both. */

import { f32Literal } from '../kernel.js';
import { ATTENTION_SPLIT } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import {
  type BytesSide,
  HALF_ROWS,
  HEAD_DIM,
  HEADS,
  MOST,
  OUT,
  overLanes,
  PIECE,
  TURN,
  VALUE,
  WEIGHTS_AT,
} from './attend-bytes-plan.js';
import { byteCentre, bytesText, turnBytes } from './attend-planes.js';
import { count, wordOf } from './attend-words.js';
import { rolledBound } from './rolled.js';

const PIECES = HEAD_DIM / PIECE;

/** Tiles whose scores and scales are on their way at once in the softmax. */
const AHEAD = 4;

/**
 * The sum of the weights goes to `scratchTops` with the greatest score. Leaves vectors over heads: `top`, the greatest; for
 * affine group G `offsetG`, the sums of biases, and `unitG` and `whole_valueG`, which make weights integers and undo it.
 */
export function byteSoftmax(shape: AttendShape, side: BytesSide, seen: (t: string) => string): string[] {
  const { heads, kvHeads } = shape;
  const { format, groups } = side;
  const group = heads / kvHeads;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  emit(overLanes([], ['top']));
  for (const g of count(groups)) emit(`  var peak${g} = vec4<f32>(); var offset${g} = vec4<f32>();`);
  emit(`  var sum = vec4<f32>();
  for (var base = 0u; base < ${rolledBound(ATTENTION_SPLIT)}; base += ${AHEAD * TURN}u) {
    if (base > reach) { break; }`);
  for (const t of count(AHEAD))
    emit(`    let tile${t} = ${side.tile(`base + ${t * TURN}u`)};
    var s${t} = scratchScores[scores_at + base + lane + ${t * TURN}u];
    let metas${t} = ${side.meta(side.vector(`tile${t}`, 'lane'))};`);
  for (const t of count(AHEAD))
    for (const g of count(groups)) emit(`    var m${t}_${g} = ${side.metaWord(`metas${t}`, g)};`);
  // A tile a turn: the others move up.
  emit(`    for (var t = 0u; t < ${rolledBound(AHEAD)}; t++) {
      let seen = ${seen(`(base + t * ${TURN}u + lane)`)};
      let e = select(vec4<f32>(), exp(s0 - top), seen);
      sum += e;`);
  for (const g of count(groups))
    emit(`      let affine${g} = unpack2x16float(m0_${g});
      peak${g} = max(peak${g}, abs(select(vec4<f32>(), e * affine${g}.x, seen)));
      offset${g} += select(vec4<f32>(), e * dot(affine${g}, vec2<f32>(${f32Literal(byteCentre(format))}, 1.0)), seen);`);
  for (const t of count(AHEAD - 1)) {
    emit(`      s${t} = s${t + 1};`);
    for (const g of count(groups)) emit(`      m${t}_${g} = m${t + 1}_${g};`);
  }
  emit('    }\n  }');
  const [peaks, offsets] = ['peak', 'offset'].map((name) => count(groups).map((g) => `${name}${g}`));
  emit(overLanes(['sum', ...offsets!], peaks!));
  for (const g of count(groups))
    emit(`  let unit${g} = select(vec4<f32>(), vec4<f32>(${MOST}.0) / peak${g}, peak${g} > vec4<f32>());
  let whole_value${g} = peak${g} * ${f32Literal(1 / MOST)};`);
  const own = (v: string): string =>
    `select(select(${v}.x, ${v}.y, lane == 1u), select(${v}.z, ${v}.w, lane == 3u), lane >= 2u)`;
  emit(
    `  if (lane < ${group}u) { scratchTops[item_at * ${heads}u + kv * ${group}u + lane] = vec2<f32>(${own('top')}, ${own('sum')}); }`,
  );
  return lines;
}

/** Weighted values, from here to `scratchSums`. */
export function byteSums(shape: AttendShape, side: BytesSide, seen: (t: string) => string): string[] {
  const { headDim } = shape;
  const { groups, words, width } = side;
  const split = ATTENTION_SPLIT;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const loads = words / width;
  const stride = side.vectorWords / width;
  const load = (tile: string, base: string): void => {
    emit(
      `    { let a = (${side.vector(tile, `lane / ${PIECES}u * 4u`)}) * ${stride}u + lane % ${PIECES}u * ${loads}u;`,
    );
    for (const u of count(4))
      for (const i of count(loads)) emit(`      v${u}_${i} = values[a + ${u * stride + i}u];`);
    emit(`      score = scratchScores[scores_at + ${base} + lane];
      metas = ${side.meta(side.vector(tile, 'lane'))};
    }`);
  };
  for (const u of count(4)) for (const i of count(loads)) emit(`  var v${u}_${i}: ${side.type};`);
  emit(`  var score: vec4<f32>;
  var metas: ${side.metaType};
  tile = ${side.tile('0u')};`);
  load('tile', '0u');
  for (const b of count(headDim / 16)) emit(`  var o${b} = Sum();`);
  emit(`  let into = lane % ${PIECES}u * ${2 * VALUE}u + lane / ${4 * PIECES}u;`);
  emit(`  for (var base = 0u; base < ${rolledBound(split)}; base += ${TURN}u) {
    if (base > reach) { break; }
    let ahead = base + ${TURN}u;
    tile = ${side.tile(`min(ahead, ${split - TURN}u)`)};
    let seen = ${seen('base + lane')};
    let e = select(vec4<f32>(), exp(score - top), seen);`);
  for (const g of count(groups))
    emit(`    let w${g} = vec4<i32>(round(select(vec4<f32>(), e * unpack2x16float(${side.metaWord('metas', g)}).x, seen) * unit${g}));
    let high${g} = (w${g} + vec4<i32>(128)) >> vec4<u32>(8u);`);
  const parts = count(4).map((i) => {
    const g = i >> 1;
    if (g >= groups) return '0u';
    return i & 1 ? `bytes_(w${g} - high${g} * 256)` : `bytes_(high${g})`;
  });
  // Four bytes of a position to a byte of four positions, through the place where values will be staged.
  emit('  workgroupBarrier();');
  emit(`    area[lane % 4u * 8u + lane / 4u] = vec4<u32>(${parts.join(', ')});`);
  emit('  workgroupBarrier();');
  for (const u of count(4)) emit(`    let from${u} = area[${u * 8}u + lane / 4u][lane % 4u];`);
  emit(turnBytes('turned', ['from0', 'from1', 'from2', 'from3']));
  emit('  workgroupBarrier();');
  for (const b of count(4))
    emit(
      `    area[lane % 4u * ${4 * VALUE}u + lane / 16u + ${WEIGHTS_AT + b * VALUE}u][lane / 4u % 4u] = turned${b};`,
    );
  const turned = turnedHalves(side, headDim);
  lines.push(...turned.before);
  for (const half of [0, 1] as const) {
    if (half === 1) emit('  workgroupBarrier();');
    emit('    {');
    lines.push(...turned.halves[half]);
    emit('    }');
    emit('  workgroupBarrier();');
    if (half === 0)
      emit(`    let weights = subgroupMatrixLoad<Left, row_major>(&area, ${WEIGHTS_AT}u, ${VALUE}u);`);
    else {
      emit('    if (ahead <= reach) {');
      load('tile', 'ahead');
      emit('    }');
    }
    for (const b of count(HALF_ROWS / 16)) {
      const o = `o${half * (HALF_ROWS / 16) + b}`;
      emit(
        `    ${o} = subgroupMatrixMultiplyAccumulate(weights, subgroupMatrixLoad<Right, col_major>(&area, ${b * 16 * VALUE}u, ${VALUE}u), ${o});`,
      );
    }
  }
  emit('  }');
  lines.push(...endText(shape, groups));
  return lines;
}

/**
 * Stores of a lane's pieces of four positions, `v0` … `v3`, four positions to a word, from `into` on: either half of the
 * dims, and what comes before both.
 */
function turnedHalves(
  { format, words, width }: BytesSide,
  headDim: number,
): { readonly before: string[]; readonly halves: readonly [string[], string[]] } {
  const word = (u: number) => (i: number) => wordOf(`v${u}`, width, i);
  const { bits } = format;
  // Turned as they are stored where that can be, so that a word of several codes for each byte is turned once.
  const direct = [2, 4, 8].includes(bits);
  const made = direct ? [] : count(4).map((u) => bytesText(format, headDim, PIECE, `x${u}`, word(u)));
  const storesOf = (half: number): string[] => {
    const lines: string[] = [];
    let i = 0;
    const store = (value: string): void => {
      const row = Math.floor(i / 2) * 8 + (i % 2);
      lines.push(`      area[into + ${row * VALUE}u][lane / ${PIECES}u % 4u] = ${value};`);
      i++;
    };
    for (const w of count(direct ? words / 2 : 4)) {
      const name = `y${w}_`;
      const of = (u: number): string =>
        direct ? word(u)((half * words) / 2 + w) : made[u]!.words[half * 4 + w]!.name;
      lines.push(turnBytes(name, [of(0), of(1), of(2), of(3)]));
      for (const b of count(4)) {
        if (!direct) store(`${name}${b}`);
        else
          for (const f of count(8 / bits))
            store(
              bits === 8
                ? `${name}${b} ^ 0x80808080u`
                : `(${name}${b} >> ${f * bits}u) & 0x${((2 ** bits - 1) * 0x01010101).toString(16)}u`,
            );
      }
    }
    return lines;
  };
  return { before: made.map(({ text }) => text), halves: [storesOf(0), storesOf(1)] };
}

/** The sums through `area` and out, two blocks of columns a turn, for which the others move up; a lane has a column. */
function endText({ heads, kvHeads, headDim }: AttendShape, groups: number): string[] {
  const group = heads / kvHeads;
  const blocks = headDim / 16;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  // A lane's columns are all of one affine group.
  const upper = `lane / 2u % 4u >= ${headDim / 2 / PIECE}u`;
  const own = (name: string): string => (groups === 1 ? `${name}0` : `select(${name}0, ${name}1, ${upper})`);
  emit(`  let whole_value = ${own('whole_value')};
  let offset = ${own('offset')};
  let sums_at = lane / 4u${groups === 1 ? '' : ` + select(0u, ${2 * HEADS * OUT}u, ${upper})`};
  for (var turn = 0u; turn < ${rolledBound(blocks / 2)}; turn++) {
    workgroupBarrier();`);
  for (const i of [0, 1]) emit(`    subgroupMatrixStore<row_major>(&area, ${i * 4}u, o${i}, ${OUT}u);`);
  emit('    workgroupBarrier();');
  for (const b of count(blocks - 2)) emit(`    o${b} = o${b + 2};`);
  const halfTurns = HALF_ROWS / 32;
  emit(`    let row = turn % ${halfTurns}u * 32u + lane;
    let dim = row / 2u % 4u * ${PIECE}u + turn / ${halfTurns}u * 16u + row / 8u * 2u + row % 2u;
    let to = (item_at * ${heads}u + kv * ${group}u) * ${headDim}u + dim;`);
  for (const h of count(group)) {
    const sum = (plane: number): string =>
      `f32(bitcast<i32>(area[sums_at + ${(plane * HEADS + h) * OUT}u][lane % 4u]))`;
    emit(
      `    scratchSums[to + ${h * headDim}u] = fma(${sum(0)}, 256.0, ${sum(1)}) * whole_value.${'xyzw'[h]} + offset.${'xyzw'[h]};`,
    );
  }
  emit('  }');
  return lines;
}
