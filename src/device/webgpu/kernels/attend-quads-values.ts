/** Attention by quads, second pass: the softmax of a split, and its weighted values. */

import type { AttendShape } from './attend.js';
import { cellAt } from './attend-quads-keys.js';
import { headVector, QUAD, type QuadsLoads, type QuadsPlan, SETS } from './attend-quads-plan.js';
import { count, isUnseen, wordType, wordWidth } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { unpackCodes } from './linear-unpack.js';

/** Weights in the place of the scores; their sum and the greatest score to `scratchTops`. */
export function quadsSoftmax({ heads }: AttendShape, plan: QuadsPlan): string[] {
  const { group, lanes, turn, keysAtOnce } = plan;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  for (let step = QUAD; step < lanes; step *= 2) emit(`  top = max(top, subgroupShuffleXor(top, ${step}u));`);
  emit('  var total = 0.0;');
  if (group < QUAD) emit(`  if (lane % ${QUAD}u < ${group}u) {`);
  emit(`  for (var base = begin; base < walked; base += ${turn}u) {`);
  const cell = (u: number): string => cellAt(plan, `base + ${u * keysAtOnce}u + lane / ${QUAD}u`);
  for (const u of count(SETS)) emit(`    let s${u} = bitcast<f32>(${cell(u)});`);
  // Not seen: LOWEST less LOWEST would count as 1.
  for (const u of count(SETS)) emit(`    let w${u} = select(exp(s${u} - top), 0.0, ${isUnseen(`s${u}`)});`);
  for (const u of count(SETS)) emit(`    ${cell(u)} = bitcast<u32>(w${u});\n    total += w${u};`);
  emit('  }');
  if (group < QUAD) emit('  }');
  for (let step = QUAD; step < lanes; step *= 2) emit(`  total += subgroupShuffleXor(total, ${step}u);`);
  emit(
    `  if (lane < ${group}u) { scratchTops[item_at * ${heads}u + kv * ${group}u + lane] = vec2<f32>(top, total); }`,
  );
  emit('  workgroupBarrier();');
  return lines;
}

/** Words of `scratchSums` that a lane stores at once. */
export function sumsType({ values, valuesAtOnce }: QuadsPlan): string {
  const width = wordWidth(values.dims / valuesAtOnce);
  return width === 1 ? 'f32' : wordType(width).replace('u32', 'f32');
}

/** Weighted values, from weights and loads that are on their way to `scratchSums`. */
export function quadsSums(
  shape: AttendShape,
  plan: QuadsPlan,
  loads: QuadsLoads,
  seen: (t: string) => string,
): string[] {
  const { group, turn, values, valueLoads } = plan;
  const { dims } = values;
  const { bits } = values.format;
  const { type, of } = headVector(group);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  for (const d of count(dims)) emit(`  var o${d} = ${type}();`);
  emit(`  var weights = ${type}(); var biases = ${type}();
  for (var base = begin; base <= reach; base += ${turn}u) {
    let more = base + ${turn}u <= reach;
    let ahead = select(base, base + ${turn}u, more);`);
  lines.push(...loads.runs('next', 'ahead'));
  // What lies where nothing is seen may be anything: scale and bias count as 0 there.
  let offsets: readonly number[] = [];
  for (const u of count(valueLoads)) {
    const { lines: moved, codes } = unpackCodes(bits, count((dims * bits) / 32).map(loads.word(u)), `c${u}`);
    offsets = codes.map(({ offset }) => offset);
    emit(`    {
    ${moved.join(';\n    ')};
    let affine = unpack2x16float(select(0u, ${loads.meta(u)}, ${seen(loads.position(u, 'base'))}));
    let w = bitcast<${type}>(cells[${loads.position(u, 'base')}]${group === 3 ? '.xyz' : ''});
    let p = w * affine.x;
    weights += p;
    biases = fma(w, ${of('affine.y')}, biases);`);
    codes.forEach(({ text }, d) => {
      emit(`    o${d} = fma(${of(text)}, p, o${d});`);
    });
    emit('    if (more) {');
    lines.push(...loads.load(u, 'next'));
    emit('    }\n    }');
  }
  emit('  }');
  // What codes have too much goes with the sum of their weights.
  for (const [i, offset] of [...new Set(offsets)].entries()) {
    emit(`  let less${i} = fma(${of(f32Literal(-offset))}, weights, biases);`);
    for (const d of count(dims)) if (offsets[d] === offset) emit(`  o${d} += less${i};`);
  }
  lines.push(...storeSums(shape, plan));
  return lines;
}

/** Adds over lanes that have the same dims; at every step two of them halve the dims. */
function storeSums({ heads, headDim }: AttendShape, plan: QuadsPlan): string[] {
  const { group, lanes, values, valuesAtOnce } = plan;
  const { part } = headVector(group);
  const lines: string[] = [];
  let own = values.dims;
  lines.push(`  var dim = lane % ${values.lanes}u * ${values.dims}u;`);
  for (let step = values.lanes; step < lanes; step *= 2) {
    own /= 2;
    lines.push(`  { let upper = (lane & ${step}u) != 0u; dim += select(0u, ${own}u, upper);`);
    for (const d of count(own))
      lines.push(`    let give${d} = select(o${d + own}, o${d}, upper);
    o${d} = select(o${d}, o${d + own}, upper) + subgroupShuffleXor(give${d}, ${step}u);`);
    lines.push('  }');
  }
  const width = wordWidth(values.dims / valuesAtOnce);
  for (const h of count(group))
    for (let d = 0; d < own; d += width) {
      const of = count(width).map((e) => part(`o${d + e}`, h));
      const value = width === 1 ? of[0]! : `vec${width}<f32>(${of.join(', ')})`;
      lines.push(
        `  scratchSums[((item_at * ${heads}u + kv * ${group}u + ${h}u) * ${headDim}u + dim + ${d}u) / ${width}u] = ${value};`,
      );
    }
  return lines;
}
