/** Attention of single-token rows, second pass: the softmax of a split, and its weighted values. */

import { f32Literal } from '../kernel.js';
import type { DecodeFrame } from './attend-decode-frame.js';
import { byteUnit, halvedDim } from './attend-planes.js';
import { bookEntries, centreOf } from './attend-unpack.js';
import { count, isUnseen, LOWEST } from './attend-words.js';

/** Scales and biases of the values, for the softmax; they are on their way while the keys multiply. */
export function decodeValueMeta({ values, valueGroups, split, threads, seenAt }: DecodeFrame): string {
  if (values.format.kind !== 'affine') return '';
  return `  for (var i = lid; i < ${split * valueGroups}u; i += ${threads}u) {
    let c = ${seenAt(`i / ${valueGroups}u`)};
    let at = ${values.layout.metaAt}u + (${values.row}) * ${valueGroups}u + i % ${valueGroups}u;
    value_meta[i] = ${values.word('at')};
  }`;
}

/** Statements that declare `PREFIX0_0` …, load a turn of the values into them, or take them over. */
function turnOf({ values, valueUnroll, seenAt }: DecodeFrame): {
  readonly declare: (prefix: string) => string[];
  readonly load: (prefix: string, base: string) => string[];
  readonly copy: (to: string, from: string) => string[];
} {
  const { atOnce, lanes, halved, layout, width, loads, type } = values;
  const each = (text: (name: string) => string): string[] =>
    count(valueUnroll).flatMap((u) => count(loads).map((i) => text(`${u}_${i}`)));
  return {
    declare: (prefix) => each((name) => `  var ${prefix}${name}: ${type};`),
    load: (prefix, base) =>
      count(valueUnroll).flatMap((u) => [
        `  { let c = ${seenAt(`${base} + ${u * atOnce}u + lid / ${lanes}u`)}; let a = (${values.row}) * ${layout.words / width}u + lid % ${lanes}u${halved ? ' / 2u' : ''} * ${loads}u;`,
        ...count(loads).map((i) => `    ${prefix}${u}_${i} = values[a + ${i}u];`),
        '  }',
      ]),
    copy: (to, from) => each((name) => `  ${to}${name} = ${from}${name};`),
  };
}

/**
 * Weights in the place of the scores, with scale or norm where a vector has one; `offsets`, the sums of biases; the
 * greatest score and the sum of the weights to `scratchTops`. The first values are on their way meanwhile.
 */
export function decodeSoftmax(frame: DecodeFrame): string[] {
  const { shape, group, valueGroups, split, lanes, subs, values, cell, seenAt } = frame;
  const { format } = values;
  const turn = turnOf(frame);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  lines.push(...turn.declare('v'), ...turn.load('v', '0u'));
  const columns = split / lanes;
  if (format.kind === 'turboquant') {
    for (const i of count(columns)) {
      emit(
        `  var norm${i}: u32; { let c = ${seenAt(`lane + ${i * lanes}u`)}; let at = ${values.normAt}; norm${i} = ${values.word('at')}; }`,
      );
    }
  }
  emit('  workgroupBarrier();');

  // Every subgroup takes the softmax of its heads; one beyond the last repeats that one and writes nothing.
  for (let g0 = 0; g0 < group; g0 += subs) {
    emit(`  {\n    let mine = sub + ${g0}u < ${group}u;\n    let g = min(sub + ${g0}u, ${group - 1}u);`);
    for (const c of count(columns))
      emit(
        `    let c${c} = lane + ${c * lanes}u; var s${c} = ${LOWEST}; if (c${c} < walked) { s${c} = ${cell(`c${c}`, 'g')}; }`,
      );
    emit('    var most = s0;');
    for (const c of count(columns).slice(1)) emit(`    most = max(most, s${c});`);
    emit('    let top = subgroupMax(most);');
    emit('    var sum = 0.0;');
    for (const c of count(columns))
      emit(`    s${c} = select(exp(s${c} - top), 0.0, ${isUnseen(`s${c}`)}); sum += s${c};`);
    const scaled = format.kind === 'affine' && valueGroups === 1;
    for (const c of count(columns)) {
      if (format.kind === 'turboquant') {
        emit(
          `    let n${c} = unpack2x16float(norm${c}); let w${c} = s${c} * select(n${c}.x, n${c}.y, (kv & 1u) == 1u);`,
        );
      } else emit(`    let w${c} = s${c}${scaled ? ` * unpack2x16float(value_meta[c${c}]).x` : ''};`);
      emit(`    if (mine) { ${cell(`c${c}`, 'g')} = w${c}; }`);
    }
    if (format.kind === 'affine') {
      // Biases, and what centring took off the codes.
      for (const vg of count(valueGroups)) {
        const biases = count(columns).map(
          (c) =>
            `s${c} * dot(unpack2x16float(value_meta[c${c} * ${valueGroups}u + ${vg}u]), vec2<f32>(${f32Literal(centreOf(format))}, 1.0f))`,
        );
        emit(`    let bias${vg} = subgroupAdd(${biases.join(' + ')});`);
        emit(`    if (mine && lane == 0u) { offsets[${vg}u * ${group}u + g] = bias${vg}; }`);
      }
    }
    emit('    sum = subgroupAdd(sum);');
    emit(
      `    if (mine && lane == 0u) { scratchTops[item_at * ${shape.heads}u + kv * ${group}u + g] = vec2<f32>(top, sum); }`,
    );
    emit('  }');
  }
  emit('  workgroupBarrier();');
  return lines;
}

/** Weighted values, from `cells` and the values that are on their way to sums of each thread, `oG_D` of head and dim. */
export function decodeSums(frame: DecodeFrame): string[] {
  const { shape, group, valueGroups, split, valueUnroll, ahead, copies, vec, values } = frame;
  const { format, dims, lanes, atOnce } = values;
  const turn = turnOf(frame);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  for (const g of count(group)) for (const p of count(dims / 2)) emit(`  var a${g}_${p} = vec2<f32>();`);
  if (ahead) lines.push(...turn.declare('nextv'));
  const apart = valueGroups > 1;
  if (apart) emit(`  let group_at = lid % ${lanes}u / ${shape.headDim / valueGroups / dims}u;`);
  if (bookEntries(format) > 0) emit(`  let copy = lane % ${copies}u;`);
  if (values.halved) emit('  let half = lid % 2u;');
  const stride = atOnce * valueUnroll;
  emit(`  for (var base = 0u; base < ${split}u; base += ${stride}u) {`);
  emit('    if (base > reach) { break; }');
  if (ahead) lines.push(...turn.load('nextv', `base + ${stride}u`));
  for (const u of count(valueUnroll)) {
    emit(`  {`);
    emit(`    let c = base + ${u * atOnce}u + lid / ${lanes}u;`);
    if (apart) emit(`    let scale = unpack2x16float(value_meta[c * ${valueGroups}u + group_at]).x;`);
    for (const i of count(group / vec))
      emit(`    let w${i} = cells[c * ${group / vec}u + ${i}u]${apart ? ' * scale' : ''};`);
    const weight = (g: number): string =>
      vec === 1 ? `w${g}` : `w${Math.floor(g / vec)}.${'xyzw'[g % vec]}`;
    const made = values.pairs(`v${u}`);
    emit(made.text);
    made.pairs.forEach(({ value }, p) => {
      emit(`    let e${p} = vec2<f32>(${value});`);
      for (const g of count(group)) emit(`    a${g}_${p} = fma(vec2<f32>(${weight(g)}), e${p}, a${g}_${p});`);
    });
    emit('  }');
  }
  if (ahead) lines.push(...turn.copy('v', 'nextv'));
  else lines.push(...turn.load('v', `base + ${stride}u`));
  emit('  }');
  const order = values.pairs('v').pairs;
  for (const g of count(group))
    for (const [p, pair] of order.entries())
      pair.dims.forEach((d, e) => {
        emit(`  var o${g}_${d} = a${g}_${p}.${'xy'[e]};`);
      });
  return lines;
}

/** Sum over the threads that walked other positions: in a subgroup by halving, as with the scores; then across. */
export function decodeEnd(frame: DecodeFrame): string[] {
  const { shape, group, valueGroups, lanes, threads, values, scalar, partGroups } = frame;
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
  emit(`  let part_at = lid / ${Math.max(values.lanes, lanes)}u * ${group * headDim}u + dim_at;`);
  for (const g of count(group))
    for (const d of count(own)) emit(`  ${scalar(`part_at + ${g * headDim + d}u`)} = o${g}_${d};`);
  emit('  workgroupBarrier();');
  emit(`  for (var i = lid; i < ${group * headDim}u; i += ${threads}u) {`);
  const unit = byteUnit(values.format, headDim);
  const total = count(partGroups)
    .map((s) => scalar(`${s * group * headDim}u + i`))
    .join(' + ');
  emit(`    var value = ${unit === 1 ? total : `(${total}) * ${f32Literal(unit)}`};`);
  if (values.format.kind === 'affine') {
    emit(`    value += offsets[i % ${headDim}u / ${headDim / valueGroups}u * ${group}u + i / ${headDim}u];`);
  }
  const to = values.halved ? halvedDim('i') : 'i';
  emit(`    scratchSums[(item_at * ${heads}u + kv * ${group}u) * ${headDim}u + ${to}] = value;`);
  emit('  }');
  return lines;
}
