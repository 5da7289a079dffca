/** How fast this machine's threads read memory together: the bound that decoding from a large KV cache runs against. */
import { Worker } from 'node:worker_threads';
import { threadFlags, workerUrl } from '../../worker-url.js';
import { loadKernels } from './kernels.js';

const PAGE = 65536;
/** The first page stays free: kernels keep their control words there. */
const START = PAGE;

export interface ReadBandwidthOptions {
  readonly threads: number;
  /** Far more than any cache holds. */
  readonly bytes: number;
  /** The best of so many is taken: reading has no way to be too fast. */
  readonly rounds: number;
}

/** What a thread that reads is given. */
export interface ReaderData {
  readonly module: WebAssembly.Module;
  readonly relaxed: boolean;
  readonly memory: WebAssembly.Memory;
  readonly from: number;
  readonly bytes: number;
  readonly threads: number;
  readonly rounds: number;
}

/** @returns bytes a second */
export async function measureReadBandwidth(options: ReadBandwidthOptions): Promise<number> {
  const { threads, rounds } = options;
  const share = Math.floor(options.bytes / threads / PAGE) * PAGE;
  const pages = (START + share * threads) / PAGE;
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  // A page that was never written is one page of zeros for all: it would be read from the cache.
  new Uint32Array(memory.buffer).fill(1, START / 4);
  const { module, relaxed } = await loadKernels('auto');
  const times = await Promise.all(
    Array.from({ length: threads }, (_, thread) =>
      runReader({
        module,
        relaxed,
        memory,
        from: START + thread * share,
        bytes: share,
        threads,
        rounds,
      }),
    ),
  );
  // A round lasts as long as its slowest thread.
  const seconds = Array.from({ length: rounds }, (_, round) => Math.max(...times.map((t) => t[round]!)));
  return (share * threads) / Math.min(...seconds);
}

/** Resolves with the seconds of each round. */
function runReader(data: ReaderData): Promise<number[]> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(workerUrl('./read-bandwidth-worker.js', import.meta.url), {
      ...threadFlags(),
      workerData: data,
    });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}
