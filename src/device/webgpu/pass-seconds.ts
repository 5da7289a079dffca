/** What one pass takes by the host's clock: the difference of a long and a short submission is free of what a submission costs. */

import { watchClosely } from './dawn-ticks.js';

const SHORT = 2;
const LONG = 18;

/**
 * @param encode adds one pass over the same work
 * @param rounds an odd number: the median is taken, for a disturbed short submission makes a pass look too fast and a
 *   disturbed long one too slow
 * @returns seconds
 */
export async function passSeconds(
  device: GPUDevice,
  encode: (pass: GPUComputePassEncoder) => void,
  rounds: number,
): Promise<number> {
  const run = async (passes: number): Promise<number> => {
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (let i = 0; i < passes; i++) encode(pass);
    pass.end();
    const commands = encoder.finish();
    const start = performance.now();
    device.queue.submit([commands]);
    await watchClosely(device.queue.onSubmittedWorkDone());
    return (performance.now() - start) / 1000;
  };
  await run(LONG);
  const seconds: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const short = await run(SHORT);
    const long = await run(LONG);
    // A long one that took no longer says only that a pass takes less than its part of it.
    seconds.push(long > short ? (long - short) / (LONG - SHORT) : long / LONG);
  }
  return seconds.sort((a, b) => a - b)[seconds.length >> 1]!;
}
