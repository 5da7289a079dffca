/** The CPU device: AssemblyScript kernels on threads over shared memory. */
import { KvantError } from '../../errors.js';
import { type Device, PRECISIONS, type Precision } from '../device.js';
import { CpuDevice } from './device.js';
import { loadKernels, SIMD_CHOICES, type SimdChoice } from './kernels.js';
import { machineCores, threadsFor } from './machine-cores.js';

export interface CpuDeviceOptions {
  /** Threads that compute; if omitted, one for each core that the process may use, less one above eight. */
  readonly threads?: number;
  /** `reference`: f32 activations in every product. */
  readonly precision?: Precision;
  /** Largest size of one memory: 4 GiB if omitted. Smaller ones are for tests. */
  readonly memoryLimitBytes?: number;
  /** `auto` takes the fastest build that the engine runs rightly. The results of `dot` and `relaxed` are the same. */
  readonly simd?: SimdChoice;
  /**
   * It computes parts of a GPU's steps: threads wait awake from one part to the next, and where `threads` is omitted a quarter of the
   * cores is left to those that speak with the GPU.
   */
  readonly besideGpu?: boolean;
}

const MOST_THREADS = 256;
const LEAST_MEMORY = 4 * 65536;

/**
 * Opens the CPU device. Its threads live until it is disposed of.
 *
 * @throws KvantError `invalid-option`, `simd-unavailable`, `device-out-of-memory`, `device-lost`.
 */
export async function createCpuDevice(options: CpuDeviceOptions = {}): Promise<Device> {
  const cores = machineCores();
  const { precision = 'default', memoryLimitBytes = 2 ** 32, simd = 'auto', besideGpu = false } = options;
  const { threads = threadsFor(cores, besideGpu) } = options;
  if (!Number.isInteger(threads) || threads < 1 || threads > MOST_THREADS) {
    throw invalidOption('threads', threads, `Give a whole number from 1 to ${MOST_THREADS}.`);
  }
  if (!PRECISIONS.includes(precision)) {
    throw invalidOption('precision', precision, `Give one of ${PRECISIONS.join(', ')}.`);
  }
  if (!SIMD_CHOICES.includes(simd)) {
    throw invalidOption('simd', simd, `Give one of ${SIMD_CHOICES.join(', ')}.`);
  }
  if (!(memoryLimitBytes >= LEAST_MEMORY)) {
    throw invalidOption('memoryLimitBytes', memoryLimitBytes, `Give at least ${LEAST_MEMORY} bytes.`);
  }
  const kernels = await loadKernels(simd);
  return new CpuDevice({ kernels, threads, cores, precision, memoryLimitBytes, besideGpu });
}

function invalidOption(name: string, value: unknown, fix: string): KvantError {
  return new KvantError('invalid-option', `The CPU device has no ${name} of ${String(value)}.`, {
    kind: 'invalid-request',
    where: name,
    fix,
  });
}
