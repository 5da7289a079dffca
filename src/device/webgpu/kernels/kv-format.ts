/** WGSL of stored K and V vectors, read four elements at a time. */

import type { KvFormat } from '../../kv.js';
import type { Params } from '../kernel.js';
import { FIELD_BITS } from './code-fields.js';
import {
  codesInRuns,
  type KvLayout,
  liesTurned,
  TURNED_TOKENS,
  tableOffsets,
  turnedShift,
} from './kv-layout.js';

/** One side, keys or values, of a layer, as a kernel sees it. */
export interface KvSideSpec<Name extends string = string> {
  /** The binding: keys or values, or young ones. */
  readonly name: Name;
  readonly format: KvFormat;
  readonly headDim: number;
  readonly layout: KvLayout;
  /** Its words are bound as atomic ones: several workgroups change bytes of a word. */
  readonly atomic?: boolean;
}

/** A side as kernels see it that store vectors. */
export function storedSide<Name extends string>(side: KvSideSpec<Name>): KvSideSpec<Name> {
  return liesTurned(side) ? { ...side, atomic: true } : side;
}

/** Store type of a side's buffer. */
export function sideType({ format, atomic = false }: KvSideSpec): string {
  return atomic ? 'array<atomic<u32>>' : cacheType(format);
}

/** Expressions of the numbers that a side's texts need; layers differ in them and share the text. */
export interface KvSideNumbers {
  readonly kvHeads: string;
  readonly blockTokens: string;
  readonly metaAt: string;
  readonly tablesAt: string;
}

export function sideNumbers(
  p: Params,
  side: KvSideSpec,
  shared: { readonly kvHeads: string; readonly blockTokens: string },
): KvSideNumbers {
  const float = side.format.kind === 'float';
  return {
    ...shared,
    metaAt: float ? '0u' : p.u32(side.layout.metaAt),
    tablesAt: side.format.kind === 'turboquant' ? p.u32(side.layout.tablesAt) : '0u',
  };
}

/** Store type of a side's buffer, and of an element of it. */
export function cacheType(format: KvFormat): string {
  return `array<${cacheElement(format)}>`;
}

export function cacheElement(format: KvFormat): string {
  if (format.kind !== 'float') return 'u32';
  return format.dtype === 'f32' ? 'vec4<f32>' : 'vec2<u32>';
}

/** Expression: word i of a side's tables, as f32. */
export function tableWord(side: KvSideSpec, numbers: KvSideNumbers, i: string): string {
  const word = `${side.name}[${numbers.tablesAt} + ${i}]`;
  return `bitcast<f32>(${side.atomic === true ? `atomicLoad(&${word})` : word})`;
}

/** Expression: word of the meta plane of a (block, KV head, token, group). */
export function metaWord(
  side: KvSideSpec,
  n: KvSideNumbers,
  block: string,
  kv: string,
  token: string,
  group = '0u',
): string {
  if (side.format.kind === 'affine')
    return `${n.metaAt} + ((${block} * ${n.kvHeads} + ${kv}) * ${n.blockTokens} + ${token}) * ${side.layout.groups}u + ${group}`;
  return `${n.metaAt} + (${block} * ((${n.kvHeads} + 1u) / 2u) + (${kv}) / 2u) * ${n.blockTokens} + ${token}`;
}

export interface ReaderText {
  readonly declarations: string;
  /** Statements at the start of a kernel, before a barrier; `threads` threads, `lid`. */
  readonly prepare: (threads: number) => string;
  /** Expression: elements `4 vec … 4 vec + 3` of a stored vector as vec4<f32>; TurboQuant's still rotated. */
  readonly four: (block: string, kv: string, token: string, vec: string) => string;
}

export function readerText(side: KvSideSpec, n: KvSideNumbers): ReaderText {
  const { name, format, headDim, layout } = side;
  const call = (block: string, kv: string, token: string, vec: string): string =>
    `${name}_four(${block}, ${kv}, ${token}, ${vec})`;
  const head = `fn ${name}_four(block: u32, kv: u32, token: u32, vec: u32) -> vec4<f32> {
  let vector = (block * ${n.kvHeads} + kv) * ${n.blockTokens} + token;`;
  if (format.kind === 'float') {
    const at = `vector * ${headDim / 4}u + vec`;
    const value = format.dtype === 'f32' ? `${name}[${at}]` : `unpack_four(${name}[${at}])`;
    return { declarations: `${head}\n  return ${value};\n}`, prepare: () => '', four: call };
  }
  const start = `${head}
  let first = vector * ${layout.words}u;
  var codes: vec4<u32>;
  ${codesText(side)}`;
  if (format.kind === 'affine') {
    const vectors = format.groupSize / 4;
    return {
      declarations: `${start}
  let affine = unpack2x16float(${name}[${metaWord(side, n, 'block', 'kv', 'token', `vec / ${vectors}u`)}]);
  return fma(vec4<f32>(codes), vec4<f32>(affine.x), vec4<f32>(affine.y));
}`,
      prepare: () => '',
      four: call,
    };
  }
  const entries = 2 ** format.bits;
  const { centroids } = tableOffsets(format.bits, headDim);
  return {
    declarations: `var<workgroup> ${name}_book: array<f32, ${entries}>;
${start}
  let norm = unpack2x16float(${name}[${metaWord(side, n, 'block', 'kv', 'token')}])[kv & 1u];
  return norm * vec4<f32>(${['x', 'y', 'z', 'w'].map((e) => `${name}_book[codes.${e}]`).join(', ')});
}`,
    prepare: (threads) => `for (var i = lid; i < ${entries}u; i += ${threads}u) {
    ${name}_book[i] = ${tableWord(side, n, `${centroids}u + i`)};
  }`,
    four: call,
  };
}

/** Statements that fill `codes` with codes `4 vec …` of the vector whose words begin at `first`. */
function codesText(side: KvSideSpec): string {
  const { name, format, headDim } = side;
  if (format.kind === 'float') return '';
  if (liesTurned(side))
    return `let own = vector % ${TURNED_TOKENS}u;
  let at = (vector - own) * ${side.layout.words}u + own % 4u * ${headDim / 2}u + vec * 2u;
  let pairs = vec2<u32>(${name}[at], ${name}[at + 1u]) >> vec2<u32>(${turnedShift('own')});
  codes = (pairs.xxyy >> vec4<u32>(0u, 4u, 0u, 4u)) & vec4<u32>(15u);`;
  if (codesInRuns(format)) {
    const { bits } = format;
    if (bits === FIELD_BITS)
      return `let run = first + vec / 8u * 3u;
  let own = vec % 8u;
  let at = vec4<u32>(0u, 8u, 16u, 24u) + own % 2u * 4u;
  if (own < 6u) { codes = (vec4<u32>(${name}[run + own / 2u]) >> at) & vec4<u32>(7u); } else {
    codes = (vec4<u32>(${name}[run]) >> (at + 3u)) & vec4<u32>(1u);
    codes |= ((vec4<u32>(${name}[run + 1u]) >> (at + 3u)) & vec4<u32>(1u)) << vec4<u32>(1u);
    codes |= ((vec4<u32>(${name}[run + 2u]) >> (at + 3u)) & vec4<u32>(1u)) << vec4<u32>(2u);
  }`;
    const whole = headDim % 32 === 0;
    const lines = [
      ...(whole ? [] : [`let length = min(8u, ${headDim / 4}u - vec / 8u * 8u);`]),
      `let run = first + vec / 8u * ${bits}u;`,
      'codes = vec4<u32>();',
    ];
    for (let b = 0; b < bits; b++)
      lines.push(
        whole
          ? `codes |= ((vec4<u32>(${name}[run + ${b}u] >> (vec % 8u)) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(1u)) << vec4<u32>(${b}u);`
          : `for (var e = 0u; e < 4u; e++) { let at = (${4 * b}u + e) * length + vec % 8u; codes[e] |= ((${name}[run + at / 32u] >> (at % 32u)) & 1u) << ${b}u; }`,
      );
    return lines.join('\n  ');
  }
  const shifts = (bits: number): string => `vec4<u32>(0u, ${bits}u, ${2 * bits}u, ${3 * bits}u)`;
  switch (format.bits) {
    case 8:
      return `codes = (vec4<u32>(${name}[first + vec]) >> ${shifts(8)}) & vec4<u32>(255u);`;
    case 4:
      return `codes = (vec4<u32>(${name}[first + vec / 2u] >> ((vec & 1u) * 16u)) >> ${shifts(4)}) & vec4<u32>(15u);`;
    case 2:
      return `codes = (vec4<u32>(${name}[first + vec / 4u] >> ((vec & 3u) * 8u)) >> ${shifts(2)}) & vec4<u32>(3u);`;
    case 3:
      return `let base = first + vec / 8u * 3u;
  let pair = (vec & 7u) * 2u;
  let low = ${name}[base + pair / 5u] >> (pair % 5u * 6u);
  var high = 0u;
  if (pair == 14u) { high = (${name}[base] >> 30u) | ((${name}[base + 1u] >> 30u) << 2u) | ((${name}[base + 2u] >> 30u) << 4u); }
  else { high = ${name}[base + (pair + 1u) / 5u] >> ((pair + 1u) % 5u * 6u); }
  codes = vec4<u32>(low, low >> 3u, high, high >> 3u) & vec4<u32>(7u);`;
    default: {
      const bits = format.bits;
      return `let bit = vec * ${4 * bits}u;
  let shift = bit & 31u;
  var word = ${name}[first + bit / 32u] >> shift;
  if (shift > ${32 - 4 * bits}u) { word |= ${name}[first + bit / 32u + 1u] << (32u - shift); }
  codes = (vec4<u32>(word) >> ${shifts(bits)}) & vec4<u32>(${2 ** bits - 1}u);`;
    }
  }
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
