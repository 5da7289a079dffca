/** Attention on matrices of bytes, first pass: queries as integers in matrices, and the scores of every position. */

import { f32Literal } from '../kernel.js';
import { ATTENTION_SPLIT } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import {
  type BytesConfig,
  type BytesSide,
  HEAD_DIM,
  HEADS,
  KEY,
  LANES,
  MOST,
  overLanes,
  SUMS,
  TURN,
} from './attend-bytes-plan.js';
import { byteCentre, bytesText } from './attend-planes.js';
import { count, LOWEST, wordOf } from './attend-words.js';
import { rolledBound } from './rolled.js';

/**
 * Leaves matrices `leftK`, and vectors over heads: `end`, what an integer score is multiplied with, and `wholeG`, the sum
 * of the integer queries of affine group G. A lane makes a word of four dims of each head, in the order in which keys are
 * staged.
 */
export function byteQueries(shape: AttendShape, { format, groups, dims }: BytesSide): string[] {
  const { heads, kvHeads, headDim } = shape;
  const group = heads / kvHeads;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const { words: pattern } = bytesText(format, headDim, dims, 'x', () => '0u');
  const run = pattern[0]!.dims[1] - pattern[0]!.dims[0];
  const each = dims / 4;
  emit(
    `  let d = lane / ${each}u * ${dims}u + lane % ${each}u / ${run}u * ${4 * run}u + lane % ${each}u % ${run}u;
  let q_at = (item.x * ${heads}u + kv * ${group}u) * ${headDim}u + d;`,
  );
  for (const h of count(HEADS)) {
    const dim = (e: number): string => `q[q_at + ${h * headDim + e * run}u]`;
    emit(
      `  var q${h} = vec4<f32>(${h < group ? count(4).map(dim).join(', ') : ''});
  let a${h} = max(abs(q${h}.xy), abs(q${h}.zw));`,
    );
  }
  const most = count(HEADS).map((h) => `max(a${h}.x, a${h}.y)`);
  emit(`  var most = vec4<f32>(${most.join(', ')});
${overLanes([], ['most'])}
  let end = most * ${f32Literal(shape.scale / MOST)};
  var unit = select(vec4<f32>(), vec4<f32>(${MOST}.0) / most, most > vec4<f32>());`);
  for (const g of count(groups)) emit(`  var part${g} = vec4<i32>();`);
  // A head a turn: the others move up, and what a turn leaves goes behind.
  emit(`  for (var h = 0u; h < ${rolledBound(HEADS)}; h++) {
    let n = vec4<i32>(round(q0 * unit.x));
    let high = (n + vec4<i32>(128)) >> vec4<u32>(8u);
    let words = vec2<u32>(bytes_(high), bytes_(n - high * 256));
    let sum = n.x + n.y + n.z + n.w;
    let to = h * ${KEY}u + lane / 4u;`);
  for (const g of count(groups)) {
    const mine = (none: string, value: string): string =>
      groups === 1 ? value : `select(${none}, ${value}, d / ${format.groupSize}u == ${g}u)`;
    for (const p of [0, 1])
      emit(`    area[to + ${(g * 2 + p) * HEADS * KEY}u][lane % 4u] = ${mine('0u', `words.${'xy'[p]}`)};`);
    emit(`    part${g} = vec4<i32>(part${g}.yzw, ${mine('0', 'sum')});`);
  }
  for (const h of count(HEADS - 1)) emit(`    q${h} = q${h + 1};`);
  emit('    unit = unit.yzwx;\n  }');
  const parts = count(groups).map((g) => `part${g}`);
  emit(overLanes(parts));
  for (const g of count(groups)) emit(`  let whole${g} = vec4<f32>(part${g});`);
  emit('  workgroupBarrier();');
  for (const k of count(HEAD_DIM / 32))
    emit(`  let left${k} = subgroupMatrixLoad<Left, row_major>(&area, ${k * 2}u, ${KEY}u);`);
  return lines;
}

/**
 * A lane ends up with the scores of a position, of all heads: in `scratchScores`, and the greatest of its own in `top`.
 * `seen(t)`: whether the row sees position t of the split.
 */
export function byteScores(
  shape: AttendShape,
  { keyTokens }: BytesConfig,
  side: BytesSide,
  seen: (t: string) => string,
): string[] {
  const { headDim, softcap } = shape;
  const { format, groups, dims, words, width } = side;
  const split = ATTENTION_SPLIT;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const keyLanes = headDim / dims;
  const atOnce = LANES / keyLanes;
  const turns = keyTokens / atOnce;
  const loads = words / width;
  const stride = side.vectorWords / width;
  const blocks = TURN / keyTokens;
  const load = (b: number, tile: string): void => {
    for (let half = b * keyTokens; half < (b + 1) * keyTokens; half += 16) {
      emit(`    { let a = ${side.half(tile, half / 16)} * ${stride}u + piece;`);
      for (let t = half; t < half + 16; t += atOnce)
        for (const i of count(loads))
          emit(`      k${b}_${(t - b * keyTokens) / atOnce}_${i} = keys[a + ${t * stride + i}u];`);
      emit('    }');
    }
  };
  emit(`  let piece = lane / ${keyLanes}u * ${stride}u + lane % ${keyLanes}u * ${loads}u;
  let to = lane / ${keyLanes}u * ${KEY}u + lane % ${keyLanes}u * ${dims / 16}u;
  var tile = ${side.tile('0u')};`);
  for (const b of count(blocks)) {
    for (const u of count(turns)) for (const i of count(loads)) emit(`  var k${b}_${u}_${i}: ${side.type};`);
    load(b, 'tile');
  }
  emit(`  var top = vec4<f32>(${LOWEST});
  for (var base = 0u; base < ${rolledBound(split)}; base += ${TURN}u) {
    if (base > reach) { break; }
    let mine = base + lane;
    let metas = ${side.meta(side.vector('tile', 'lane'))};
    let more = base + ${TURN}u <= reach;
    let next = ${side.tile(`min(base + ${TURN}u, ${split - TURN}u)`)};`);
  for (const b of count(blocks)) {
    emit('  workgroupBarrier();');
    for (const u of count(turns)) {
      const made = bytesText(format, headDim, dims, `x${b}${u}`, (i) => wordOf(`k${b}_${u}`, width, i));
      emit(`    {\n${made.text}`);
      for (const i of count(dims / 16))
        emit(
          `      area[to + ${u * atOnce * KEY + i}u] = vec4<u32>(${made.words
            .slice(4 * i, 4 * i + 4)
            .map((w) => w.name)
            .join(', ')});`,
        );
      emit('    }');
    }
    emit('  workgroupBarrier();');
    emit('    if (more) {');
    load(b, 'next');
    emit('    }');
    for (const n of count(keyTokens / 16)) {
      const s = `s${b * (keyTokens / 16) + n}`;
      emit(`    var ${s} = Sum();`);
      for (const k of count(HEAD_DIM / 32))
        emit(
          `    ${s} = subgroupMatrixMultiplyAccumulate(left${k}, subgroupMatrixLoad<Right, col_major>(&area, ${n * 16 * KEY + k * 2}u, ${KEY}u), ${s});`,
        );
    }
  }
  emit('  workgroupBarrier();');
  for (const n of count(TURN / 16))
    emit(`    subgroupMatrixStore<col_major>(&area, ${n * 16 * SUMS}u, s${n}, ${SUMS}u);`);
  emit('  workgroupBarrier();');
  for (const g of count(groups)) {
    emit(
      `    let affine${g} = unpack2x16float(${side.metaWord('metas', g)}); let bias${g} = fma(affine${g}.x, ${f32Literal(byteCentre(format))}, affine${g}.y);`,
    );
    emit(
      `    let all${g} = vec4<f32>(bitcast<vec4<i32>>(area[lane * ${SUMS}u + ${g * 2}u]) * 256 + bitcast<vec4<i32>>(area[lane * ${SUMS}u + ${g * 2 + 1}u]));`,
    );
  }
  const sum = count(groups)
    .map((g) => `affine${g}.x * all${g} + bias${g} * whole${g}`)
    .join(' + ');
  emit(`    var score = (${sum}) * end;`);
  if (softcap !== null)
    emit(
      `    { let e = exp(clamp(2.0 * score / ${f32Literal(softcap)}, vec4<f32>(-80.0), vec4<f32>(80.0))); score = ${f32Literal(softcap)} * (1.0 - 2.0 / (e + 1.0)); }`,
    );
  emit(`    score = select(vec4<f32>(${LOWEST}), score, ${seen('mine')});
    top = max(top, score);
    scratchScores[scores_at + mine] = score;
    tile = next;
  }`);
  return lines;
}
