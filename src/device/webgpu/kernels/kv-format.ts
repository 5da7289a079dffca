/** WGSL of stored K and V vectors, read four elements at a time. */

import type { KvFormat } from '../../kv.js';
import type { Params } from '../kernel.js';
import { codecOf, isTransposed } from './kv-formats/list.js';
import type { KvSideNumbers, KvSideSpec } from './kv-formats/side.js';

/** A side as kernels see it that store vectors. */
export function storedSide<Name extends string>(side: KvSideSpec<Name>): KvSideSpec<Name> {
  return isTransposed(side) ? { ...side, atomic: true } : side;
}

/** Store type of a side's buffer. */
export function sideType({ format, atomic = false }: KvSideSpec): string {
  return atomic ? 'array<atomic<u32>>' : cacheType(format);
}

export function sideNumbers(
  p: Params,
  side: KvSideSpec,
  shared: { readonly kvHeads: string; readonly blockTokens: string },
): KvSideNumbers {
  const { groups, metaAt, tablesAt, bytes } = side.layout;
  return {
    ...shared,
    metaAt: groups === 0 ? '0u' : p.u32(metaAt),
    tablesAt: bytes === tablesAt * 4 ? '0u' : p.u32(tablesAt),
  };
}

/** Store type of a side's buffer, and of an element of it. */
export function cacheType(format: KvFormat): string {
  return `array<${cacheElement(format)}>`;
}

export function cacheElement(format: KvFormat): string {
  return codecOf(format).element(format);
}

export interface SideReader {
  readonly declarations: string;
  /** Statements at the start of a kernel, before a barrier; `threads` threads, `lid`. */
  readonly prepare: (threads: number) => string;
  /** Expression: elements `4 vec … 4 vec + 3` of a stored vector as vec4<f32>, still rotated if it is stored so. */
  readonly four: (block: string, kv: string, token: string, vec: string) => string;
}

export function readerText(side: KvSideSpec, n: KvSideNumbers): SideReader {
  return {
    ...codecOf(side.format).reader(side, n),
    four: (block, kv, token, vec) => `${side.name}_four(${block}, ${kv}, ${token}, ${vec})`,
  };
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
