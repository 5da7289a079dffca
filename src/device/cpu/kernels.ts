/** The kernel module: which of the three builds suits this engine, compiled once for all threads. */
import { readFile } from 'node:fs/promises';
import { setFlagsFromString } from 'node:v8';
import { KvantError } from '../../errors.js';
import { workerUrl } from '../../worker-url.js';
import type { DotProbe } from './probe.js';

/** `relaxed` adds int8 products up in 16 bits, `dot` in 32: the same results. `auto` takes the fastest that is right. */
export const SIMD_CHOICES = ['auto', 'dot', 'relaxed', 'simd128'] as const;
export type SimdChoice = (typeof SIMD_CHOICES)[number];
export type KernelFile = Exclude<SimdChoice, 'auto'>;

export interface Kernels {
  readonly module: WebAssembly.Module;
  readonly file: KernelFile;
  /** Relaxed SIMD is in use: with `relaxed` and `dot`. */
  readonly relaxed: boolean;
}

/** The first V8 whose baseline compiler gets the dot with 32-bit sums right. */
const DOT_V8 = 12;
const PROBE_MILLISECONDS = 20;
/** Gains below this are within what a busy machine makes of two equal builds. */
const LEAST_GAIN = 1.1;

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

/** Which build `auto` takes. `probe` is asked for only where it can matter. */
export async function chooseKernels(
  relaxed: boolean,
  v8Version: string,
  probe: () => Promise<DotProbe>,
): Promise<KernelFile> {
  if (!relaxed) return 'simd128';
  if (!(Number.parseInt(v8Version, 10) >= DOT_V8)) return 'relaxed';
  const { right, gain } = await probe();
  return right && gain >= LEAST_GAIN ? 'dot' : 'relaxed';
}

/** What the probe found, once a process. */
let probed: Promise<DotProbe> | undefined;

function probeOnce(): Promise<DotProbe> {
  probed ??= (async () => {
    // Threads load this file too, and have no use for it.
    const { probeDot } = await import('./probe.js');
    return probeDot(await compile('relaxed'), await compile('dot'), PROBE_MILLISECONDS);
  })();
  return probed;
}

export async function loadKernels(choice: SimdChoice): Promise<Kernels> {
  const relaxed = choice !== 'simd128' && enableRelaxedSimd();
  const file = choice === 'auto' ? await chooseKernels(relaxed, process.versions.v8, probeOnce) : choice;
  if (file !== 'simd128' && !relaxed) {
    throw new KvantError('simd-unavailable', 'This JavaScript engine has no relaxed SIMD.', {
      kind: 'unsupported',
      fix: 'Leave the choice to the device (simd: auto), or take Node 20.19 or later.',
    });
  }
  if (
    choice === 'dot' &&
    !(Number.parseInt(process.versions.v8, 10) >= DOT_V8 && (await probeOnce()).right)
  ) {
    throw new KvantError(
      'simd-unavailable',
      'This JavaScript engine adds int8 products up wrongly in 32 bits.',
      {
        kind: 'unsupported',
        fix: 'Leave the choice to the device (simd: auto), or take Node 22 or later.',
      },
    );
  }
  return { module: await compile(file), file, relaxed: file !== 'simd128' };
}

const FILES = { dot: 'kernels-dot', relaxed: 'kernels-relaxed', simd128: 'kernels-simd' } as const;

async function compile(file: KernelFile): Promise<WebAssembly.Module> {
  return WebAssembly.compile(await readFile(workerUrl(`./wasm/${FILES[file]}.wasm`, import.meta.url)));
}
