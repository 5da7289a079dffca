/** Rows of last hidden states beside the ids of a step: those of the outputs that were asked for. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Program } from '../../src/device/device.js';
import type { Tensor } from '../../src/device/graph.js';
import { StepInputs } from '../../src/device/step.js';
import { kernelDevices } from './devices.js';
import { Random, worstRow } from './numbers.js';
import * as reference from './reference.js';
import { LIMITS, record, rowsStep } from './run.js';
import { randomMatrix, vectorSource } from './sources.js';

const EPS = 1e-6;
const VOCAB = 40;
const ROWS = 9;

describe.each(kernelDevices)('hidden rows on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** The end of a model of this width: hidden rows are behind its norm. */
  async function open(width: number, sample: boolean) {
    const random = new Random(width);
    const gain = random.normals(width);
    const norm = await device.loadVector(vectorSource(gain));
    const head = await device.loadMatrix(
      [randomMatrix(random, VOCAB, width, { kind: 'float', dtype: 'f32' }).source],
      { use: 'linear' },
    );
    const { graph, tensors } = record((ops) => {
      const x = ops.input('tokens', width);
      const last = ops.rmsNorm(ops.selectOutputs(x), norm, EPS);
      ops.hidden(last);
      if (sample) ops.sample(ops.linear(last, head));
      return x;
    });
    const program = await device.compile(graph, LIMITS, null);
    const x = random.normals(ROWS * width);
    const expected = reference.rmsNorm(x, gain, ROWS, width, EPS);
    const rows = (asked: readonly number[]): Float64Array =>
      Float64Array.from(asked.flatMap((row) => [...expected.subarray(row * width, (row + 1) * width)]));
    return { program, x, input: tensors, rows };
  }

  function asking(asked: readonly number[]) {
    const step = rowsStep(ROWS);
    step.hiddenCount = asked.length;
    step.hiddenRows.set(asked);
    return step;
  }

  async function halves(program: Program, input: Tensor, x: Float32Array, asked: readonly number[]) {
    program.write(input, x);
    program.forward(asking(asked));
    return program.sample(asking(asked));
  }

  it.each([32, 100])('are those asked for, in any order, of width %i, whole and in halves', async (width) => {
    const { program, x, input, rows } = await open(width, true);
    program.write(input, x);
    const plain = await program.submit(asking([]));
    expect(plain.hidden.length).toBe(0);
    const ids = [...plain.ids];
    for (const asked of [[8], [0, 1, 2, 5], [4, 3, 0], Array.from({ length: ROWS }, (_, i) => i)]) {
      program.write(input, x);
      const result = await program.submit(asking(asked));
      expect(worstRow(result.hidden, rows(asked), asked.length, width)).toBeLessThan(1e-5);
      expect([...result.ids]).toEqual(ids);
      expect(result.recorded).toBe(false);
      const split = await halves(program, input, x, asked);
      expect(split.hidden).toEqual(result.hidden);
      expect([...split.ids]).toEqual(ids);
    }
    await program.dispose();
  });

  it('come of a graph that does not sample, and stay while later steps go on', async () => {
    const { program, x, input, rows } = await open(64, false);
    program.write(input, x);
    const first = program.submit(asking([1, 7]));
    const results = [await first];
    for (let n = 0; n < 4; n++) results.push(await program.submit(asking([n])));
    expect(results[0]!.ids.length).toBe(0);
    expect(worstRow(results[0]!.hidden, rows([1, 7]), 2, 64)).toBeLessThan(1e-5);
    for (let n = 0; n < 4; n++) expect(worstRow(results[1 + n]!.hidden, rows([n]), 1, 64)).toBeLessThan(1e-5);
    await program.dispose();
  });

  it('are those of tokens, where the graph marks these: more than there are outputs', async () => {
    const width = 36;
    const random = new Random(3);
    const { graph, tensors: input } = record((ops) => {
      const x = ops.input('tokens', width);
      ops.hidden(ops.scale(x, 2));
      return x;
    });
    const program = await device.compile(graph, { ...LIMITS, maxOutputs: 2 }, null);
    const x = random.normals(ROWS * width);
    program.write(input, x);
    const step = new StepInputs(LIMITS.maxTokens, LIMITS.maxSequences, 2, { hiddenTokens: true });
    const rows = rowsStep(ROWS);
    step.tokenCount = rows.tokenCount;
    step.sequenceCount = 1;
    step.seqLength[0] = ROWS;
    const asked = [1, 2, 3, 7, 0];
    step.hiddenCount = asked.length;
    step.hiddenRows.set(asked);
    const { hidden, ids } = await program.submit(step);
    expect(ids.length).toBe(0);
    const expected = asked.flatMap((row) =>
      [...x.subarray(row * width, (row + 1) * width)].map((v) => 2 * v),
    );
    expect([...hidden]).toEqual(expected.map(Math.fround));
    step.hiddenRows[0] = ROWS;
    const refused = expect.objectContaining({ code: 'invalid-step' });
    await expect((async () => program.submit(step))()).rejects.toEqual(refused);
    await program.dispose();
  });

  it('are refused of outputs that a step has not, and of a graph without', async () => {
    const { program } = await open(32, true);
    const refused = expect.objectContaining({ code: 'invalid-step' });
    const attempt = async (of: Program, asked: readonly number[]): Promise<unknown> =>
      of.submit(asking(asked));
    await expect(attempt(program, [ROWS])).rejects.toEqual(refused);
    await program.dispose();
    const { graph } = record((ops) => ops.keep(ops.selectOutputs(ops.input('tokens', 8))));
    const without = await device.compile(graph, LIMITS, null);
    await expect(attempt(without, [0])).rejects.toEqual(refused);
    await without.dispose();
    const shape = expect.objectContaining({ code: 'shape-mismatch' });
    expect(() =>
      record((ops) => [ops.hidden(ops.input('outputs', 8)), ops.hidden(ops.input('outputs', 8))]),
    ).toThrowError(shape);
  });
});
