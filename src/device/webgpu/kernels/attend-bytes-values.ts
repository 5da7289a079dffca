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
  PIECE,
  TURN,
  VALUE,
  WEIGHTS_AT,
} from './attend-bytes-plan.js';
import { byteCentre, bytesText, turnBytes } from './attend-planes.js';
import { count, wordOf } from './attend-words.js';
import { rolledBound } from './rolled.js';

const PIECES = HEAD_DIM / PIECE;

/**
 * The sum of the weights goes to `scratchTops` with the greatest score. Leaves vectors over heads: `all_top`; for affine
 * group G `all_offsetG`, the sums of biases, and `unitG` and `whole_valueG`, which make weights integers and undo it.
 */
export function byteSoftmax(shape: AttendShape, side: BytesSide, seen: (t: string) => string): string[] {
  const { heads, kvHeads } = shape;
  const { format, groups } = side;
  const group = heads / kvHeads;
  const tiles = ATTENTION_SPLIT / TURN;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  emit('  let all_top = subgroupMax(top);');
  for (const g of count(groups)) emit(`  var peakv${g} = vec4<f32>(); var offsetv${g} = vec4<f32>();`);
  emit('  var sumv = vec4<f32>();\n  {');
  for (const t of count(tiles)) {
    emit(`  let meta_at${t} = ${side.metaAt(`lane + ${t * TURN}u`)};
  let s${t} = scratchScores[scores_at + lane + ${t * TURN}u];`);
    for (const g of count(groups)) emit(`  let m${t}_${g} = ${side.word(`meta_at${t} + ${g}u`)};`);
  }
  for (const t of count(tiles)) {
    emit(`  { let seen = ${seen(`lane + ${t * TURN}u`)};
    let e = select(vec4<f32>(), exp(s${t} - all_top), seen);
    sumv += e;`);
    for (const g of count(groups)) {
      emit(
        `    peakv${g} = max(peakv${g}, abs(select(vec4<f32>(), e * unpack2x16float(m${t}_${g}).x, seen)));`,
      );
      emit(
        `    offsetv${g} += select(vec4<f32>(), e * dot(unpack2x16float(m${t}_${g}), vec2<f32>(${f32Literal(byteCentre(format))}, 1.0)), seen);`,
      );
    }
    emit('  }');
  }
  emit('  }\n  let all_sum = subgroupAdd(sumv);');
  for (const g of count(groups)) {
    emit(`  let all_peak${g} = subgroupMax(peakv${g});
  let unit${g} = select(vec4<f32>(), vec4<f32>(${MOST}.0) / all_peak${g}, all_peak${g} > vec4<f32>());
  let whole_value${g} = all_peak${g} * ${f32Literal(1 / MOST)};`);
    emit(`  let all_offset${g} = subgroupAdd(offsetv${g});`);
  }
  for (const h of count(group))
    emit(
      `  if (lane == ${h}u) { scratchTops[item_at * ${heads}u + kv * ${group}u + ${h}u] = vec2<f32>(all_top.${'xyzw'[h]}, all_sum.${'xyzw'[h]}); }`,
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
  const load = (at: string): void => {
    emit(
      `    { let t = min(${at} + lane / ${PIECES}u * 4u, ${split - 4}u); let a = (${side.vector('t')}) * ${side.vectorWords / width}u + lane % ${PIECES}u * ${loads}u;`,
    );
    for (const u of count(4))
      for (const i of count(loads))
        emit(`      v${u}_${i} = values[a + ${(u * side.vectorWords) / width + i}u];`);
    emit(`      let own = min(${at} + lane, ${split - 1}u);
      score = scratchScores[scores_at + own];
      let at = ${side.metaAt('own')};`);
    for (const g of count(groups)) emit(`      meta${g} = ${side.word(`at + ${g}u`)};`);
    emit('    }');
  };
  for (const u of count(4)) for (const i of count(loads)) emit(`  var v${u}_${i}: ${side.type};`);
  emit('  var score: vec4<f32>;');
  for (const g of count(groups)) emit(`  var meta${g}: u32;`);
  load('0u');
  for (const b of count(headDim / 16)) emit(`  var o${b} = Sum();`);
  emit(`  for (var base = 0u; base < ${rolledBound(split)}; base += ${TURN}u) {
    if (base > reach) { break; }
    let seen = ${seen('base + lane')};
    let e = select(vec4<f32>(), exp(score - all_top), seen);`);
  for (const g of count(groups))
    emit(`    let w${g} = vec4<i32>(round(select(vec4<f32>(), e * unpack2x16float(meta${g}).x, seen) * unit${g}));
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
      `    { let at = ${WEIGHTS_AT * 4}u + (lane % 4u * 4u + ${b}u) * ${VALUE * 4}u + lane / 4u; area[at / 4u][at % 4u] = turned${b}; }`,
    );
  const turned = turnedHalves(side, headDim);
  lines.push(...turned.before);
  for (const half of [0, 1] as const) {
    if (half === 1) emit('  workgroupBarrier();');
    emit(`    { let to = lane % ${PIECES}u * ${2 * VALUE * 4}u + lane / ${PIECES}u;`);
    lines.push(...turned.halves[half]);
    emit('    }');
    emit('  workgroupBarrier();');
    if (half === 0)
      emit(`    let weights = subgroupMatrixLoad<Left, row_major>(&area, ${WEIGHTS_AT}u, ${VALUE}u);`);
    else load(`base + ${TURN}u`);
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
 * Stores of a lane's pieces of four positions, `v0` … `v3`, four positions to a word, from `to` on: either half of the
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
      lines.push(`      { let at = to + ${row * VALUE * 4}u; area[at / 4u][at % 4u] = ${value}; }`);
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

/** The sums through `area` and out, two blocks of columns at a time; a lane has a column. */
function endText({ heads, kvHeads, headDim }: AttendShape, groups: number): string[] {
  const group = heads / kvHeads;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  for (let b = 0; b < headDim / 16; b += 2) {
    emit('  workgroupBarrier();');
    for (const i of [0, 1]) emit(`  subgroupMatrixStore<row_major>(&area, ${i * 4}u, o${b + i}, ${OUT}u);`);
    emit('  workgroupBarrier();');
    const half = Math.floor((b * 16) / HALF_ROWS);
    emit(`  { let row = ${(b * 16) % HALF_ROWS}u + lane;
    let i = row / 8u * 2u + row % 2u;
    let dim = row / 2u % 4u * ${PIECE}u + ${half * 16}u + i;`);
    const dimGroup = groups === 1 ? null : `dim >= ${headDim / 2}u`;
    for (const h of count(group)) {
      const part = (g: number): string => {
        const at = (plane: number): string =>
          `f32(bitcast<i32>(area[${((g * 2 + plane) * HEADS + h) * OUT}u + lane / 4u][lane % 4u]))`;
        return `fma(${at(0)}, 256.0, ${at(1)}) * whole_value${g}.${'xyzw'[h]} + all_offset${g}.${'xyzw'[h]}`;
      };
      const value = dimGroup === null ? part(0) : `select(${part(0)}, ${part(1)}, ${dimGroup})`;
      emit(`    scratchSums[(item_at * ${heads}u + kv * ${group}u + ${h}u) * ${headDim}u + dim] = ${value};`);
    }
    emit('  }');
  }
  return lines;
}
