/** Attention of single-token rows, first pass: the scores of a split. */

import type { DecodeFrame } from './attend-decode-frame.js';
import { type HeadShares, leftAfter } from './attend-decode-queries.js';
import { turnOf, walkText } from './attend-decode-walk.js';
import { byteCentre, bytesText, hasBytes, OPAQUE_MASKS } from './attend-planes.js';
import { bookEntries, centreOf } from './attend-unpack.js';
import { count, LOWEST, wordOf } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { hasNorm, hasScales } from './kv-formats/list.js';

/** From what `decodeQueries` left to `cells`, as far as the walk goes: positions below `walked`. */
export function decodeScores(frame: DecodeFrame, shares: HeadShares): string[] {
  const { keys, keyWalk, copies } = frame;
  const book = bookEntries(keys.format) > 0;
  const turn = turnOf(keyWalk);
  return [
    ...(book ? [`  {\n  let copy = lane % ${copies}u;`] : []),
    ...walkText(keyWalk, [], (u, base) => score(frame, shares, `k${u}`, base)),
    ...(book ? ['  }'] : []),
    // What the loop left out when the context ended early.
    `  let walked = (reach / ${turn}u + 1u) * ${turn}u;`,
  ];
}

/** The scores of piece NAME, whose positions begin at `base`. */
function score(frame: DecodeFrame, shares: HeadShares, piece: string, base: string): string[] {
  const { shape, group, dot, keys, low, cell } = frame;
  const { headDim, softcap } = shape;
  const { format, dims, width, lanes } = keys;
  const { padded, inner, outer, each, idle } = shares;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  emit(`    let c = ${base} + lid / ${lanes}u;`);
  if (dot && hasBytes(format)) {
    for (const g of count(padded)) emit(`    var s${g} = 0;${g < group ? ` var l${g} = 0;` : ''}`);
    const made = bytesText(
      format,
      headDim,
      dims,
      'e',
      (i) => wordOf(piece, width, i),
      '0u',
      OPAQUE_MASKS.mask,
    );
    emit(made.text);
    made.words.forEach(({ name }, b) => {
      for (const g of count(group))
        emit(`    s${g} += dot4I8Packed(${name}, qh${g}_${b}); l${g} += dot4I8Packed(${name}, ql${g}_${b});`);
    });
    for (const g of count(group)) emit(`    s${g} = s${g} * 256 + l${g};`);
  } else {
    for (const g of count(padded)) emit(`    var s${g} = 0.0;`);
    for (const g of count(group)) emit(`    var t${g} = vec2<f32>();`);
    const made = keys.pairs(piece);
    emit(made.text);
    made.pairs.forEach(({ value }, p) => {
      emit(`    let e${p} = vec2<f32>(${value});`);
      for (const g of count(group)) emit(`    t${g} = fma(e${p}, q${g}_${p}, t${g});`);
    });
    for (const g of count(group)) emit(`    s${g} = t${g}.x + t${g}.y;`);
  }
  if (dot && hasNorm(format)) for (const g of count(padded)) emit(`    var x${g} = f32(s${g});`);
  const summed = dot && hasNorm(format) ? 'x' : 's';
  lines.push(...shares.halve(summed, inner, padded));
  const live = leftAfter(padded, inner);
  const name = hasScales(format) ? 'x' : summed;
  if (hasScales(format)) {
    emit(`    let affine = unpack2x16float(${piece}m);`);
    emit(
      `    let bias = fma(affine.x, ${f32Literal(dot ? byteCentre(format) : centreOf(format))}, affine.y);`,
    );
    for (const g of count(live)) emit(`    var x${g} = fma(f32(s${g}), affine.x, bias * full${g});`);
  }
  lines.push(...shares.halve(name, outer, live));
  if (hasNorm(format))
    emit(`    let pair = unpack2x16float(${piece}m); let norm = select(pair.x, pair.y, (kv & 1u) == 1u);`);
  const seen = `first + c <= last${low === null ? '' : ' && first + c >= low'}`;
  for (const e of count(each)) {
    emit(`    var mine${e} = ${name}${e} * end${e}${hasNorm(format) ? ' * norm' : ''};`);
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
  return lines;
}
