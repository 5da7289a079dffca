/** The builds of the CPU's kernels as tests of products take them, and the formats of weights that all of them multiply with. */
import { readFile } from 'node:fs/promises';
import { setFlagsFromString } from 'node:v8';
import { expect } from 'vitest';
import { enableRelaxedSimd } from '../../src/device/cpu/relaxed-simd.js';
import type { MatrixFormat } from '../../src/device/weights.js';
import { AFFINE_BITS, GROUP_SIZES } from '../../src/device/weights.js';
import { Bench, BUILDS, type KernelFile } from './cpu-products.js';
import { BLOCK_FORMATS } from './sources.js';

const benches: Partial<Record<KernelFile, Bench>> = {};

/** A build with its memory cleared; `openBuilds` goes before. */
export function bench(build: KernelFile): Bench {
  const one = benches[build]!;
  one.clear();
  return one;
}

/** Compiles all builds of the kernels. */
export async function openBuilds(): Promise<void> {
  expect(enableRelaxedSimd()).toBe(true);
  // The baseline compiler of V8 11 gets the dot with 32-bit sums wrong; its optimising compiler does not.
  if (Number.parseInt(process.versions.v8, 10) < 12) setFlagsFromString('--no-liftoff');
  for (const build of BUILDS) {
    const file = new URL(`../../dist/device/cpu/wasm/kernels-${build}.wasm`, import.meta.url);
    benches[build] = new Bench(build, await WebAssembly.compile(await readFile(file)));
  }
}

export const FORMATS: MatrixFormat[] = (['f32', 'f16', 'bf16'] as const).map((dtype) => ({
  kind: 'float',
  dtype,
}));
for (const bits of AFFINE_BITS) {
  for (const groupSize of GROUP_SIZES) {
    for (const dtype of ['f32', 'f16', 'bf16'] as const)
      FORMATS.push({ kind: 'affine', bits, groupSize, dtype });
  }
}
FORMATS.push(...BLOCK_FORMATS);
