import { SIDE_BITS, SIDE_CENTRE, SIDE_GROUP, SIDE_META } from '../kv-layout';
import { halfValue, toHalves } from './kv';
import { fromHalf, highHalf, lowHalf, storeBytes } from './kv-words';
import { madd, maxLanes } from './math';

/** Affine codes (../../kv-formats/affine.ts): see `codeVector` and `readMeta` of kv-formats.ts. */
// @ts-ignore: decorator
@inline export function codeAffine(
  side: usize, isKey: bool, x: usize, block: u32, head: u32, kvHeads: u32, token: u32, dim: u32, blockTokens: u32,
  position: u32, codes: usize, spare: usize,
): void {
  const bits = load<u32>(side, SIDE_BITS);
  const group = load<u32>(side, SIDE_GROUP);
  const groups = (dim + group - 1) / group;
  let to: usize = load<u32>(side, SIDE_META) + ((block * kvHeads + head) * groups * blockTokens + token) * 4;
  for (let d: u32 = 0; d < dim; d += group, to += blockTokens * 4) {
    store<u32>(to, codeGroup(bits, x + d * 4, min<u32>(group, dim - d), codes + d));
  }
}

// @ts-ignore: decorator
@inline export function metaAffine(
  side: usize, block: u32, h: u32, kvHeads: u32, g: u32, groups: u32, all: u32, token: u32, count: u32, blockShift: u32,
  scales: usize, biases: usize, step: usize,
): void {
  let at: usize = load<u32>(side, SIDE_META) + (((((block * kvHeads + h) * all + g) << blockShift) + token) << 2);
  const centre = f32x4.splat(<f32>load<u32>(side, SIDE_CENTRE));
  for (; groups != 0; groups--, at += <usize>4 << blockShift, scales += step, biases += step) {
    for (let i: usize = 0; i < count * 4; i += 16) {
      const both = v128.load(at + i);
      const scale = fromHalf(lowHalf(both));
      const bias = fromHalf(highHalf(both));
      v128.store(scales + i, scale);
      v128.store(biases + i, madd(scale, centre, v128.or(bias, v128.and(both, i32x4.splat(0x80000000)))));
    }
  }
}

/** Codes of a group, a byte each; gives scale and bias. */
export function codeGroup(bits: u32, x: usize, count: u32, codes: usize): u32 {
  let low = v128.load(x);
  let high = low;
  for (let i: u32 = 4; i < count; i += 4) {
    const v = v128.load(x + i * 4);
    low = f32x4.min(low, v);
    high = f32x4.max(high, v);
  }
  const least = -maxLanes(f32x4.neg(low));
  const most: f32 = <f32>((1 << bits) - 1);
  const halves = toHalves(f32x4(least, (maxLanes(high) - least) / most, 0, 0));
  const biasBits = i32x4.extract_lane(halves, 0);
  const scaleBits = i32x4.extract_lane(halves, 1);
  const bias = f32x4.splat(halfValue(biasBits));
  const scale = halfValue(scaleBits);
  if (scale == 0) {
    memory.fill(codes, 0, count);
  } else {
    const by = f32x4.splat(scale);
    for (let i: u32 = 0; i < count; i += 4) {
      const steps = f32x4.nearest(f32x4.div(f32x4.sub(v128.load(x + i * 4), bias), by));
      const code = f32x4.max(f32x4.min(steps, f32x4.splat(most)), f32x4.splat(0));
      storeBytes(codes + i, i32x4.trunc_sat_f32x4_s(code));
    }
  }
  return scaleBits | biasBits << 16;
}
