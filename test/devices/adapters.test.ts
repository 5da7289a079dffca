/** Adapters that a step names: each sequence its own, and none that the device does not hold. */
import { expect, it } from 'vitest';
import type { Program } from '../../src/device/device.js';
import type { StepInputs } from '../../src/device/step.js';
import { kernelDevices } from './devices.js';
import { LIMITS, record, rowsStep } from './run.js';

it.each(kernelDevices)('$name holds no adapter, and refuses a step that names one', async (spec) => {
  await using device = await spec.create();
  expect(device.info.adapters).toBe(0);
  const { graph, tensors } = record((ops) => {
    const x = ops.input('tokens', 4);
    return { x, y: ops.keep(ops.selectOutputs(x)) };
  });
  const program = await device.compile(graph, LIMITS, null);
  program.write(tensors.x, new Float32Array(12).fill(1));

  const step = rowsStep(3);
  const outcomes: ((of: Program, inputs: StepInputs) => unknown)[] = [
    (of, inputs) => of.submit(inputs),
    (of, inputs) => of.forward(inputs),
  ];
  for (const adapter of [1, 0xffff_ffff])
    for (const run of outcomes) {
      step.seqAdapter[2] = adapter;
      await expect((async () => run(program, step))()).rejects.toMatchObject({
        code: 'invalid-step',
        message: `Step: sequence 2 names adapter ${adapter}; the device holds 0.`,
      });
    }

  // Refused whole: the next step is as any other. One that is not in the step is not asked for.
  step.seqAdapter[2] = 0;
  step.seqAdapter[3] = 1;
  await program.submit(step);
  expect([...(await program.read(tensors.y, 3))]).toEqual(Array(12).fill(1));
  step.sequenceCount = 4;
  step.clear();
  expect([...step.seqAdapter]).toEqual(Array(LIMITS.maxSequences).fill(0));
  await program.dispose();
});
