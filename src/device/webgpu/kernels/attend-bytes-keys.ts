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
    `  let d = lane / ${each}u * ${dims}u + lane % ${each}u / ${run}u * ${4 * run}u + lane % ${each}u % ${run}u;`,
  );
  for (const h of count(group))
    emit(
      `  let q${h} = vec4<f32>(${count(4)
        .map((e) => `q[(item.x * ${heads}u + kv * ${group}u + ${h}u) * ${headDim}u + d + ${e * run}u]`)
        .join(', ')});`,
    );
  for (const h of count(group)) {
    emit(`  let most${h} = max(max(abs(q${h}.x), abs(q${h}.y)), max(abs(q${h}.z), abs(q${h}.w)));
  let peak${h} = subgroupMax(most${h});`);
  }
  for (const h of count(group)) {
    emit(`  let n${h} = vec4<i32>(round(q${h} * select(0.0, ${MOST}.0 / peak${h}, peak${h} > 0.0)));
  let high${h} = (n${h} + vec4<i32>(128)) >> vec4<u32>(8u);
  let words${h} = vec2<u32>(bytes_(high${h}), bytes_(n${h} - high${h} * 256));
  let sum${h} = n${h}.x + n${h}.y + n${h}.z + n${h}.w;`);
    for (const g of count(groups)) {
      const mine = `d / ${format.groupSize}u == ${g}u`;
      const part = (plane: string): string =>
        groups === 1 ? `words${h}.${plane}` : `select(0u, words${h}.${plane}, ${mine})`;
      for (const [p, plane] of [
        [0, 'x'],
        [1, 'y'],
      ] as const)
        emit(`  area[${((g * 2 + p) * HEADS + h) * KEY}u + lane / 4u][lane % 4u] = ${part(plane)};`);
      emit(
        `  let part${g}_${h} = ${groups === 1 ? `sum${h}` : `select(0, sum${h}, ${mine})`}; let whole${g}_${h} = f32(subgroupAdd(part${g}_${h}));`,
      );
    }
  }
  const vector = (name: (h: number) => string): string =>
    `vec4<f32>(${count(HEADS)
      .map((h) => (h < group ? name(h) : '0.0'))
      .join(', ')})`;
  emit(`  let end = ${vector((h) => `peak${h}`)} * ${f32Literal(shape.scale / MOST)};`);
  for (const g of count(groups)) emit(`  let whole${g} = ${vector((h) => `whole${g}_${h}`)};`);
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
  const blocks = TURN / keyTokens;
  const load = (b: number, at: string): void => {
    for (const u of count(turns)) {
      emit(
        `    { let t = min(${at} + ${b * keyTokens + u * atOnce}u + lane / ${keyLanes}u, ${split - 1}u); let a = (${side.vector('t')}) * ${side.vectorWords / width}u + lane % ${keyLanes}u * ${loads}u;`,
      );
      for (const i of count(loads)) emit(`      k${b}_${u}_${i} = keys[a + ${i}u];`);
      emit('    }');
    }
  };
  for (const b of count(blocks)) {
    for (const u of count(turns)) for (const i of count(loads)) emit(`  var k${b}_${u}_${i}: ${side.type};`);
    load(b, '0u');
  }
  emit(`  var top = vec4<f32>(${LOWEST});
  for (var base = 0u; base < ${rolledBound(split)}; base += ${TURN}u) {
    if (base > reach) { break; }
    let mine = base + lane;
    let meta_at = ${side.metaAt('mine')};`);
  for (const g of count(groups)) emit(`    let meta${g} = ${side.word(`meta_at + ${g}u`)};`);
  for (const b of count(blocks)) {
    emit('  workgroupBarrier();');
    for (const u of count(turns)) {
      const made = bytesText(format, headDim, dims, `x${b}${u}`, (i) => wordOf(`k${b}_${u}`, width, i));
      emit(
        `    {\n${made.text}\n      let to = (${u * atOnce}u + lane / ${keyLanes}u) * ${KEY}u + lane % ${keyLanes}u * ${dims / 16}u;`,
      );
      for (const i of count(dims / 16))
        emit(
          `      area[to + ${i}u] = vec4<u32>(${made.words
            .slice(4 * i, 4 * i + 4)
            .map((w) => w.name)
            .join(', ')});`,
        );
      emit('    }');
    }
    emit('  workgroupBarrier();');
    load(b, `base + ${TURN}u`);
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
      `    let affine${g} = unpack2x16float(meta${g}); let bias${g} = fma(affine${g}.x, ${f32Literal(byteCentre(format))}, affine${g}.y);`,
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
  }`);
  return lines;
}
