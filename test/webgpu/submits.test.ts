/**
 * What a step costs the host, counted on a device that computes nothing: an unmasked step is one submission, a masked one is two, and
 * the halves between them launch what the whole does.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createNullGpu } from '../../bench/null-gpu.mjs';
import { FEATURE, type RowSpec } from '../../src/device/sampling.js';
import { createWebGpuDevice } from '../../src/device/webgpu/index.js';
import { type TinyModel, tinyModel, tokensStep, VOCAB } from '../devices/tiny-model.js';

const MASKED: RowSpec = {
  features: FEATURE.MASK,
  repetitionWindow: 0,
  dryWindow: 0,
  biasIds: new Uint32Array(),
  biasValues: new Float32Array(),
  withheld: new Uint32Array(),
  banned: [],
  breakers: { ids: new Uint32Array(), sequences: [] },
  mu: 0,
};

describe('the submissions of a step', () => {
  let device: Awaited<ReturnType<typeof createWebGpuDevice>>;
  let model: TinyModel;
  /** Since they were last taken: submissions, writes of buffers and launches, in order. */
  const calls: string[] = [];
  let unhook = () => {};
  const taken = (): string[] => calls.splice(0);
  const launches = (of: readonly string[]): string[] =>
    of.filter((call) => call !== 'submit' && call !== 'write');

  beforeAll(async () => {
    device = await createWebGpuDevice({
      gpu: createNullGpu({
        onDevice: ({ queue }) => {
          const { submit, writeBuffer } = queue;
          queue.submit = (...args) => {
            calls.push('submit');
            return submit.apply(queue, args);
          };
          queue.writeBuffer = (...args: unknown[]) => {
            calls.push('write');
            return (writeBuffer as (...args: unknown[]) => undefined).apply(queue, args);
          };
        },
      }),
    });
    const { prototype } = (
      globalThis as unknown as { GPUComputePassEncoder: { prototype: GPUComputePassEncoder } }
    ).GPUComputePassEncoder;
    const { setPipeline } = prototype;
    prototype.setPipeline = function (this: GPUComputePassEncoder, pipeline) {
      calls.push(pipeline.label);
      setPipeline.call(this, pipeline);
    };
    unhook = () => {
      prototype.setPipeline = setPipeline;
    };
    model = await tinyModel(device);
    await model.program.prepare(3, 2);
  });
  afterAll(async () => {
    unhook();
    await model.close();
    await device[Symbol.asyncDispose]();
  });

  const step = () =>
    tokensStep(
      [
        { slot: 0, position: 0, tokens: [1] },
        { slot: 1, position: 0, tokens: [2, 3] },
      ],
      [
        [0, 0],
        [2, 1],
      ],
    );

  it('is one, and one write of its inputs, where no row is masked', async () => {
    const { program } = model;
    await program.submit(step());
    taken();
    await program.submit(step());
    const calls = taken();
    expect(calls[0]).toBe('write');
    expect(calls.at(-1)).toBe('submit');
    expect(calls.filter((call) => call === 'submit' || call === 'write')).toEqual(['write', 'submit']);
    expect(launches(calls).length).toBeGreaterThan(5);
  });

  it('are two where it is run in halves, which launch what the whole launches', async () => {
    const { program } = model;
    await program.submit(step());
    taken();
    await program.submit(step());
    const whole = taken();
    program.forward(step());
    const forward = taken();
    await program.sample(step());
    const sample = taken();
    for (const half of [forward, sample])
      expect(half.filter((call) => call === 'submit' || call === 'write')).toEqual(['write', 'submit']);
    expect([...launches(forward), ...launches(sample)]).toEqual(launches(whole));
    expect(launches(sample).every((label) => label.startsWith('sample'))).toBe(true);
    expect(launches(forward).some((label) => label.startsWith('sample'))).toBe(false);
  });

  it('are as many with a mask, which is one write more', async () => {
    const { program } = model;
    await program.sampler!.sync(1, MASKED, Int32Array.of(2, 3), 2);
    const masked = step();
    masked.sampling.features[1] = FEATURE.MASK;
    await program.submit(masked);
    taken();
    await program.submit(masked);
    const whole = taken();
    program.forward(masked);
    program.sampler!.setMask(1, new Uint32Array(Math.ceil(VOCAB / 32)).fill(0xffff_ffff));
    await program.sample(masked);
    const halves = taken();
    expect(halves.filter((call) => call === 'submit').length).toBe(2);
    expect(halves.filter((call) => call === 'write').length).toBe(3);
    expect(launches(halves)).toEqual(launches(whole));
    expect(launches(whole).length).toBeGreaterThan(0);
    program.sampler!.release(1);
  });
});
