/** Attention on matrices of bytes: the softmax, and its weights as integers in matrices. */

import type { AttendShape } from './attend.js';
import { OWN_FIRST, ofSeen, ownLast, ownPositions, ownWeights } from './attend-bytes-own.js';
import {
  type BytesSide,
  COLUMNS,
  HEADS,
  MOST,
  ofPosition,
  ROUNDING,
  ROWS,
  scalesLate,
  startOf,
  TURN,
  type Turn,
  WEIGHT_STRIDE,
} from './attend-bytes-plan.js';
import { TRANSPOSED_LANES, transposedWeights } from './attend-bytes-transposed.js';
import { count } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { hasScales } from './kv-formats/list.js';

/** Logarithm of the least weight that is told from none. */
const LEAST = -100;
const BLOCKS = TURN / ROWS;

/** Statements that join what lanes of the same heads have. */
function overPositions(name: string, how: 'sum' | 'max'): string {
  return [16, 8, 4, 2]
    .map((bit) =>
      how === 'sum'
        ? `  ${name} += subgroupShuffleXor(${name}, ${bit}u);`
        : `  ${name} = max(${name}, subgroupShuffleXor(${name}, ${bit}u));`,
    )
    .join('\n');
}

/** Statements that load a lane's scores of a turn, and what goes with its values. */
export function scoreLoads(values: BytesSide, at: Turn): string {
  const metas = values.handedOn
    ? [`    { let mine = ${startOf(at)} + lane; ${values.loadMeta('wm0', 'mine', at)} }`]
    : count(BLOCKS).map(
        (b) =>
          `    { let mine = ${startOf(at)} + lane / 2u + ${b * ROWS}u; ${values.loadMeta(`wm${b}`, 'mine', at)} }`,
      );
  return [`    scores = scratchScores[unit_at + ${startOf(at)} + lane];`, ...metas].join('\n');
}

/**
 * What comes before the turns of weights: of a lane's two heads the greatest score, `top`, and what makes integers of weights
 * that are scaled as the values of affine group G are, `integerG`. TurboQuant's have one scale, so they are taken relative to the
 * greatest of them, and an integer of MOST is 1. And what the turns add up, `sum` of weights and `offsetG` of
 * biases; and what the first turn needs.
 */
export function firstWeights(shape: AttendShape, keys: BytesSide, values: BytesSide): string[] {
  const { groups } = values;
  if (ownPositions(keys, values))
    return [
      OWN_FIRST,
      '  var scores: vec4<u32>;\n  var weights0: Right;',
      `  var wm0: ${values.metaType};`,
      scoreLoads(values, 'zero'),
    ];
  const lines = [
    overPositions('top', 'max'),
    ...(scalesLate(shape) && !values.handedOn ? ['  top *= end;'] : []),
    '  var sum = vec2<f32>();',
  ];
  for (const g of count(groups)) {
    if (!values.handedOn)
      lines.push(
        overPositions(`peak${g}`, 'max'),
        `  let integer${g} = ${MOST}.0 / exp2(max(peak${g} - top, vec2<f32>(${LEAST}.0)));`,
      );
    if (hasScales(values.format)) lines.push(`  var offset${g} = vec2<f32>();`);
  }
  lines.push('  var scores: vec4<u32>;');
  for (const g of count(groups)) lines.push(`  var weights${g}: Right;`);
  for (const b of count(values.handedOn ? 1 : BLOCKS)) lines.push(`  var wm${b}: ${values.metaType};`);
  lines.push(
    scoreLoads(values, 'zero'),
    ...(values.transposed
      ? [TRANSPOSED_LANES]
      : [
          `  let kept_from = 8u - lane / 16u * 8u;
  let kept_to = 256u >> kept_from;
  let given_to = 1u << kept_from;`,
        ]),
    `  let weight_at = (lane % 2u * ${COLUMNS / 2}u + lane / 16u) * ${WEIGHT_STRIDE}u + lane / 8u % 2u;
  let weight_word = lane / 2u % 4u;`,
  );
  return lines;
}

/**
 * The weights of a turn as matrices `weightsG`. A lane has two positions, 16 apart, of two heads; a word of a matrix has four, 8
 * apart, whose other two the lane half a subgroup away has: the lower one makes the word of high bytes, the upper one that of
 * low ones. Words of transposed values have four positions of a block (`transposedWeights`).
 */
export function byteWeights(shape: AttendShape, keys: BytesSide, values: BytesSide): string[] {
  const { groups, format, centre, transposed } = values;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const across = (text: (b: number) => string): string => `vec2<f32>(${count(BLOCKS).map(text).join(', ')})`;
  emit('    { let sc = bitcast<vec4<f32>>(scores);');
  if (ownPositions(keys, values)) emit(ownWeights(shape, values, scalesLate(shape)));
  else handed();
  emit('    workgroupBarrier();');
  for (const h of [0, 1])
    for (const g of count(groups))
      emit(`    area[weight_at + ${(g * COLUMNS + 2 * h) * WEIGHT_STRIDE}u][weight_word] = n${h}_${g}_word;`);
  emit('    }\n    workgroupBarrier();');
  for (const g of count(groups))
    emit(
      `    weights${g} = subgroupMatrixLoad<Right, col_major>(&area, ${g * COLUMNS * WEIGHT_STRIDE}u, ${WEIGHT_STRIDE}u);`,
    );
  return lines;

  function handed(): void {
    if (values.handedOn) emit(`    let norm = ${values.meta('wm0', 0)}.x * ${MOST}.0;`);
    for (const g of count(groups)) {
      for (const b of count(BLOCKS)) {
        const meta = values.handedOn ? `vec2<f32>(${ofPosition('norm', b)}, 0.0)` : values.meta(`wm${b}`, g);
        emit(
          `    let a${g}_${b} = ${ofSeen(shape, meta, 'vec2<f32>()', b === 0 ? 'i32(base)' : `i32(base + ${b * ROWS}u)`)};`,
        );
      }
      emit(`    let scale${g} = ${across((b) => `a${g}_${b}.x`)};`);
      if (hasScales(format)) {
        const bias = across((b) => `a${g}_${b}.y`);
        emit(`    let bias${g} = ${centre === 0 ? bias : `${bias} + scale${g} * ${f32Literal(centre)}`};`);
      }
    }
    for (const h of [0, 1]) {
      const own = 'xy'[h];
      emit(`    let e${h} = exp2(sc.${h === 0 ? 'xz' : 'yw'}${scalesLate(shape) ? ` * end.${own}` : ''} - top.${own});
    sum.${own} += e${h}.x + e${h}.y;`);
      for (const g of count(groups)) {
        if (hasScales(format)) emit(`    offset${g}.${own} += dot(e${h}, bias${g});`);
        const n = `n${h}_${g}`;
        const integer = values.handedOn ? '' : ` * integer${g}.${own}`;
        emit(`    let ${n} = bitcast<vec2<u32>>(e${h} * scale${g}${integer} + ${ROUNDING});`);
        if (transposed) continue;
        emit(`    let ${n}_planes = ((${n}.x & 0xffffu) | (${n}.y << 16u)) ^ 0x00800080u;
    let ${n}_kept = (${n}_planes >> kept_from) & 0x00ff00ffu;
    let part${h}_${g} = (${n}_planes >> (8u - kept_from)) & 0x00ff00ffu;
    let ${n}_word = ${n}_kept * kept_to + subgroupShuffleXor(part${h}_${g}, 16u) * given_to;`);
      }
    }
    if (transposed) emit(transposedWeights(values));
  }
}

/** What the turns added up, over all positions; and the sums of weights, with the greatest scores, to `scratchTops`. */
export function lastWeights(shape: AttendShape, keys: BytesSide, values: BytesSide): string[] {
  const { heads, kvHeads } = shape;
  const { groups, format } = values;
  if (ownPositions(keys, values)) return ownLast(shape, f32Literal(Math.LN2));
  const group = heads / kvHeads;
  const lines = [overPositions('sum', 'sum')];
  if (hasScales(format)) for (const g of count(groups)) lines.push(overPositions(`offset${g}`, 'sum'));
  lines.push('  if (lane < 2u) {');
  for (const h of [0, 1]) {
    const own = 'xy'[h];
    const write = `scratchTops[item_at * ${heads}u + kv * ${group}u + lane * 2u + ${h}u] = vec2<f32>(top.${own} * ${f32Literal(Math.LN2)}, sum.${own});`;
    lines.push(group === HEADS ? `    ${write}` : `    if (lane * 2u + ${h}u < ${group}u) { ${write} }`);
  }
  lines.push('  }');
  return lines;
}
