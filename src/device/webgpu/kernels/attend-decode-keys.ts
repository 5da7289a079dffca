/** Attention of single-token rows, first pass: the scores of a split. */

import { f32Literal } from '../kernel.js';
import type { DecodeFrame } from './attend-decode-frame.js';
import { type HeadShares, leftAfter } from './attend-decode-queries.js';
import { byteCentre, bytesText, hasBytes } from './attend-planes.js';
import { bookEntries, centreOf } from './attend-unpack.js';
import { count, LOWEST, wordOf } from './attend-words.js';

/** From what `decodeQueries` left to `cells`, as far as the walk goes: positions below `walked`. */
export function decodeScores(frame: DecodeFrame, shares: HeadShares): string[] {
  const { shape, group, dot, split, keys, unroll, ahead, copies, low, seenAt, cell } = frame;
  const { headDim, softcap } = shape;
  const { format, dims, layout, width, loads, lanes, atOnce } = keys;
  const { padded, inner, outer, each, idle } = shares;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const load = (prefix: string, base: string): void => {
    for (const u of count(unroll)) {
      emit(`  { let c = ${seenAt(`${base} + ${u * atOnce}u + lid / ${lanes}u`)}; let row = ${keys.row};`);
      emit(`    let a = row * ${layout.words / width}u + kl${keys.quantised ? ` * ${loads}u` : ''};`);
      for (const i of count(loads))
        emit(`    ${prefix}${u}_${i} = keys[a + ${keys.quantised ? i : i * lanes}u];`);
      if (format.kind === 'affine') {
        const at = `${layout.metaAt}u + row * ${layout.groups}u + kl / ${format.groupSize / dims}u`;
        emit(`    let at = ${at}; ${prefix}m${u} = ${keys.word('at')};`);
      } else if (format.kind === 'turboquant') {
        emit(`    let at = ${keys.normAt}; ${prefix}m${u} = ${keys.word('at')};`);
      }
      emit('  }');
    }
  };
  const declare = (prefix: string): void => {
    for (const u of count(unroll)) {
      for (const i of count(loads)) emit(`  var ${prefix}${u}_${i}: ${keys.type};`);
      if (keys.quantised) emit(`  var ${prefix}m${u}: u32;`);
    }
  };
  const copy = (to: string, from: string): void => {
    for (const u of count(unroll)) {
      for (const i of count(loads)) emit(`  ${to}${u}_${i} = ${from}${u}_${i};`);
      if (keys.quantised) emit(`  ${to}m${u} = ${from}m${u};`);
    }
  };

  if (bookEntries(format) > 0) emit('  {');
  declare('k');
  if (ahead) {
    declare('nextk');
    load('k', '0u');
  }
  if (bookEntries(format) > 0) emit(`  let copy = lane % ${copies}u;`);
  const stride = atOnce * unroll;
  emit(`  for (var base = 0u; base < ${split}u; base += ${stride}u) {`);
  emit(`    if (base > reach) { break; }`);
  if (ahead) load('nextk', `base + ${stride}u`);
  else load('k', 'base');
  for (const u of count(unroll)) {
    emit('  {');
    emit(`    let c = base + ${u * atOnce}u + lid / ${lanes}u;`);
    if (dot && hasBytes(format)) {
      for (const g of count(padded)) emit(`    var s${g} = 0;${g < group ? ` var l${g} = 0;` : ''}`);
      const made = bytesText(format, headDim, dims, 'e', (i) => wordOf(`k${u}`, width, i));
      emit(made.text);
      made.words.forEach(({ name }, b) => {
        for (const g of count(group))
          emit(
            `    s${g} += dot4I8Packed(${name}, qh${g}_${b}); l${g} += dot4I8Packed(${name}, ql${g}_${b});`,
          );
      });
      for (const g of count(group)) emit(`    s${g} = s${g} * 256 + l${g};`);
    } else {
      for (const g of count(padded)) emit(`    var s${g} = 0.0;`);
      for (const g of count(group)) emit(`    var t${g} = vec2<f32>();`);
      const made = keys.pairs(`k${u}`);
      emit(made.text);
      made.pairs.forEach(({ value }, p) => {
        emit(`    let e${p} = vec2<f32>(${value});`);
        for (const g of count(group)) emit(`    t${g} = fma(e${p}, q${g}_${p}, t${g});`);
      });
      for (const g of count(group)) emit(`    s${g} = t${g}.x + t${g}.y;`);
    }
    if (dot && format.kind === 'turboquant')
      for (const g of count(padded)) emit(`    var x${g} = f32(s${g});`);
    const summed = dot && format.kind === 'turboquant' ? 'x' : 's';
    lines.push(...shares.halve(summed, inner, padded));
    const live = leftAfter(padded, inner);
    const name = format.kind === 'affine' ? 'x' : summed;
    if (format.kind === 'affine') {
      emit(`    let affine = unpack2x16float(km${u});`);
      emit(
        `    let bias = fma(affine.x, ${f32Literal(dot ? byteCentre(format) : centreOf(format))}, affine.y);`,
      );
      for (const g of count(live)) emit(`    var x${g} = fma(f32(s${g}), affine.x, bias * full${g});`);
    }
    lines.push(...shares.halve(name, outer, live));
    if (format.kind === 'turboquant')
      emit(`    let pair = unpack2x16float(km${u}); let norm = select(pair.x, pair.y, (kv & 1u) == 1u);`);
    const seen = `first + c <= last${low === null ? '' : ' && first + c >= low'}`;
    for (const e of count(each)) {
      emit(`    var mine${e} = ${name}${e} * end${e}${format.kind === 'turboquant' ? ' * norm' : ''};`);
      if (softcap !== null)
        emit(
          `    { let e = exp(clamp(2.0 * mine${e} / ${f32Literal(softcap)}, -80.0, 80.0)); mine${e} = ${f32Literal(softcap)} * (1.0 - 2.0 / (e + 1.0)); }`,
        );
      const writes = [
        ...(idle > 0 ? [`(kl & ${idle}u) == 0u`] : []),
        ...(padded === group ? [] : [`head${e} < ${group}u`]),
      ];
      const store = `${cell('c', `head${e}`)} = select(${LOWEST}, mine${e}, ${seen});`;
      emit(`    ${writes.length === 0 ? store : `if (${writes.join(' && ')}) { ${store} }`}`);
    }
    emit('  }');
  }
  if (ahead) copy('k', 'nextk');
  emit('  }');
  if (bookEntries(format) > 0) emit('  }');
  // What the loop left out when the context ended early.
  emit(`  let walked = (reach / ${stride}u + 1u) * ${stride}u;`);
  return lines;
}
