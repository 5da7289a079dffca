/** Attention on matrices of bytes: the softmax, and its weights as integers. */

import { f32Literal } from '../kernel.js';
import { ATTENTION_SPLIT } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { overLanes, planesText, seenText } from './attend-bytes-keys.js';
import {
  type BytesSide,
  HEADS,
  KEY_TURN,
  KEYS,
  MOST,
  PAIRS_AT,
  ROUNDING,
  VALUE_TURN,
} from './attend-bytes-plan.js';
import { count } from './attend-words.js';
import { rolledBound } from './rolled.js';

/** Bits of the number of a lane that say which positions it has; the others are its head's. */
const OWN = [4, 2, 1];
/** Logarithm of the least weight that is told from none. */
const LEAST = -100;
const BLOCKS = VALUE_TURN / KEYS;

/**
 * From scores to weights where those were, scaled as the values of each affine group are; what goes with them, the number that
 * undoes the integers and the sum of biases; and the sum of weights, with the greatest score, to `scratchTops`.
 */
export function byteWeights(shape: AttendShape, values: BytesSide): string[] {
  const { heads, kvHeads } = shape;
  const { groups, format, centre, unit } = values;
  const group = heads / kvHeads;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  emit(overLanes('top', 'max', OWN));
  emit('  var sum = 0.0;');
  for (const g of count(groups)) {
    emit(overLanes(`peak${g}`, 'max', OWN));
    emit(`  let greatest${g} = exp2(max(peak${g} - top, ${LEAST}.0));
  let integer${g} = ${MOST}.0 / greatest${g};
  var offset${g} = 0.0;`);
  }
  emit(`  for (var base = 0u; base <= end_turn; base += ${rolledBound(VALUE_TURN)}) {
    let at = unit_at + head * ${ATTENTION_SPLIT / 4}u + base / 4u + lane % 8u;
    let older = bitcast<vec4<f32>>(scratchScores[at]);
    let newer = bitcast<vec4<f32>>(scratchScores[at + ${KEY_TURN / 4}u]);
    let score0 = vec4<f32>(older.xy, newer.xy);
    let score1 = vec4<f32>(older.zw, newer.zw);`);
  for (const b of count(BLOCKS))
    emit(`    let mine${b} = base + own + ${b * KEYS}u;
    ${values.loadMetas(`vm${b}`, `mine${b}`)}`);
  const across = (text: (b: number) => string): string => `vec4<f32>(${count(BLOCKS).map(text).join(', ')})`;
  for (const e of [0, 1]) {
    const positions = count(BLOCKS).map((b) => `mine${b} + ${e}u`);
    emit(`    { let seen = ${seenText(shape, `vec4<u32>(${positions.join(', ')})`, 'vec4<u32>')};
    let e = exp2(score${e} - top);
    sum += (e.x + e.y) + (e.z + e.w);`);
    for (const g of count(groups)) {
      for (const b of count(BLOCKS))
        emit(`    let a${g}_${b} = select(vec2<f32>(), ${values.meta(`vm${b}`, e, g)}, seen.${'xyzw'[b]});`);
      emit(`    let scale${g} = ${across((b) => `a${g}_${b}.x`)};`);
      if (format.kind === 'affine') {
        const bias = across((b) => `a${g}_${b}.y`);
        emit(
          `    offset${g} += dot(e, ${centre === 0 ? bias : `${bias} + scale${g} * ${f32Literal(centre)}`});`,
        );
      }
      emit(`    let n${g}_ = bitcast<vec4<u32>>(e * scale${g} * integer${g} + ${ROUNDING});`);
      for (const b of count(BLOCKS)) emit(`    let n${g}_${b} = n${g}_.${'xyzw'[b]};`);
      emit(planesText(`n${g}_`));
    }
    const words = count(2).flatMap((g) => (g < groups ? [`n${g}_high`, `n${g}_low`] : ['0u', '0u']));
    emit(`    scratchScores[at + ${(e * KEY_TURN) / 4}u] = vec4<u32>(${words.join(', ')}); }`);
  }
  emit('  }');
  emit(overLanes('sum', 'sum', OWN));
  for (const g of count(groups)) if (format.kind === 'affine') emit(overLanes(`offset${g}`, 'sum', OWN));
  const pairs = count(2).flatMap((g) =>
    g < groups ? [`greatest${g} * ${f32Literal(unit / MOST)}`, `offset${g}`] : ['0.0', '0.0'],
  );
  emit(`  if ((lane & ${OWN.reduce((a, b) => a | b)}u) == 0u) {
    scratchScores[unit_at + ${PAIRS_AT}u + head] = bitcast<vec4<u32>>(vec4<f32>(${pairs.join(', ')}));
    ${group < HEADS ? `if (head < ${group}u) { ` : ''}scratchTops[item_at * ${heads}u + kv * ${group}u + head] = vec2<f32>(top * ${f32Literal(Math.LN2)}, sum);${group < HEADS ? ' }' : ''}
  }`);
  return lines;
}
