/** WGSL of stored K and V vectors: four elements at a time, counted over a whole buffer of them. */

import { type KvFormat, requireFloat } from '../../kv.js';

/** Store type of a cache buffer. */
export function cacheType(format: KvFormat): string {
  return requireFloat(format, 'WebGPU').dtype === 'f32' ? 'array<vec4<f32>>' : 'array<vec2<u32>>';
}

/** Expression: four elements of `buffer` at `at`, as vec4<f32>. */
export function loadFour(format: KvFormat, buffer: string, at: string): string {
  if (requireFloat(format, 'WebGPU').dtype === 'f32') return `${buffer}[${at}]`;
  return `unpack_four(${buffer}[${at}])`;
}

/** Expression to assign to four elements. */
export function packFour(format: KvFormat, value: string): string {
  return requireFloat(format, 'WebGPU').dtype === 'f32' ? value : `pack_four(${value})`;
}

/**
 * Rounding is to nearest even by integer arithmetic, for `pack2x16float` may round either way; what an f16 cannot
 * hold becomes its largest number; NaN stays.
 */
export const KV_WGSL = `
fn unpack_four(w: vec2<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y)); }
fn to_half(v: vec4<f32>) -> vec4<u32> {
  let bits = bitcast<vec4<u32>>(v);
  let sign = (bits >> vec4<u32>(16u)) & vec4<u32>(0x8000u);
  let a = bits & vec4<u32>(0x7fffffffu);
  let odd = (a >> vec4<u32>(13u)) & vec4<u32>(1u);
  let normal = (a + vec4<u32>(0xfffu) + odd - vec4<u32>(0x38000000u)) >> vec4<u32>(13u);
  let tiny = bitcast<vec4<u32>>(abs(v) + vec4<f32>(0.5)) - vec4<u32>(0x3f000000u);
  var h = select(tiny, normal, a >= vec4<u32>(0x38800000u));
  h = select(h, vec4<u32>(0x7bffu), a >= vec4<u32>(0x477ff000u));
  h = select(h, vec4<u32>(0x7e00u), a > vec4<u32>(0x7f800000u));
  return h | sign;
}
fn pack_four(v: vec4<f32>) -> vec2<u32> {
  let h = to_half(v);
  return vec2<u32>(h.x | (h.y << 16u), h.z | (h.w << 16u));
}
`;
