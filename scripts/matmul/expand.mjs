// A block unpacked for many rows.
import { advance, field, planePointers, unpack, vectors } from './codes.mjs';
import { chunked, title } from './formats.mjs';
import { head, headNames, metas, scalesAndBiases } from './metas.mjs';
import { declare, emit, range } from './text.mjs';

/** One block unpacked to a panel. */
export function expand(format) {
  const { bits, name, table } = format;
  const twice = format.group === 16;
  emit(
    0,
    `/** ${title(format)} codes of a block to a panel. */`,
    `export function expand${name}(w0: usize, to: usize, cols: u32, group: u32, dtype: u32): void {`,
  );
  declare(1, ['c00', 'c01', 'd00', 'd01', ...headNames(format, 1), ...vectors(bits, 0)]);
  if (table !== undefined) {
    declare(1, ['lo', 'hi']);
    emit(1, `const all = v128.load(${table});`);
    if (table === 'IQ4') emit(1, 'const high = v128.load(IQ4High);', 'const low = v128.load(IQ4Low);');
  }
  const storeMetas = (depth) => {
    for (const [i, n] of ['c00', 'c01', 'd00', 'd01'].entries())
      emit(depth, `v128.store(to, ${n}, ${16 * i});`);
    emit(depth, 'to += 64;');
  };
  emit(1, `for (let g: u32 = 0; g < cols; g += ${chunked(format) ? 32 : 'group'}) {`);
  head(2, format, 1, 'w');
  emit(2, chunked(format) ? '{' : 'for (let i: u32 = 0; i < group; i += 32) {');
  planePointers(3, bits, 1);
  if (twice) emit(3, `let t0 = w0 + ${bits * 32};`);
  emit(3, 'for (let half = 0; half < 2; half++) {');
  for (const s of range(4)) {
    const [lo, hi] = unpack(4, bits, s, 0);
    if (table !== undefined) {
      emit(4, `lo = ${lo};`, `hi = ${hi};`);
      const codes = (name) => `lookUp(${name}, lo), lookUp(${name}, hi)`;
      emit(4, 'if (RELAXED) {');
      if (table === 'IQ4') {
        emit(
          5,
          `store8(to + ${32 * s}, ${codes('high')});`,
          `store8(to + group * 8 + ${32 * s}, ${codes('low')});`,
        );
      } else emit(5, `store8(to + ${32 * s}, ${codes('all')});`);
      emit(4, '} else {');
      emit(5, `store16(to + ${64 * s}, lookUp(all, lo));`, `store16(to + ${64 * s + 32}, lookUp(all, hi));`);
      emit(4, '}');
    } else if (bits === 8) {
      const high = `v128.load(q0p4 - 128, ${16 * s})`;
      emit(4, 'if (RELAXED) {');
      emit(5, `store8(to + group * 8 + ${32 * s}, ${lo}, ${hi});`);
      emit(5, `store8(to + ${32 * s}, ${field(high, 0, 0, 4)}, ${field(high, 4, 0, 4)});`);
      emit(4, '} else {');
      emit(
        5,
        `store16(to + ${64 * s}, v128.or(${lo}, v128.and(i32x4.shl(${high}, 4), i32x4.splat(0xf0f0f0f0))));`,
      );
      emit(5, `store16(to + ${64 * s + 32}, v128.or(${hi}, v128.and(${high}, i32x4.splat(0xf0f0f0f0))));`);
      emit(4, '}');
    } else {
      emit(4, `if (RELAXED) store8(to + ${32 * s}, ${lo}, ${hi});`);
      emit(4, `else { store16(to + ${64 * s}, ${lo}); store16(to + ${64 * s + 32}, ${hi}); }`);
    }
  }
  emit(4, 'to += RELAXED ? 128 : 256;');
  advance(4, bits, [0]);
  if (twice) {
    metas(4, format, 1, 't');
    storeMetas(4);
  }
  emit(3, '}');
  emit(3, `w0 += ${bits * 32 + (twice ? format.metaBytes : 0)};`);
  emit(2, '}');
  if (bits === 8 || table === 'IQ4') emit(2, 'if (RELAXED) to += group * 8;');
  if (!twice) {
    if (chunked(format)) metas(2, format, 1, 'w');
    else scalesAndBiases(2, 1, 'w');
    storeMetas(2);
  }
  emit(1, '}');
  emit(0, '}', '');
}
