/** The kernel module: which of the three builds suits this engine, compiled once for all threads. */
import { readFile } from 'node:fs/promises';
import { KvantError } from '../../errors.js';
import { workerUrl } from '../../worker-url.js';
import type { DotProbe } from './probe.js';
import { enableRelaxedSimd } from './relaxed-simd.js';

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
