/** A step in two halves: the same tokens as the whole, and what is left out of the draw is as it was. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Program } from '../../src/device/device.js';
import { FEATURE } from '../../src/device/sampling.js';
import { NO_SLOT, type StepInputs } from '../../src/device/step.js';
import { type DeviceSpec, kernelDevices } from './devices.js';
import { record, stepOf } from './run.js';
import { fillRow, maskOfRow, type RowParams, specOfRow } from './sampling-reference.js';
import { LIMITS, type TinyModel, tinyModel, VOCAB } from './tiny-model.js';

const PROMPTS = [[5, 6, 7], [1, 2, 3, 4, 5], [9]];
const allow = (rest: number): RowParams['mask'] =>
  Array.from({ length: VOCAB }, (_, id) => id).filter((id) => id % 3 === rest);

/** One row draws freely, one under penalties, the last one through a mask. */
function paramsOf(row: number, step: number): RowParams {
  if (row === 0) return { temperature: 0.9, topK: 20, seed: [7, 1], choice: 0 };
  if (row === 1)
    return { temperature: 1, seed: [8, 1], choice: 1, repetition: { penalty: 1.3, window: 0 }, logprobs: 3 };
  return {
    temperature: 1,
    seed: [9, 1],
    choice: 0,
    mask: allow(step % 3)!,
    repetition: { penalty: 1.2, window: 0 },
  };
}

describe.each(kernelDevices)('the halves of a step on $name', (spec: DeviceSpec) => {
  let device: Device;
  let model: TinyModel;
  let program: Program;

  beforeAll(async () => {
    device = await spec.create();
    model = await tinyModel(device);
    program = model.program;
  });
  afterAll(async () => {
    await model.close();
    await device[Symbol.asyncDispose]();
  });

  const ROWS = PROMPTS.length;

  async function sync(): Promise<void> {
    for (let row = 0; row < ROWS; row++) {
      program.sampler!.release(row);
      const spec = specOfRow(paramsOf(row, 0));
      if (row > 0)
        await program.sampler!.sync(row, spec, Int32Array.from(PROMPTS[row]!), PROMPTS[row]!.length);
    }
  }

  /** A step over prompts at first, then over what was drawn last. `have`: tokens that each row has. */
  function fill(n: number, have: readonly number[]): StepInputs {
    const lengths = n === 0 ? PROMPTS.map((prompt) => prompt.length) : have.map(() => 1);
    const step = stepOf(lengths, n === 0 ? undefined : have.map((count) => count - 1), undefined, LIMITS);
    let at = 0;
    lengths.forEach((length, row) => {
      for (let i = 0; i < length; i++) step.tokens[at + i] = n === 0 ? PROMPTS[row]![i]! : -(row + 1);
      at += length;
      step.outputs[row] = at - 1;
      step.outputSlot[row] = row;
      fillRow(step.sampling, row, paramsOf(row, have[row]!), have[row]!);
    });
    step.outputCount = ROWS;
    return step;
  }

  const mask = (row: number, have: number): void => {
    const words = maskOfRow(paramsOf(row, have), VOCAB);
    if (words !== null) program.sampler!.setMask(row, words);
  };

  /** Twelve steps; `late(n)`: rows that the draw of step n leaves out, which then repeat their position. */
  async function run(halves: boolean, late: (n: number) => number[] = () => []): Promise<number[][]> {
    await sync();
    const have = PROMPTS.map((prompt) => prompt.length);
    const ids: number[][] = PROMPTS.map(() => []);
    for (let n = 0; n < 12; n++) {
      const step = fill(n, have);
      let result: Awaited<ReturnType<Program['submit']>>;
      if (halves) {
        program.forward(step);
        if (n % 2 === 1) await program.computed();
        for (const row of late(n)) step.outputSlot[row] = NO_SLOT;
        mask(2, have[2]!);
        result = await program.sample(step);
      } else {
        mask(2, have[2]!);
        result = await program.submit(step);
      }
      for (let row = 0; row < ROWS; row++) {
        if (step.outputSlot[row] === NO_SLOT) continue;
        ids[row]!.push(result.ids[row]!);
        have[row]!++;
      }
      expect(result.record(1)?.ids.length ?? 3).toBe(3);
    }
    return ids;
  }

  it('draw what the whole step draws', async () => {
    const whole = await run(false);
    for (const id of whole.flat()) expect(id).toBeLessThan(VOCAB);
    whole[2]!.forEach((id, n) => {
      expect(id % 3).toBe((PROMPTS[2]!.length + n) % 3);
    });
    expect(new Set(whole[0]).size).toBeGreaterThan(2);
    expect(await run(true)).toEqual(whole);
  });

  it('leave a row out of the draw, whose tokens come later and are the same, and no other row sees it', async () => {
    const whole = await run(false);
    const mixed = await run(true, (n) => (n % 3 === 1 ? [2] : n === 5 ? [0, 1] : []));
    // A position that is computed twice is computed alike: where kernels depend on what else is in a step, they may not be.
    mixed.forEach((ids, row) => {
      expect(ids.length).toBe(12 - [1, 1, 4][row]!);
      expect(ids).toEqual(whole[row]!.slice(0, ids.length));
    });
    // All rows left out, and none of the features that the kernels are compiled for.
    await run(true, () => [0, 1, 2]);
  });

  it('follow each other, and are of the same step', async () => {
    await sync();
    const step = fill(
      0,
      PROMPTS.map((prompt) => prompt.length),
    );
    const attempt = async (work: () => unknown) => work();
    const invalid = { code: 'invalid-step' };
    await expect(attempt(() => program.sample(step))).rejects.toMatchObject(invalid);
    program.forward(step);
    await expect(attempt(() => program.forward(step))).rejects.toMatchObject(invalid);
    await expect(attempt(() => program.submit(step))).rejects.toMatchObject(invalid);
    expect((await program.sample(step)).ids).toHaveLength(ROWS);
    program.forward(step);
    step.outputCount--;
    await expect(attempt(() => program.sample(step))).rejects.toMatchObject(invalid);
    step.outputCount++;
    // The step is over; as many as before may be under way.
    const first = program.submit(step);
    program.forward(step);
    const second = program.sample(step);
    expect((await first).ids).toEqual((await second).ids);
    step.sampling.features[0] = FEATURE.MASK;
    await expect(attempt(() => program.forward(step))).rejects.toMatchObject(invalid);
    step.sampling.features[0] = 0;
    expect((await program.submit(step)).ids).toHaveLength(ROWS);
  });

  it('may be given up between them', async () => {
    const { graph } = record((ops) => {
      const logits = ops.input('outputs', VOCAB);
      ops.sample(logits);
    });
    const other = await device.compile(graph, LIMITS, null);
    other.forward(stepOf([1], undefined, undefined, LIMITS));
    await other.dispose();
  });
});
