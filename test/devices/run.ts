/** Runs small graphs on a device: record, compile, fill, submit, read. */
import type { Device, Program, ProgramLimits } from '../../src/device/device.js';
import type { Graph, Tensor } from '../../src/device/graph.js';
import type { KvPool } from '../../src/device/kv.js';
import { Ops } from '../../src/device/ops.js';
import { StepInputs } from '../../src/device/step.js';
import type { SamplingRow } from './reference.js';

export const LIMITS: ProgramLimits = {
  maxTokens: 256,
  maxOutputs: 64,
  maxSequences: 64,
  maxContext: 2048,
  inFlight: 2,
};

export interface Recorded<T> {
  readonly graph: Graph;
  readonly tensors: T;
}

export function record<T>(build: (ops: Ops) => T): Recorded<T> {
  const ops = new Ops();
  const tensors = build(ops);
  return { graph: ops.finish(), tensors };
}

/** A step over `lengths.length` sequences, sequence s in slot `slots[s]` at position `positions[s]`. */
export function stepOf(
  lengths: readonly number[],
  positions: readonly number[] = lengths.map(() => 0),
  slots: readonly number[] = lengths.map((_, i) => i),
  limits: ProgramLimits = LIMITS,
): StepInputs {
  const step = new StepInputs(limits.maxTokens, limits.maxSequences, limits.maxOutputs);
  let at = 0;
  lengths.forEach((length, s) => {
    step.seqSlot[s] = slots[s]!;
    step.seqStart[s] = at;
    step.seqLength[s] = length;
    step.seqPosition[s] = positions[s]!;
    at += length;
  });
  step.tokenCount = at;
  step.sequenceCount = lengths.length;
  return step;
}

/** A step of `rows` independent one-token sequences, every one an output. */
export function rowsStep(rows: number, limits: ProgramLimits = LIMITS): StepInputs {
  const step = stepOf(
    Array.from({ length: rows }, () => 1),
    undefined,
    undefined,
    limits,
  );
  const outputs = Math.min(rows, limits.maxOutputs);
  for (let r = 0; r < outputs; r++) {
    step.outputs[r] = r;
    step.outputSlot[r] = r;
  }
  step.outputCount = outputs;
  return step;
}

export function setSampling(step: StepInputs, row: number, sampling: SamplingRow): void {
  const s = step.sampling;
  s.temperature[row] = sampling.temperature;
  s.topK[row] = sampling.topK ?? 0;
  s.topP[row] = sampling.topP ?? 1;
  s.minP[row] = sampling.minP ?? 0;
  s.seedLow[row] = sampling.seed?.[0] ?? 0;
  s.seedHigh[row] = sampling.seed?.[1] ?? 0;
  s.choice[row] = sampling.choice ?? 0;
  s.position[row] = sampling.position ?? 0;
}

/** One input of `cols`, one kept output: `y = build(ops, x)` for `rows` rows. */
export async function runOnce(
  device: Device,
  rows: number,
  input: { readonly cols: number; readonly data: Float32Array },
  build: (ops: Ops, x: Tensor) => Tensor,
  extra?: {
    readonly cols: number;
    readonly data: Float32Array;
    readonly use: (ops: Ops, x: Tensor, e: Tensor) => Tensor;
  },
): Promise<Float32Array> {
  const recorded = record((ops) => {
    const x = ops.input('tokens', input.cols);
    const e = extra === undefined ? null : ops.input('tokens', extra.cols);
    const y = extra === undefined || e === null ? build(ops, x) : extra.use(ops, x, e);
    ops.keep(y);
    return { x, e, y };
  });
  const program = await device.compile(recorded.graph, LIMITS, null);
  try {
    program.write(recorded.tensors.x, input.data);
    if (extra !== undefined && recorded.tensors.e !== null) program.write(recorded.tensors.e, extra.data);
    // More rows than sequences are tokens of one.
    await program.submit(rows > LIMITS.maxSequences ? stepOf([rows]) : rowsStep(rows));
    return await program.read(recorded.tensors.y, rows);
  } finally {
    await program.dispose();
  }
}

export async function withProgram<T>(
  device: Device,
  graph: Graph,
  pool: KvPool | null,
  use: (program: Program) => Promise<T>,
  limits: ProgramLimits = LIMITS,
): Promise<T> {
  const program = await device.compile(graph, limits, pool);
  try {
    return await use(program);
  } finally {
    await program.dispose();
  }
}
