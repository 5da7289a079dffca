/** One thread that reads its share of memory, round by round, all threads starting each round together. */
import { parentPort, workerData } from 'node:worker_threads';
import type { ReaderData } from './read-bandwidth.js';
import { enableRelaxedSimd } from './relaxed-simd.js';

const data = workerData as ReaderData | null;
if (parentPort !== null && data !== null && data.module instanceof WebAssembly.Module) {
  const { module, relaxed, memory, from, bytes, threads, rounds } = data;
  if (relaxed) enableRelaxedSimd();
  const abort = (): never => {
    throw new Error('A kernel gave up.');
  };
  const { exports } = new WebAssembly.Instance(module, { env: { memory, abort } });
  const read = exports.readAll as (from: number, bytes: number) => number;
  read(from, bytes);
  const arrived = new Int32Array(memory.buffer, 0, 1);
  const times: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    Atomics.add(arrived, 0, 1);
    while (Atomics.load(arrived, 0) < round * threads);
    const start = performance.now();
    read(from, bytes);
    times.push((performance.now() - start) / 1000);
  }
  parentPort.postMessage(times);
}
