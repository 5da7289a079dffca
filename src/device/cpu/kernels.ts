/** The kernel module: which of the two builds this engine can run, compiled once for all threads. */
import { readFile } from 'node:fs/promises';
import { setFlagsFromString } from 'node:v8';
import { KvantError } from '../../errors.js';
import { workerUrl } from '../../worker-url.js';

export const SIMD_CHOICES = ['auto', 'relaxed', 'simd128'] as const;
export type SimdChoice = (typeof SIMD_CHOICES)[number];

export interface Kernels {
  readonly module: WebAssembly.Module;
  readonly relaxed: boolean;
}

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

export async function loadKernels(choice: SimdChoice): Promise<Kernels> {
  const relaxed = choice !== 'simd128' && enableRelaxedSimd();
  if (choice === 'relaxed' && !relaxed) {
    throw new KvantError('simd-unavailable', 'This JavaScript engine has no relaxed SIMD.', {
      kind: 'unsupported',
      fix: 'Leave the choice to the device (simd: auto), or take Node 20.19 or later.',
    });
  }
  const name = relaxed ? './wasm/kernels-relaxed.wasm' : './wasm/kernels-simd.wasm';
  const bytes = await readFile(workerUrl(name, import.meta.url));
  return { module: await WebAssembly.compile(bytes), relaxed };
}
