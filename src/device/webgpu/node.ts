/**
 * Dawn in Node: everything that is not the WebGPU standard stands here, but for how it waits (`dawn-ticks.ts`).
 *
 * The npm package `webgpu` is optional and loaded when first asked for. Vulkan reads its environment when Dawn loads
 * it, so `VK_ICD_FILENAMES` and `XDG_RUNTIME_DIR` must be set before (in the main thread: a worker's `process.env`
 * is a copy that native code does not see).
 */

import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { KvantError } from '../../errors.js';
import { hasVulkanDriver, hasVulkanLoader } from './vulkan.js';

/**
 * - `allow_unsafe_apis`: subgroup matrices and other features that are still experimental.
 * - `vulkan_enable_f16_on_nvidia`: without it no `shader-f16`, and no f16 matrices, on drivers before 615.
 * - `disable_workgroup_init`: workgroup memory starts as anything, so kernels set what they read. Zeroing it costs
 *   time in every workgroup on a GPU, and seconds of compile time on SwiftShader.
 * - `disable_robustness`: no clamping of indices. Kernels check bounds themselves; submit checks what it is given.
 */
const TOGGLES = [
  'allow_unsafe_apis',
  'vulkan_enable_f16_on_nvidia',
  'disable_workgroup_init',
  'disable_robustness',
];

/** `timestamp_quantization` would round what a kernel takes to a tenth of a millisecond. */
const WITHOUT = ['timestamp_quantization'];

export const LIBVULKAN_FIX =
  'Install the GPU driver and the Vulkan loader (Debian and Ubuntu: apt-get install libvulkan1), or use --device cpu.';

function noVulkan(message: string): KvantError {
  return new KvantError('no-adapter', message, { kind: 'device', fix: LIBVULKAN_FIX });
}

/** RTLD_NODELETE of Linux: the library stays although Node drops it for not being an addon. */
const RTLD_NODELETE = 0x1000;

/**
 * Dawn's `GPU` object of this thread, made when first asked for and kept for all devices. With one for each device, Dawn went
 * whenever one was collected, and a process that opened four devices within a second died in a call that locked a mutex of
 * a Dawn that was gone (seen on NVIDIA's driver).
 */
let opened: GPU | undefined;

/**
 * The `GPU` of Dawn's that all devices of this thread are opened on. Holding it does not keep the process from ending.
 *
 * @param unasked nobody asked for a GPU: then Dawn, which warns on the terminal, is not even loaded where no driver is installed
 * @throws KvantError `no-adapter` where there is no Vulkan, `webgpu-missing`
 */
export async function createNodeGpu(unasked = false): Promise<GPU> {
  if (opened !== undefined) return opened;
  preloadVulkan();
  if (!hasVulkanLoader()) throw noVulkan('There is no WebGPU adapter: the system has no Vulkan loader.');
  if (unasked && !hasVulkanDriver())
    throw noVulkan('There is no WebGPU adapter: the system has no Vulkan driver.');
  let dawn: { create(flags: string[]): GPU };
  try {
    // Optional: a bundler leaves it to be looked for when it is wanted, and may not find it (esbuild: for the `try`).
    dawn = (await import(
      /* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ 'webgpu'
    )) as { create(flags: string[]): GPU };
  } catch (cause) {
    throw new KvantError('webgpu-missing', 'The optional package "webgpu" could not be loaded.', {
      kind: 'device',
      fix: 'Run "npm install webgpu" (Linux needs glibc 2.34 or later), or use --device cpu.',
      cause,
    });
  }
  opened = dawn.create([
    `enable-dawn-features=${TOGGLES.join(',')}`,
    `disable-dawn-features=${WITHOUT.join(',')}`,
  ]);
  return opened;
}

/** The version of the package that brings Dawn; empty if it does not say. */
export function dawnVersion(): string {
  try {
    const { version } = loadFrom(createRequire(import.meta.url)) as { version?: unknown };
    return String(version ?? '');
  } catch {
    return '';
  }
}

/** Apart from where the `require` is made: a bundler would see through that, and complain where the package is not. */
function loadFrom(load: (path: string) => unknown): unknown {
  return load('webgpu/package.json');
}

/**
 * A software driver such as Chromium's SwiftShader brings its own Vulkan loader and lies beside it. Where the system
 * has none, that one is taken: the dynamic linker then answers Dawn's request with the library already there.
 */
function preloadVulkan(): void {
  const icd = process.env.VK_ICD_FILENAMES;
  if (process.platform !== 'linux' || icd === undefined || icd.includes(':')) return;
  const loader = join(dirname(icd), 'libvulkan.so.1');
  if (!existsSync(loader)) return;
  try {
    process.dlopen({ exports: {} }, loader, constants.dlopen.RTLD_NOW | RTLD_NODELETE);
  } catch {
    // It is no Node addon, and saying so is all that dlopen can do. The library is in the process now.
  }
}
