/**
 * What a device can do at best, measured on it through the device contract: bytes a second, operations a second of
 * its own products, and the time of an operation that does next to nothing.
 *
 * Of one GPU: docs/lab/2026-11-21-h200-ceilings.md.
 */
import type { Device, Program } from '../../device/device.js';
import type { Graph, Tensor } from '../../device/graph.js';
import { Ops } from '../../device/ops.js';
import { StepInputs } from '../../device/step.js';
import type { MatrixFormat } from '../../device/weights.js';
import { measureReadBandwidth } from '../../engine/read-bandwidth.js';
import { RandomWeights } from '../../models/shapes.js';
import { agreedReading, bestRate, type RateOfSize } from './agreement.js';
import { IN_FLIGHT, normals, oneSequence, timeSteps } from './steps.js';

export interface Ceilings {
  /** Bytes a second. Null where a device has no way to measure it, or no two measurements agreed. */
  readonly readBandwidth: number | null;
  /**
   * Multiplications and additions a second, and tokens, inputs and outputs of the products that reached it. Null where no two
   * measurements agreed.
   */
  readonly products: RateOfSize | null;
  /** Seconds from one tiny operation to the next, which waits for it. Null where it was lost in noise. */
  readonly launchSeconds: number | null;
}

/** Products of one size are tried until a chain of them takes so long. */
const LONG_ENOUGH_S = 0.1;
const LARGEST = 4096;
const CHAIN = 8;
/** Tiny operations of a short and of a long program. */
const FEW = 16;
const MANY = 272;
const TINY = 64;
/** A GPU that idled takes a third of a second to be fast again. */
const WARM_MS = 500;
const ROUNDS = 3;

export async function measureCeilings(
  device: Device,
  format: MatrixFormat,
  tell: (what: string) => void,
): Promise<Ceilings> {
  tell('read bandwidth');
  const readBandwidth = await agreedReading(() => measureReadBandwidth(device, 5));
  tell('rate of products');
  const products = await productRate(device, format);
  tell('cost of a launch');
  const launchSeconds = await launchCost(device);
  return { readBandwidth, products, launchSeconds };
}

/** The best rate over products of n × n by n × n for n = 256, 512, … */
async function productRate(device: Device, format: MatrixFormat): Promise<Ceilings['products']> {
  const weights = new RandomWeights(format);
  const rates: RateOfSize[] = [];
  for (let size = 256; size <= LARGEST; size *= 2) {
    const source = weights.matrix(`product-${size}`, { rows: size, cols: size });
    const weight = await device.loadMatrix([source], { use: 'linear' });
    const ops = new Ops();
    const input = ops.input('tokens', size);
    let y = input;
    for (let i = 0; i < CHAIN; i++) y = ops.linear(y, weight);
    ops.keep(y);
    const work = 2 * CHAIN * size ** 3;
    const operationsPerSecond = await withTokens(device, ops.finish(), input, size, (program) =>
      agreedReading(async () => work / (await fastest(device, [program], size, 1))[0]!),
    );
    if (operationsPerSecond === null) continue;
    rates.push({ operationsPerSecond, size });
    if (work / operationsPerSecond > LONG_ENOUGH_S) break;
  }
  return bestRate(rates);
}

/** A long program of sums of a few numbers against a short one: what is done once a step falls out. */
async function launchCost(device: Device): Promise<number | null> {
  const [few, many] = [tinyOperations(FEW), tinyOperations(MANY)];
  const times = await withTokens(device, few.graph, few.input, 1, (short) =>
    withTokens(device, many.graph, many.input, 1, (long) => fastest(device, [short, long], 1, 8)),
  );
  const cost = (times[1]! - times[0]!) / (MANY - FEW);
  return cost > 0 ? cost : null;
}

function tinyOperations(count: number): { graph: Graph; input: Tensor } {
  const ops = new Ops();
  const input = ops.input('tokens', TINY);
  let y = input;
  for (let i = 0; i < count; i++) y = ops.add(y, input);
  ops.keep(y);
  return { graph: ops.finish(), input };
}

/**
 * Seconds a step of each program, the least of several rounds, which go on until the device is awake. Programs take
 * turns: what else the machine does meets all of them.
 */
async function fastest(
  device: Device,
  programs: readonly Program[],
  tokens: number,
  steps: number,
): Promise<number[]> {
  const warmMs = device.info.kind === 'webgpu' ? WARM_MS : 0;
  const step = new StepInputs(tokens, 1, 1);
  const run = (program: Program, count: number, warmUp: number): Promise<number> =>
    timeSteps(program, step, count, warmUp, () => {
      oneSequence(step, 0, 0, tokens);
    });
  const least: number[] = [];
  for (const program of programs) least.push(await run(program, steps, 1));
  const end = performance.now() + warmMs;
  for (let round = 1; round < ROUNDS || performance.now() < end; round++)
    for (const [i, program] of programs.entries())
      least[i] = Math.min(least[i]!, await run(program, steps, 0));
  return least;
}

async function withTokens<T>(
  device: Device,
  graph: Graph,
  input: Tensor,
  tokens: number,
  use: (program: Program) => Promise<T>,
): Promise<T> {
  const limits = {
    maxTokens: tokens,
    maxOutputs: 1,
    maxSequences: 1,
    maxContext: tokens,
    inFlight: IN_FLIGHT,
  };
  const program = await device.compile(graph, limits, null);
  try {
    const values = new Float32Array(tokens * input.cols);
    const some = normals(Math.min(values.length, 65536));
    for (let at = 0; at < values.length; at += some.length) values.set(some, at);
    program.write(input, values);
    return await use(program);
  } finally {
    await program.dispose();
  }
}
