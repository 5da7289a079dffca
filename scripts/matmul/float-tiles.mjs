// Products with activations that are floats.
import { advance, looked, planePointers, unpack, vectors } from './codes.mjs';
import { chunked, title } from './formats.mjs';
import { head, headNames, metas, scalesAndBiases } from './metas.mjs';
import { declare, each, emit, parameters, range, storeSums } from './text.mjs';

/** f32 activations, affine weights dequantised on the way. Sums of a group, then the sum of those. */
export function referenceTile(format, m, b) {
  const { bits, name, table } = format;
  const twice = format.group === 16;
  emit(
    0,
    `/** ${title(format)} codes dequantised, f32 activations, ${m} row${m > 1 ? 's' : ''}. */`,
    `export function ref${name}x${m}x${b}(w0: usize, ${parameters(m)}, cols: u32, group: u32, dtype: u32): void {`,
  );
  declare(1, each(m, b, 'f'));
  declare(1, ['c00', 'c01', 'd00', 'd01', 'lo', 'hi', 'wl', 'wh', 'x', ...headNames(format, 1)]);
  declare(1, vectors(bits, 0));
  if (bits === 8) declare(1, ['high']);
  if (table !== undefined) emit(1, `const table = v128.load(${table});`);
  const end = (depth) => {
    for (const n of each(m, b, '')) emit(depth, `f${n} = f32x4.add(f${n}, a${n});`);
  };
  emit(1, `for (let g: u32 = 0; g < cols; g += ${chunked(format) ? 32 : 'group'}) {`);
  head(2, format, b, 'w');
  emit(2, `let t0 = w0 + ${chunked(format) ? bits * 32 : `group * ${bits}`};`);
  if (!chunked(format)) scalesAndBiases(2, b, 't');
  else if (!twice) metas(2, format, b, 't');
  declare(2, each(m, b, 'a'));
  emit(2, chunked(format) ? '{' : 'for (let i: u32 = 0; i < group; i += 32) {');
  planePointers(3, bits, 1);
  emit(3, 'for (let half = 0; half < 2; half++) {');
  if (twice) {
    metas(4, format, b, 't');
    emit(4, ...each(m, b, 'a').map((a) => `${a} = i32x4.splat(0);`));
  }
  for (const s of range(4)) {
    let [lo, hi] = unpack(4, bits, s, 0);
    if (bits === 8) {
      emit(4, `high = v128.load(q0p4 - 128, ${16 * s});`);
      lo = `v128.or(${lo}, v128.and(i32x4.shl(high, 4), i32x4.splat(0xf0f0f0f0)))`;
      hi = `v128.or(${hi}, v128.and(high, i32x4.splat(0xf0f0f0f0)))`;
    }
    emit(4, `lo = ${looked(table, lo)};`, `hi = ${looked(table, hi)};`);
    for (const j of range(4)) {
      emit(4, `wl = weight(lo, ${j}, c00, d00);`, `wh = weight(hi, ${j}, c01, d01);`);
      for (const r of range(m)) {
        emit(4, `x = v128.load32_splat(x${r}, ${16 * s + 4 * j});`);
        emit(4, `a${r}00 = madd(wl, x, a${r}00);`, `a${r}01 = madd(wh, x, a${r}01);`);
      }
    }
  }
  advance(4, bits, [0]);
  for (const r of range(m)) emit(4, `x${r} += 64;`);
  if (twice) end(4);
  emit(3, '}');
  emit(3, `w0 += ${bits * 32};`);
  emit(2, '}');
  emit(2, 'w0 = t0;');
  if (!twice) end(2);
  emit(1, '}');
  storeSums(m, b);
  emit(0, '}', '');
}

/** Float weights: sums of 32 columns, then the sum of those. */
export function floatTile(dtype, m, b) {
  emit(
    0,
    `/** ${dtype} weights, ${m} row${m > 1 ? 's' : ''}, ${b} block${b > 1 ? 's' : ''}. */`,
    `export function ${dtype}x${m}x${b}(w0: usize, ${b > 1 ? 'stride: usize, ' : ''}${parameters(m)}, cols: u32): void {`,
  );
  if (b === 2) emit(1, 'let w1 = w0 + stride;');
  declare(1, each(m, b, 'f'));
  declare(1, ['x', ...range(b).flatMap((k) => [`l${k}`, `h${k}`])]);
  emit(1, 'for (let c: u32 = 0; c < cols; c += 32) {');
  declare(2, each(m, b, 'a'));
  emit(2, 'const end = x0 + min<u32>(32, cols - c) * 4;');
  emit(2, 'do {');
  const bytes = dtype === 'f32' ? 32 : 16;
  for (const k of range(b)) {
    emit(3, `l${k} = v128.load(w${k});`);
    if (dtype === 'f32') emit(3, `h${k} = v128.load(w${k}, 16);`);
    else if (dtype === 'bf16')
      emit(3, `h${k} = i32x4.shl(l${k}, 16);`, `l${k} = v128.and(l${k}, i32x4.splat(0xffff0000));`);
    else emit(3, `h${k} = widenHalf(i32x4.shl(l${k}, 16));`, `l${k} = widenHalf(l${k});`);
  }
  for (const r of range(m)) {
    emit(3, `x = v128.load32_splat(x${r});`);
    for (const k of range(b))
      emit(3, `a${r}${k}0 = madd(l${k}, x, a${r}${k}0);`, `a${r}${k}1 = madd(h${k}, x, a${r}${k}1);`);
  }
  for (const k of range(b)) emit(3, `w${k} += ${bytes};`);
  for (const r of range(m)) emit(3, `x${r} += 4;`);
  emit(2, '} while (x0 != end);');
  for (const n of each(m, b, '')) emit(2, `f${n} = f32x4.add(f${n}, a${n});`);
  emit(1, '}');
  storeSums(m, b);
  emit(0, '}', '');
}
