/**
 * Every family over prompts of 1, window + 3 and 3 · window + 7 tokens and 8 cached tokens behind each, as transformers answers
 * them (scripts/fixtures/config_fields.py): in float64, on the CPU, and with `KVANT_TEST_GPU=1` on a GPU.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { defaultKvFormat } from '../../src/kv/policy.js';
import type { LoadModelOptions } from '../../src/models/load.js';
import { type DeviceSpec, devices } from '../devices/devices.js';
import { everyCase } from '../setup/every-case.js';
import { generatedFamilies, generatedFixture, type Run, writeGenerated } from './generated.js';
import { createReferenceDevice } from './reference-device.js';
import { decidedTokens, loadFolder, Runner } from './runner.js';

/** Of the size of the logits. */
const EXACT = 2e-4;
/** Normalised mean square of the errors in default precision. */
const NMSE = 1e-4;

/** Twice what a logit may be off where `bound` is of the largest, or of the mean square: nearer choices may be either's. */
const nearTie = (expected: readonly number[], errors: Errors, bound: number): number =>
  errors === largest
    ? 2 * bound * Math.max(...expected.map(Math.abs))
    : 2 * Math.sqrt((bound * expected.reduce((sum, value) => sum + value ** 2, 0)) / expected.length);

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-runs-'));
});
afterAll(() => rm(scratch, { recursive: true }));

type Errors = (found: ArrayLike<number>, expected: readonly number[]) => number;

const largest: Errors = (found, expected) =>
  Math.max(...expected.map((value, i) => Math.abs(value - found[i]!))) / Math.max(...expected.map(Math.abs));

const meanSquare: Errors = (found, expected) =>
  expected.reduce((sum, value, i) => sum + (value - found[i]!) ** 2, 0) /
  expected.reduce((sum, value) => sum + value ** 2, 0);

/** Answers a run, and expects its tokens up to the first one that was nearly tied, and their logits. */
async function follow(
  device: Device,
  runs: readonly Run[],
  options: LoadModelOptions,
  errors: Errors,
  bound: number,
): Promise<void> {
  const model = await loadFolder(scratch, device, options);
  await using runner = await Runner.create(device, model, { context: 32, chunk: 8 });
  for (const { prompt, greedy, margins, logits } of runs) {
    const found = await runner.generate(prompt, greedy.length);
    const decided = decidedTokens(greedy, margins, nearTie(logits[0]!, errors, bound));
    expect(found.tokens.slice(0, decided.length)).toEqual(decided);
    const steps = Math.min(decided.length + 1, greedy.length);
    for (const [step, expected] of logits.slice(0, steps).entries())
      expect(errors(found.logits[step]!, expected), `${prompt.length} + ${step}`).toBeLessThan(bound);
  }
}

describe('in float64', () => {
  it.each(generatedFamilies)('%s', async (family) => {
    const fixture = generatedFixture(family);
    await writeGenerated(fixture, scratch);
    await using device = createReferenceDevice();
    await follow(device, fixture.runs, {}, largest, EXACT);
  });
});

/** What each device computes, apart from a software GPU: there the parts of families have files of their own. */
const real = devices.filter(({ slow }) => !slow);
/** Of those of the CPU that differ in the code alone one is enough, unless all are asked for. */
const some = real.filter(({ name }) => everyCase || !name.includes('simd128'));

describe.each(some)('$name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device?.[Symbol.asyncDispose]();
  });

  it.each(generatedFamilies)('%s', async (family) => {
    const fixture = generatedFixture(family);
    await writeGenerated(fixture, scratch);
    const exact = spec.precision === 'reference';
    const options = exact ? {} : { kvFormat: defaultKvFormat(device.info) };
    await follow(device, fixture.runs, options, exact ? largest : meanSquare, exact ? EXACT : NMSE);
    await affine(
      spec,
      device,
      fixture.runs.map(({ prompt }) => prompt),
    );
  });
});

/** How far apart routers' choices must be, for halves round the logits they are made by. */
const ROUTED = 0.001;

/** Quantised weights, against float64 that rounds where the device says that it does, over the longest prompt whose experts are no near tie. */
async function affine(
  spec: DeviceSpec,
  device: Device,
  prompts: readonly (readonly number[])[],
): Promise<void> {
  const options: LoadModelOptions = { quantize: { bits: 4, groupSize: 32 } };
  const run = async (on: Device, prompt: readonly number[]): Promise<Float32Array> => {
    await using runner = await Runner.create(on, await loadFolder(scratch, on, options), {
      context: 32,
      chunk: 8,
    });
    return (await runner.generate(prompt, 1)).logits[0]!;
  };
  let margin: number;
  await using reference = createReferenceDevice({
    int8: spec.kind === 'cpu' && spec.precision === 'default',
    onRouted: (by) => {
      margin = Math.min(margin, by);
    },
  });
  for (const prompt of prompts.toReversed()) {
    margin = Number.POSITIVE_INFINITY;
    const expected = await run(reference, prompt);
    if (margin < ROUTED) continue;
    expect(meanSquare(await run(device, prompt), [...expected])).toBeLessThan(NMSE);
    return;
  }
  throw new Error('The experts of every prompt are nearly tied.');
}
