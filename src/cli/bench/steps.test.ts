import { expect, it } from 'vitest';
import type { Program } from '../../device/device.js';
import { StepInputs } from '../../device/step.js';
import { StepResult } from '../../device/step-result.js';
import { timeSteps } from './steps.js';

/** Holds its caller up, as a thread is that loses its core, and has done the work by then. */
const heldUp = (ms: number): Program =>
  ({
    submit: () => {
      for (const end = performance.now() + ms; performance.now() < end; );
      return Promise.resolve(new StepResult(new Uint32Array(0), 0));
    },
  }) as unknown as Program;

it('counts a step from before it was submitted where nothing is under way', async () => {
  const step = new StepInputs(1, 1, 1);
  expect(await timeSteps(heldUp(5), step, 1, 0, () => {})).toBeGreaterThanOrEqual(0.005);
  expect(await timeSteps(heldUp(5), step, 3, 0, () => {})).toBeGreaterThanOrEqual(0.005);
  // From the end of the first to the end of the last; of three steps one was submitted before that.
  expect(await timeSteps(heldUp(5), step, 3, 1, () => {})).toBeGreaterThanOrEqual((2 * 0.005) / 3);
});
