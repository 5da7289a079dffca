/** Steps of a program that a measurement submits by itself, without an engine: what fills them, and their time. */
import type { Program } from '../../device/device.js';
import type { StepInputs } from '../../device/step.js';

/** Steps under way at once, as the engine has them. */
export const IN_FLIGHT = 2;

/**
 * Seconds a step, over `steps` of them behind `warmUp` that do not count; two are under way at once, also when the time begins, so that
 * it is from one end to another. Without a warm-up it begins before the first is submitted: a thread that is held up there would
 * else find the work done already, in no time at all.
 */
export async function timeSteps(
  program: Program,
  step: StepInputs,
  steps: number,
  warmUp: number,
  fill: (step: StepInputs, n: number) => void,
): Promise<number> {
  let started = performance.now();
  let last: Promise<unknown> = Promise.resolve();
  for (let n = 0; n < warmUp + steps; n++) {
    fill(step, n);
    const next = program.submit(step);
    await last;
    if (n === warmUp && n > 0) started = performance.now();
    last = next;
  }
  await last;
  return (performance.now() - started) / 1000 / steps;
}

/** One token of every row, at the same position. */
export function everyRow(
  step: StepInputs,
  rows: number,
  position: number,
  token: (row: number) => number,
): void {
  step.clear();
  step.tokenCount = rows;
  step.sequenceCount = rows;
  for (let row = 0; row < rows; row++) {
    step.tokens[row] = token(row);
    step.seqSlot[row] = row;
    step.seqStart[row] = row;
    step.seqLength[row] = 1;
    step.seqPosition[row] = position;
  }
}

/** `tokens` of one sequence, from `position` on. */
export function oneSequence(step: StepInputs, slot: number, position: number, tokens: number): StepInputs {
  step.clear();
  step.tokens.fill(1, 0, tokens);
  step.tokenCount = tokens;
  step.sequenceCount = 1;
  step.seqSlot[0] = slot;
  step.seqStart[0] = 0;
  step.seqLength[0] = tokens;
  step.seqPosition[0] = position;
  return step;
}

/** Of mean 0 and variance 1, the same every time. */
export function normals(count: number): Float32Array {
  const values = new Float32Array(count);
  let state = 12345;
  const uniform = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 1) / 2 ** 32;
  };
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    const angle = 2 * Math.PI * uniform();
    values[i] = radius * Math.cos(angle);
    if (i + 1 < count) values[i + 1] = radius * Math.sin(angle);
  }
  return values;
}
