/** Slices of towers between the steps of rows that decode. */
import { describe, expect, it } from 'vitest';
import type { Program, StepSlice } from '../../device/device.js';
import { StepInputs } from '../../device/step.js';
import { StepResult } from '../../device/step-result.js';
import { Turns } from './pace.js';
import { TowerSlices } from './tower-slices.js';

const inputs = (rows: number): StepInputs => {
  const step = new StepInputs(rows, 1, 1);
  step.tokenCount = rows;
  return step;
};

/** A device in name alone: it tells what is submitted. */
function scripted(trace: (StepSlice | 'step')[]): Program {
  const submit = async (_: StepInputs, slice?: StepSlice): Promise<StepResult> => {
    trace.push(slice!);
    return new StepResult(new Uint32Array(0), 0);
  };
  return { submit } as unknown as Program;
}

describe('slices of towers', () => {
  it('follow one another to the end, and each waits for a step of the rows that decode', async () => {
    const trace: (StepSlice | 'step')[] = [];
    const turns = new Turns();
    const slices = new TowerSlices();
    let done = false;
    const run = slices
      .run(scripted(trace), inputs(5000), { stepMs: 1e-9, turn: () => turns.wait() })
      .then(() => {
        done = true;
      });
    while (!done) {
      // However late the next step comes, there is one slice before it.
      for (let i = 0; i < 5; i++) await new Promise(setImmediate);
      if (done) break;
      trace.push('step');
      turns.give();
    }
    await run;
    const own = trace.filter((one): one is StepSlice => one !== 'step');
    expect(own[0]!.from).toBe(0);
    own.slice(1).forEach((slice, i) => {
      expect(slice.from).toBe(own[i]!.to);
    });
    expect(own.at(-1)).toMatchObject({ to: 64, of: 64 });
    expect(trace.length).toBe(2 * own.length - 1);
    for (let i = 1; i < trace.length; i += 2) expect(trace[i]).toBe('step');
  });

  it('are one where nobody decodes and the picture is of no great size', async () => {
    const trace: (StepSlice | 'step')[] = [];
    const idle = { stepMs: null, turn: () => new Promise<void>(() => {}) };
    await new TowerSlices().run(scripted(trace), inputs(4096), idle);
    expect(trace).toEqual([{ from: 0, to: 64, of: 64 }]);
    trace.length = 0;
    await new TowerSlices().run(scripted(trace), inputs(16_384), idle);
    expect(trace.length).toBeGreaterThan(1);
  });
});
