/** 16-bit float conversions on the host, for scales and biases. Round to nearest even. */

const f32 = new Float32Array(1);
const u32 = new Uint32Array(f32.buffer);

export function f32ToF16(value: number): number {
  f32[0] = value;
  const bits = u32[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude >= 0x38800000) {
    return sign | ((magnitude + 0xfff + ((magnitude >>> 13) & 1) - 0x38000000) >>> 13);
  }
  // Adding a half puts the last bit of the sum at 2^-24, the step of subnormal f16: the sum rounds for us.
  f32[0] = Math.abs(value) + 0.5;
  return sign | (u32[0]! - 0x3f000000);
}

export function bf16ToF32(bits: number): number {
  u32[0] = bits << 16;
  return f32[0]!;
}
