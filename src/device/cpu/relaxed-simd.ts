/** Whether this engine has relaxed SIMD. Apart from the choice of kernels, for every thread asks it and little else. */
import { setFlagsFromString } from 'node:v8';

/** A module of one function: `i16x8.relaxed_dot_i8x16_i7x16_s` of two vectors of zeros. */
const RELAXED_PROBE = Uint8Array.of(
  ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
  ...[0x01, 0x05, 0x01, 0x60, 0x00, 0x01, 0x7b],
  ...[0x03, 0x02, 0x01, 0x00],
  ...[0x0a, 0x0f, 0x01, 0x0d, 0x00, 0x41, 0x00, 0xfd, 0x0f, 0x41, 0x00, 0xfd, 0x0f, 0xfd, 0x92, 0x02, 0x0b],
);

/** True if relaxed SIMD is to be had. V8 before 11.4 (Node 20) knows it behind a flag, set here when it is needed. */
export function enableRelaxedSimd(): boolean {
  if (WebAssembly.validate(RELAXED_PROBE)) return true;
  try {
    setFlagsFromString('--experimental-wasm-relaxed-simd');
  } catch {
    return false;
  }
  return WebAssembly.validate(RELAXED_PROBE);
}
