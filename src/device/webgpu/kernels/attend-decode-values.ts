/** Attention of single-token rows, second pass: the softmax of a split, and its weighted values. */

import { type DecodeFrame, eachOf, entryText } from './attend-decode-frame.js';
import { turnOf, walkText } from './attend-decode-walk.js';
import { byteUnit } from './attend-planes.js';
import { bookEntries, centreOf, transposedPairs } from './attend-unpack.js';
import { count, isUnseen, LOWEST, wordOf } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { hasNorm, hasScales } from './kv-formats/list.js';
import { TRANSPOSED_POSITIONS } from './kv-formats/turbo-layout.js';
import { partialAt, partialNames } from './kv-head.js';
import { rolledBound } from './rolled.js';
import { acrossLanes } from './subgroup-sums.js';

/**
 * Scales and biases of the values, or their norms, for the softmax. They are on their way while the keys multiply, norms in
 * registers until `decodeValueNorms`.
 */
export function decodeValueMeta(frame: DecodeFrame): string {
  const { shape, values, valueGroups, split, threads, seenAt } = frame;
  const { format, layout, row, normAt, word } = values;
  if (hasScales(format))
    return eachOf(
      'i',
      split * valueGroups,
      threads,
      `let c = ${seenAt(`i / ${valueGroups}u`)}; ${entryText(shape)}
    let at = ${layout.metaAt}u + ${row} * ${valueGroups}u + i % ${valueGroups}u;
    value_meta[i] = ${word('at')};`,
    );
  return normPieces(frame)
    .map(
      (i) =>
        `  var norm${i}: u32; { let c = ${seenAt(`lid + ${i * threads}u`)}; ${entryText(shape)} let at = ${normAt}; norm${i} = ${word('at')}; }`,
    )
    .join('\n');
}

const normPieces = ({ values, split, threads }: DecodeFrame): number[] =>
  hasNorm(values.format) ? count(Math.ceil(split / threads)) : [];

/** Norms of the values to `value_norms`. */
export function decodeValueNorms(frame: DecodeFrame): string[] {
  const { split, threads } = frame;
  return normPieces(frame).map((i) => {
    const store = `{ let pair = unpack2x16float(norm${i}); value_norms[lid + ${i * threads}u] = select(pair.x, pair.y, (kv & 1u) == 1u); }`;
    return split < threads ? `  if (lid < ${split}u) ${store}` : `  ${store}`;
  });
}

/** Positions that a lane takes at a time where the greatest score is looked for, and where scores become weights. */
const SEARCHED = 4;
const WEIGHED = 2;

/**
 * Weights in the place of the scores, with scale or norm where a vector has one; `offsets`, the sums of biases; the
 * greatest score and the sum of the weights to `scratchTops`.
 */
function decodeSoftmax(frame: DecodeFrame): string[] {
  const { shape, group, valueGroups, split, lanes, subs, values, keyWalk, valueWalk, cell } = frame;
  const { format } = values;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  // Values meet weights of so many positions; there are scores up to `walked`.
  const [walked, weighed] = [turnOf(keyWalk), turnOf(valueWalk)];
  const cover =
    walked % weighed === 0
      ? 'walked'
      : weighed % walked === 0
        ? `((reach / ${weighed}u + 1u) * ${weighed}u)`
        : `${split}u`;
  emit('  workgroupBarrier();');

  // Every subgroup takes the softmax of its heads; one beyond the last has nothing to do.
  if (group > subs) emit(`  for (var g0 = 0u; g0 < ${rolledBound(group)}; g0 += ${subs}u) {`);
  else emit('  {');
  const head = group > subs ? 'sub + g0' : 'sub';
  const partly = group % subs !== 0;
  emit(`    let g = ${partly ? `min(${head}, ${group - 1}u)` : head};`);
  if (partly) emit(`    let mine = ${head} < ${group}u;`);
  emit(`    let end = ${partly ? `select(0u, ${cover}, mine)` : cover};`);
  const columns = split / lanes;
  const loop = (most: number, text: (c: string) => string): void => {
    const pieces = columns % most === 0 ? most : 1;
    // Of a step that drivers do not know they write out no turns beside each other.
    emit(`    for (var at = lane; at < end; at += ${rolledBound(pieces * lanes)}) {`);
    for (const i of count(pieces))
      emit(`      { let c = at + ${i * lanes}u; var s = ${LOWEST}; if (c < walked) { s = ${cell('c', 'g')}; }
        ${text('c')} }`);
    emit('    }');
  };
  emit(`    var top = ${LOWEST};`);
  loop(SEARCHED, () => 'top = max(top, s);');
  emit(acrossLanes('top', lanes, (a, b) => `max(${a}, ${b})`));
  emit('    var sum = 0.0;');
  const biased = hasScales(format) ? count(valueGroups) : [];
  for (const vg of biased) emit(`    var bias${vg} = 0.0;`);
  loop(WEIGHED, (c) => {
    const scale = hasNorm(format)
      ? ` * value_norms[${c}]`
      : hasScales(format) && valueGroups === 1
        ? ` * unpack2x16float(value_meta[${c}]).x`
        : '';
    // Biases, and what centring took off the codes.
    const biases = biased.map(
      (vg) =>
        ` bias${vg} += w * dot(unpack2x16float(value_meta[${c} * ${valueGroups}u + ${vg}u]), vec2<f32>(${f32Literal(centreOf(format))}, 1.0f));`,
    );
    return `let w = select(exp(s - top), 0.0, ${isUnseen('s')}); sum += w;${biases.join('')} ${cell(c, 'g')} = w${scale};`;
  });
  const first = partly ? 'mine && lane == 0u' : 'lane == 0u';
  for (const vg of biased) emit(acrossLanes(`bias${vg}`, lanes, (a, b) => `${a} + ${b}`));
  emit(acrossLanes('sum', lanes, (a, b) => `${a} + ${b}`));
  emit(`    if (${first}) {`);
  for (const vg of biased) emit(`      offsets[${vg}u * ${group}u + g] = bias${vg};`);
  emit(
    `      ${partialNames(shape.rows).tops}[${partialAt(shape)} * ${shape.heads}u + kv * ${group}u + g] = vec2<f32>(top, sum);\n    }\n  }`,
  );
  emit('  workgroupBarrier();');
  return lines;
}

/**
 * Softmax and weighted values, from scores in `cells` to sums of each thread, `oG_D` of head and dim. The first values are on
 * their way meanwhile.
 */
export function decodeSums(frame: DecodeFrame): string[] {
  return frame.values.transposed ? transposedSums(frame) : pairSums(frame);
}

/** A pair of a piece is two dims of one position. */
function pairSums(frame: DecodeFrame): string[] {
  const { shape, group, valueGroups, copies, vec, values, valueWalk } = frame;
  const { format, dims, lanes } = values;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  for (const g of count(group)) for (const p of count(dims / 2)) emit(`  var a${g}_${p} = vec2<f32>();`);
  const apart = valueGroups > 1;
  if (apart) emit(`  let group_at = lid % ${lanes}u / ${shape.headDim / valueGroups / dims}u;`);
  if (bookEntries(format) > 0) emit(`  let copy = lane % ${copies}u;`);
  if (values.halved) emit('  let half = lid % 2u;');
  const use = (u: number, base: string): string[] => [
    `    let c = ${values.positionOf(base)};`,
    ...(apart ? [`    let scale = unpack2x16float(value_meta[c * ${valueGroups}u + group_at]).x;`] : []),
    ...count(group / vec).map(
      (i) => `    let w${i} = cells[c * ${group / vec}u + ${i}u]${apart ? ' * scale' : ''};`,
    ),
    values.pairs(`v${u}`).text,
    ...values
      .pairs(`v${u}`)
      .pairs.flatMap(({ value }, p) => [
        `    let e${p} = vec2<f32>(${value});`,
        ...count(group).map((g) => `    a${g}_${p} = fma(vec2<f32>(${weight(g)}), e${p}, a${g}_${p});`),
      ]),
  ];
  const weight = (g: number): string => weightOf(vec, g);
  lines.push(...walkText(valueWalk, decodeSoftmax(frame), use));
  const order = values.pairs('v').pairs;
  for (const g of count(group))
    for (const [p, pair] of order.entries())
      pair.dims.forEach((d, e) => {
        emit(`  var o${g}_${d} = a${g}_${p}.${'xy'[e]};`);
      });
  return lines;
}

/** A pair is two positions of one dim: both of it go to the same sum. */
function transposedSums(frame: DecodeFrame): string[] {
  const { group, vec, values, valueWalk } = frame;
  const vectors = group / vec;
  const use = (u: number, base: string): string[] => {
    const { text, pairs } = transposedPairs(`v${u}`, values.words, (i) => wordOf(`v${u}`, values.width, i));
    return [
      `    let c = ${values.positionOf(base)};`,
      ...TRANSPOSED_POSITIONS.flatMap((t) =>
        count(vectors).map((i) => `    let t${t}w${i} = cells[(c + ${t}u) * ${vectors}u + ${i}u];`),
      ),
      text,
      ...pairs.flatMap(({ value, dim, positions: [s, t] }, p) => [
        `    let e${p} = vec2<f32>(${value});`,
        ...count(group).map(
          (g) =>
            `    o${g}_${dim} = fma(t${s}${weightOf(vec, g)}, e${p}.x, fma(t${t}${weightOf(vec, g)}, e${p}.y, o${g}_${dim}));`,
        ),
      ]),
    ];
  };
  return [
    ...count(group).flatMap((g) => count(values.dims).map((d) => `  var o${g}_${d} = 0.0;`)),
    ...walkText(valueWalk, decodeSoftmax(frame), use),
  ];
}

/** The weight of a head in variables `w0` …, of so many heads each. */
const weightOf = (vec: 1 | 2 | 4, g: number): string =>
  vec === 1 ? `w${g}` : `w${Math.floor(g / vec)}.${'xyzw'[g % vec]}`;

/** Sum over the threads that walked other positions: in a subgroup by halving, as with the scores; then across. */
export function decodeEnd(frame: DecodeFrame): string[] {
  const { shape, group, valueGroups, lanes, threads, values, vec, scalar, partGroups } = frame;
  const { heads, headDim } = shape;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  let own = values.dims;
  emit(`  var dim_at = lid % ${values.lanes}u * ${values.dims}u;`);
  for (let step = values.lanes; step < lanes; step *= 2) {
    own /= 2;
    emit(`  { let upper = (lane & ${step}u) != 0u; dim_at += select(0u, ${own}u, upper);`);
    for (const g of count(group))
      for (const d of count(own)) {
        emit(`    let give${g}_${d} = select(o${g}_${d + own}, o${g}_${d}, upper);`);
        emit(
          `    o${g}_${d} = select(o${g}_${d}, o${g}_${d + own}, upper) + subgroupShuffleXor(give${g}_${d}, ${step}u);`,
        );
      }
    emit('  }');
  }
  emit('  workgroupBarrier();');
  const part = `lid / ${Math.max(values.lanes, lanes)}u`;
  if (own % vec === 0) {
    emit(`  let part_at = ${part} * ${(group * headDim) / vec}u + dim_at / ${vec}u;`);
    for (const g of count(group))
      for (let d = 0; d < own; d += vec) {
        const sums = count(vec).map((e) => `o${g}_${d + e}`);
        emit(
          `  cells[part_at + ${(g * headDim + d) / vec}u] = ${vec === 1 ? sums[0] : `vec${vec}<f32>(${sums.join(', ')})`};`,
        );
      }
  } else {
    emit(`  let part_at = ${part} * ${group * headDim}u + dim_at;`);
    for (const g of count(group))
      for (const d of count(own)) emit(`  ${scalar(`part_at + ${g * headDim + d}u`)} = o${g}_${d};`);
  }
  emit('  workgroupBarrier();');
  const vectors = headDim / vec;
  const unit = byteUnit(values.format, headDim, 'value');
  const total = count(partGroups)
    .map((s) => `cells[${s * group * vectors}u + i]`)
    .join(' + ');
  let text = `var value = ${unit === 1 ? total : `(${total}) * ${f32Literal(unit)}`};`;
  if (hasScales(values.format))
    text += `\n    value += offsets[i % ${vectors}u / ${vectors / valueGroups}u * ${group}u + i / ${vectors}u];`;
  text += `\n    ${partialNames(shape.rows).sums}[(${partialAt(shape)} * ${heads}u + kv * ${group}u) * ${vectors}u + i] = value;`;
  emit(eachOf('i', group * vectors, threads, text));
  return lines;
}
