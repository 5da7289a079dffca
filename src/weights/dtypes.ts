/**
 * The element types of a safetensors file, and conversion of the float ones to and from f32.
 */

import type { FloatDtype } from '../device/weights.js';

export const TENSOR_DTYPES = [
  'F64',
  'F32',
  'F16',
  'BF16',
  'I64',
  'I32',
  'I16',
  'I8',
  'U64',
  'U32',
  'U16',
  'U8',
  'BOOL',
] as const;
export type TensorDtype = (typeof TENSOR_DTYPES)[number];

const BYTES: Record<TensorDtype, number> = {
  F64: 8,
  F32: 4,
  F16: 2,
  BF16: 2,
  I64: 8,
  I32: 4,
  I16: 2,
  I8: 1,
  U64: 8,
  U32: 4,
  U16: 2,
  U8: 1,
  BOOL: 1,
};

export function isTensorDtype(name: string): name is TensorDtype {
  return Object.hasOwn(BYTES, name);
}

/** Bytes of one element. */
export function dtypeBytes(dtype: TensorDtype): number {
  return BYTES[dtype];
}

const FLOAT: Partial<Record<TensorDtype, FloatDtype>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' };

/** The device's name for a float type it can hold, or undefined. */
export function floatDtype(dtype: TensorDtype): FloatDtype | undefined {
  return FLOAT[dtype];
}

export function tensorDtype(dtype: FloatDtype): TensorDtype {
  return dtype === 'f32' ? 'F32' : dtype === 'f16' ? 'F16' : 'BF16';
}

const bits32 = new Uint32Array(1);
const float32 = new Float32Array(bits32.buffer);

/** IEEE 754 binary16 bits as a number; subnormals, infinities and NaN included. */
export function f16ToNumber(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : Number.NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The nearest binary16 to an f32, ties to even, overflow to infinity. */
export function numberToF16(value: number): number {
  float32[0] = value;
  const bits = bits32[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  // 65520 and above round to infinity.
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    // Below 2^-14 the result is subnormal, a multiple of 2^-24: adding 0.5 makes f32 round there by itself.
    float32[0] = Math.abs(value) + 0.5;
    return sign | (bits32[0]! - 0x3f000000);
  }
  // Re-bias the exponent by 127 - 15 and round the 13 dropped bits to even.
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
}

/** The nearest bfloat16 to an f32, ties to even. */
export function numberToBf16(value: number): number {
  float32[0] = value;
  const bits = bits32[0]!;
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

let halfTable: Float32Array | undefined;

/** All 65,536 halves as f32: one load beats the arithmetic by far when a whole matrix is decoded. */
function halves(): Float32Array {
  if (halfTable === undefined) {
    halfTable = new Float32Array(65536);
    for (let i = 0; i < 65536; i++) halfTable[i] = f16ToNumber(i);
  }
  return halfTable;
}

/** Decodes `out.length` little-endian elements of `data` into `out`. */
export function decodeFloats(data: Uint8Array, dtype: FloatDtype, out: Float32Array): void {
  const count = out.length;
  if (dtype === 'f32') {
    new Uint8Array(out.buffer, out.byteOffset, count * 4).set(data.subarray(0, count * 4));
    return;
  }
  const words = asUint16(data, count);
  if (dtype === 'f16') {
    const table = halves();
    for (let i = 0; i < count; i++) out[i] = table[words[i]!]!;
    return;
  }
  const bits = new Uint32Array(out.buffer, out.byteOffset, count);
  for (let i = 0; i < count; i++) bits[i] = words[i]! << 16;
}

/** Encodes `values` as little-endian elements into `out`. */
export function encodeFloats(values: Float32Array, dtype: FloatDtype, out: Uint8Array): void {
  if (dtype === 'f32') {
    out.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    return;
  }
  const encode = dtype === 'f16' ? numberToF16 : numberToBf16;
  for (let i = 0; i < values.length; i++) {
    const word = encode(values[i]!);
    out[2 * i] = word & 0xff;
    out[2 * i + 1] = word >>> 8;
  }
}

/** `count` u16 of `data`, copied only where the view would not be aligned. Little-endian hosts only, like the format. */
function asUint16(data: Uint8Array, count: number): Uint16Array {
  if (data.byteOffset % 2 === 0) return new Uint16Array(data.buffer, data.byteOffset, count);
  return new Uint16Array(data.slice(0, count * 2).buffer);
}
