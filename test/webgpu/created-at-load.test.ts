/**
 * Once its plans are prepared a program makes nothing on the device, and compiles nothing, whatever steps come: on a device that can do
 * what a large GPU can, so that it has the kernels which are taken there.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createNullGpu } from '../../bench/null-gpu.mjs';
import type { Program } from '../../src/device/device.js';
import type { KvPool } from '../../src/device/kv.js';
import { StepInputs } from '../../src/device/step.js';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import { createWebGpuDevice } from '../../src/device/webgpu/index.js';
import { planBuckets } from '../../src/engine/plan-buckets.js';
import { parseKvChoice } from '../../src/kv/formats.js';
import { loadModel } from '../../src/models/load.js';
import { RandomWeights, shapeModel } from '../../src/models/shapes.js';
import { held } from '../setup/held.js';

const CONTEXT = 32_768;
const BLOCK = 32;
const ROWS = 9;
const BATCH = 2048;

/** Formats of K and V, and whether sequences start as floats, in blocks of their own. */
const CACHES = [
  ['f16', false],
  ['affine8', false],
  ['affine4', false],
  ['turbo4', false],
  ['turbo3.5', false],
  ['affine4', true],
] as const;

describe.each(CACHES)('a program on a %s cache, float-start rows: %s', (format, floatStart) => {
  let device: WebGpuDevice;
  let program: Program;
  let pool: KvPool;
  const errors: string[] = [];
  const compiled = { sync: 0, async: 0 };
  const ran = new Map<GPUComputePipeline, string>();
  let unhook = () => {};
  beforeAll(async () => {
    const gpu = createNullGpu({
      onDevice: (made) => {
        const { createComputePipeline: sync, createComputePipelineAsync: later } = made;
        made.createComputePipeline = (descriptor) => {
          compiled.sync++;
          return sync.call(made, descriptor);
        };
        made.createComputePipelineAsync = (descriptor) => {
          compiled.async++;
          return later.call(made, descriptor);
        };
        made.addEventListener('uncapturederror', ({ error }) => errors.push(error.message));
      },
    });
    device = (await createWebGpuDevice({ gpu })) as WebGpuDevice;
    unhook = onPipeline((pipeline) => ran.set(pipeline, pipeline.label));
    const model = await loadModel(new RandomWeights(), shapeModel('demo'), device, {
      kvFormat: () => parseKvChoice(format),
      maxContext: CONTEXT,
    });
    pool = device.createKvPool({
      layers: model.kvLayers,
      blocks: 16,
      blockTokens: BLOCK,
      slots: ROWS,
      maxBlocksPerSlot: CONTEXT / BLOCK,
      ...(floatStart ? { floatStart: { blocks: 8, dtype: 'f16' } } : {}),
    });
    program = await device.compile(
      model.buildGraph().graph,
      { maxTokens: BATCH, maxOutputs: ROWS, maxSequences: ROWS, maxContext: CONTEXT, inFlight: 2 },
      pool,
    );
    await Promise.all(planBuckets(BATCH, ROWS).map((p) => program.prepare(p.tokens, p.outputs)));
  });
  afterAll(async () => {
    unhook();
    await program.dispose();
    pool.dispose();
    await device[Symbol.asyncDispose]();
  });

  it('makes nothing in any step, and its launches are valid', async () => {
    const before = { ...held(device), created: device.created, ...compiled };
    expect(compiled.async).toBeGreaterThan(20);
    const cold = new Set<string>();
    unhook();
    unhook = onPipeline((pipeline) => {
      if (!ran.has(pipeline)) cold.add(pipeline.label);
    });
    let steps = 0;
    for (const decoding of [0, 1, 2, 4, 5, 8, 9])
      for (const chunk of [0, 1, 2, 17, 64, 100, 512, 1025, BATCH - ROWS])
        for (const context of [0, 255, 256, 511, 512, 4000, 16_000, 30_000])
          for (const ends of [0, 1]) {
            const prompts = chunk === 0 || decoding === ROWS ? 0 : 1;
            if (decoding + prompts === 0 || (ends === 1 && prompts === 0)) continue;
            await program.submit(stepOf(decoding, prompts * chunk, context, ends === 1));
            steps++;
          }
    if (floatStart) await pool.convert(Uint32Array.of(16, 17), Uint32Array.of(3, 4));
    expect(steps).toBeGreaterThan(500);
    expect({ ...held(device), created: device.created, ...compiled }).toEqual(before);
    expect(errors).toEqual([]);
    expect([...cold]).toEqual([]);
  });
});

/** Has every pipeline that is set shown, until it is called off. */
function onPipeline(look: (pipeline: GPUComputePipeline) => void): () => void {
  const { prototype } = (
    globalThis as unknown as { GPUComputePassEncoder: { prototype: GPUComputePassEncoder } }
  ).GPUComputePassEncoder;
  const { setPipeline } = prototype;
  prototype.setPipeline = function (this: GPUComputePassEncoder, pipeline) {
    look(pipeline);
    setPipeline.call(this, pipeline);
  };
  return () => {
    prototype.setPipeline = setPipeline;
  };
}

/** Rows that decode at `context`, and a chunk of a prompt at it, or none; every other row draws with filters. */
function stepOf(decoding: number, chunk: number, context: number, ends: boolean): StepInputs {
  const step = new StepInputs(BATCH, ROWS, ROWS);
  const lengths = [...new Array<number>(decoding).fill(1), ...(chunk > 0 ? [chunk] : [])];
  for (const [s, length] of lengths.entries()) {
    step.seqSlot[s] = s;
    step.seqStart[s] = step.tokenCount;
    step.seqLength[s] = length;
    step.seqPosition[s] = context;
    step.tokenCount += length;
    step.sequenceCount++;
    if (s >= decoding && !ends) continue;
    const row = step.outputCount++;
    step.outputs[row] = step.tokenCount - 1;
    step.outputSlot[row] = s;
    step.sampling.temperature[row] = s % 2;
    step.sampling.topP[row] = 0.9;
    step.sampling.topK[row] = s % 4 === 1 ? 40 : 0;
  }
  return step;
}
