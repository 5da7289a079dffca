// What makes numbers of codes: scales and biases of a group, from behind its codes and before a superblock.
import { centreOf } from './formats.mjs';
import { emit, range } from './text.mjs';

export function scalesAndBiases(depth, b, pointer) {
  emit(depth, 'if (dtype == 0) {');
  for (const k of range(b)) {
    const at = `${pointer}${k}`;
    emit(
      depth + 1,
      `c${k}0 = v128.load(${at}); c${k}1 = v128.load(${at}, 16); d${k}0 = v128.load(${at}, 32); d${k}1 = v128.load(${at}, 48);`,
      `${at} += 64;`,
    );
  }
  emit(depth, '} else if (dtype == 2) {');
  for (const k of range(b)) {
    for (const h of range(2))
      emit(
        depth + 1,
        `d${k}${h} = v128.load(${pointer}${k}, ${16 * h});`,
        `c${k}${h} = v128.and(d${k}${h}, i32x4.splat(0xffff0000));`,
        `d${k}${h} = i32x4.shl(d${k}${h}, 16);`,
      );
    emit(depth + 1, `${pointer}${k} += 32;`);
  }
  emit(depth, '} else {');
  for (const k of range(b)) {
    for (const h of range(2))
      emit(
        depth + 1,
        `d${k}${h} = v128.load(${pointer}${k}, ${16 * h});`,
        `c${k}${h} = widenHalf(d${k}${h});`,
        `d${k}${h} = widenHalf(i32x4.shl(d${k}${h}, 16));`,
      );
    emit(depth + 1, `${pointer}${k} += 32;`);
  }
  emit(depth, '}');
}

/** Two vectors of halves in one. */
function twoHalves(depth, at, names) {
  emit(
    depth,
    `${names[1]} = v128.load(${at});`,
    `${names[0]} = widenHalf(${names[1]});`,
    `${names[1]} = widenHalf(i32x4.shl(${names[1]}, 16));`,
  );
}

/** What stands before the codes of a superblock. `g`: the first column of a chunk. */
export function head(depth, format, b, pointer) {
  if (format.head === undefined) return;
  emit(depth, 'if ((g & 255) == 0) {');
  for (const k of range(b)) {
    const at = `${pointer}${k}`;
    if (format.head === 'pairs') {
      for (const h of range(2))
        emit(
          depth + 1,
          `B${k}${h} = v128.load(${at}, ${16 * h});`,
          `S${k}${h} = widenHalf(B${k}${h});`,
          `B${k}${h} = f32x4.neg(widenHalf(i32x4.shl(B${k}${h}, 16)));`,
        );
    } else twoHalves(depth + 1, at, [`S${k}0`, `S${k}1`]);
    emit(depth + 1, `${at} += ${format.head === 'pairs' ? 32 : 16};`);
  }
  emit(depth, '}');
}

/** Scales and biases of a group to c and d, from what stands at a pointer, which is moved behind it. All products are exact. */
export function metas(depth, format, b, pointer, biases = true) {
  const integers = (half, from, sign) => `i32x4.extend_${half}_i16x8_${sign}(${from})`;
  for (const k of range(b)) {
    const at = `${pointer}${k}`;
    const { kind, minima } = format;
    if (kind === 'halves') twoHalves(depth, at, [`c${k}0`, `c${k}1`]);
    else {
      const unsigned = minima || kind === 'exponents';
      emit(depth, `c${k}1 = v128.load8x8_${unsigned ? 'u' : 's'}(${at});`);
    }
    if (kind === 'e4m3') {
      // As the high halves of floats: half of the numbers, for the table has numbers twice.
      emit(depth, `n = v128.and(c${k}1, v128.load(E4M3_SIGN));`);
      emit(
        depth,
        `e = i16x8.add(v128.and(i16x8.shl(c${k}1, 4), v128.load(E4M3_MAGNITUDE)), v128.load(E4M3_ONE));`,
      );
    }
    if (kind === 'exponents') {
      // 2^(e − 128), for the table has the numbers twice, as the high halves of floats: for 0 and 1, where alone the first is
      // the larger, no normal numbers.
      emit(
        depth,
        `e = i16x8.add(i16x8.shl(c${k}1, 5), v128.load(E8M0_LEAST));`,
        `e = i16x8.max_s(i16x8.sub(i16x8.shl(c${k}1, 7), v128.load(E8M0_ONE)), e);`,
      );
    }
    if (minima) {
      const second = format.group === 32 ? `v128.load8x8_u(${at}, 8)` : `i16x8.shr_u(c${k}1, 4)`;
      emit(depth, `d${k}1 = ${second};`);
      if (format.group === 16) emit(depth, `c${k}1 = v128.and(c${k}1, i16x8.splat(15));`);
    }
    for (const [h, half] of ['low', 'high'].entries()) {
      const c = `c${k}${h}`;
      if (kind === 'e4m3') {
        // Those of exponent 0 count from a one that is not there, and one too low: twice the number less the one is smaller for them alone.
        emit(depth, `${c} = ${zip(h, 'e')};`);
        emit(depth, `${c} = f32x4.pmin(${c}, f32x4.sub(f32x4.add(${c}, ${c}), v128.load(E4M3_LEAST)));`);
        emit(depth, `${c} = v128.or(${c}, ${zip(h, 'n')});`);
        if (biases) emit(depth, `d${k}${h} = f32x4.mul(${c}, f32x4.splat(${-format.centre}));`);
        continue;
      }
      if (kind === 'exponents') emit(depth, `${c} = ${zip(h, 'e')};`);
      else if (kind !== 'halves')
        emit(depth, `${c} = f32x4.mul(S${k}${h}, f32x4.convert_i32x4_s(${integers(half, `c${k}1`, 's')}));`);
      if (minima)
        emit(
          depth,
          `d${k}${h} = f32x4.mul(B${k}${h}, f32x4.convert_i32x4_s(${integers(half, `d${k}1`, 's')}));`,
        );
      else if (biases) emit(depth, `d${k}${h} = f32x4.mul(${c}, f32x4.splat(${-centreOf(format)}));`);
    }
    emit(depth, `${at} += ${format.group === 16 ? format.metaBytes / 2 : format.metaBytes};`);
  }
}

/** The low (0) or high (1) four of eight i16 as the high halves of 32 bits. */
function zip(half, vector) {
  const lanes = range(4).flatMap((i) => [4 * half + i, 8 + 4 * half + i]);
  return `v128.shuffle<i16>(i32x4.splat(0), ${vector}, ${lanes.join(', ')})`;
}

/** What a function declares for {@link head} and {@link metas}. */
export function headNames(format, b) {
  if (format.kind === 'exponents') return ['e'];
  if (format.kind === 'e4m3') return ['e', 'n'];
  if (format.head === undefined) return [];
  const names = format.head === 'pairs' ? ['S', 'B'] : ['S'];
  return range(b).flatMap((k) => range(2).flatMap((h) => names.map((name) => `${name}${k}${h}`)));
}
