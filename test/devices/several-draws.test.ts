/** A sequence that draws at several of its positions in one step, as drafts are checked: the tokens of one draw at a time. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { FEATURE, type RowRecord } from '../../src/device/sampling.js';
import { NO_SLOT, type StepInputs } from '../../src/device/step.js';
import { kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { record } from './run.js';
import { fillRow, type RowParams, specOfRow } from './sampling-reference.js';
import { randomMatrix, vectorSource } from './sources.js';
import { LIMITS, type TinyModel, tinyModel, tokensStep, VOCAB } from './tiny-model.js';

/** Greedy, filtered, and with what needs no state of the row. */
const PARAMS: readonly RowParams[] = [
  { temperature: 0, seed: [1, 1], choice: 0 },
  { temperature: 1, topK: 20, topP: 0.9, seed: [7, 1], choice: 0 },
  {
    temperature: 0.8,
    seed: [9, 3],
    choice: 2,
    typicalP: 0.7,
    xtc: { probability: 0.5, threshold: 0.05 },
    logprobs: 4,
  },
];
const PROMPT = [5, 6, 7, 8, 9];
const DRAFT = [11, 150, 3];

describe.each(kernelDevices)('several draws of a sequence on $name', (spec) => {
  let device: Device;
  let model: TinyModel;
  beforeAll(async () => {
    device = await spec.create();
    model = await tinyModel(device);
  });
  afterAll(async () => {
    await model.close();
    await device[Symbol.asyncDispose]();
  });

  /** Output i draws the token behind its own, as the row of the parameters does. */
  function drawing(step: StepInputs, params: RowParams, positions: readonly number[]): StepInputs {
    positions.forEach((position, i) => {
      fillRow(step.sampling, i, params, position + 1);
    });
    return step;
  }

  interface Drawn {
    readonly id: number;
    readonly record: RowRecord | null;
  }

  async function submit(step: StepInputs): Promise<Drawn[]> {
    const result = await model.program.submit(step);
    return Array.from({ length: step.outputCount }, (_, i) => ({
      id: result.ids[i]!,
      record: result.record(i),
    }));
  }

  // In software the kernels of features take long to compile, and they read rows as the others do.
  it.each(spec.slow ? PARAMS.slice(0, 2) : PARAMS)(
    'are those of one at a time, $temperature',
    async (params) => {
      const { program } = model;
      program.sampler!.release(0);
      program.sampler!.release(1);
      if ((params.logprobs ?? 0) > 0) {
        // Nothing of it is kept; its kernels are made.
        await program.sampler!.sync(0, specOfRow(params), Int32Array.from(PROMPT), PROMPT.length);
        program.sampler!.release(0);
      }
      const all = [...PROMPT, ...DRAFT];
      const single: Drawn[] = [];
      const chunk = tokensStep([{ slot: 0, position: 0, tokens: PROMPT }], [[PROMPT.length - 1, 0]]);
      single.push(...(await submit(drawing(chunk, params, [PROMPT.length - 1]))));
      for (let at = PROMPT.length; at < all.length; at++) {
        const one = tokensStep([{ slot: 0, position: at, tokens: [all[at]!] }], [[0, 0]]);
        single.push(...(await submit(drawing(one, params, [at]))));
      }
      // In one step, beside a row that draws once.
      const neighbour = { slot: 2, position: 0, tokens: [1, 2] };
      const prompt = tokensStep([{ slot: 1, position: 0, tokens: PROMPT.slice(0, -1) }, neighbour], []);
      await program.submit(prompt);
      const together = tokensStep(
        [{ slot: 1, position: PROMPT.length - 1, tokens: all.slice(PROMPT.length - 1) }],
        DRAFT.concat(0).map((_, i) => [i, 1]),
      );
      const several = await submit(
        drawing(
          together,
          params,
          DRAFT.concat(0).map((_, i) => PROMPT.length - 1 + i),
        ),
      );
      expect(several.map(({ id }) => id)).toEqual(single.map(({ id }) => id));
      if (spec.bitwise) expect(several).toEqual(single);
      // What the slot drew last is what it drew at its last position.
      const next = async (slot: number, token: number): Promise<Drawn[]> => {
        const step = tokensStep([{ slot, position: all.length, tokens: [token] }], [[0, slot]]);
        return submit(drawing(step, params, [all.length]));
      };
      const fed = await next(1, -2);
      expect(fed).toEqual(await next(1, several.at(-1)!.id));
    },
  );

  it('leave out those that have no slot; the last that draws is fed on', async () => {
    const { program } = model;
    await program.submit(tokensStep([{ slot: 1, position: 0, tokens: PROMPT }], []));
    const step = tokensStep(
      [{ slot: 1, position: PROMPT.length, tokens: DRAFT }],
      [
        [0, 1],
        [1, 1],
        [2, NO_SLOT],
      ],
    );
    const [, second] = await submit(drawing(step, PARAMS[0]!, [0, 1, 2]));
    const fed = tokensStep([{ slot: 1, position: PROMPT.length + 2, tokens: [-2] }], [[0, 1]]);
    const named = tokensStep([{ slot: 1, position: PROMPT.length + 2, tokens: [second!.id] }], [[0, 1]]);
    expect(await submit(drawing(fed, PARAMS[0]!, [0]))).toEqual(
      await submit(drawing(named, PARAMS[0]!, [0])),
    );
  });

  it('are refused of a model with recurrent layers: their state cannot go back', async () => {
    const random = new Random(3);
    const [width, taps] = [32, 3];
    const float = { kind: 'float', dtype: 'f32' } as const;
    const state = { conv: { channels: width, taps }, matrix: null };
    const pool = device.createKvPool({
      layers: [{ kvHeads: 0, headDim: 0, key: float, value: float, group: 0, state }],
      blocks: 4,
      blockTokens: 16,
      slots: 4,
      maxBlocksPerSlot: 4,
    });
    pool.setBlocks(0, 0, Uint32Array.of(2));
    const { source } = randomMatrix(random, VOCAB, width, float);
    const table = await device.loadMatrix([source], { use: 'both' });
    const weight = await device.loadVector(vectorSource(random.normals(taps * width)));
    const { graph } = record((ops) => {
      const x = ops.shortConv(ops.embed(table), { layer: 0, taps, weight });
      ops.sample(ops.linear(ops.selectOutputs(x), table));
    });
    const program = await device.compile(graph, LIMITS, pool);
    const draws = async (outputs: readonly (readonly [number, number])[]): Promise<number> => {
      const step = tokensStep([{ slot: 0, position: 0, tokens: [5, 6] }], outputs);
      const at = outputs.map(([token]) => token);
      return (await program.submit(drawing(step, PARAMS[0]!, at))).ids[0]!;
    };
    await expect(
      draws([
        [0, 0],
        [1, 0],
      ]),
    ).rejects.toMatchObject({ code: 'invalid-step', message: /recurrent/ });
    expect(await draws([[1, 0]])).toBeLessThan(VOCAB);
    await program.dispose();
    pool.dispose();
  });

  it('are refused where the row has state, and out of order', async () => {
    const { program } = model;
    const invalid = { code: 'invalid-step' };
    const attempt = async (step: StepInputs): Promise<unknown> => program.submit(step);
    const outputs = [
      [0, 0],
      [1, 0],
    ] as const;
    const params: RowParams = {
      temperature: 1,
      seed: [1, 1],
      choice: 0,
      repetition: { penalty: 1.3, window: 0 },
    };
    const penalised = tokensStep([{ slot: 0, position: 0, tokens: [5, 6] }], outputs);
    drawing(penalised, params, [0, 1]);
    await expect(attempt(penalised)).rejects.toMatchObject({ ...invalid, message: /repetition/ });
    // A slot has one mask, whatever it draws.
    penalised.sampling.features.fill(FEATURE.MASK, 0, 2);
    await expect(attempt(penalised)).rejects.toMatchObject({ ...invalid, message: /several tokens .* mask/ });
    penalised.sampling.features[0] = 0;
    await expect(attempt(penalised)).rejects.toMatchObject(invalid);
    const turned = tokensStep([{ slot: 0, position: 0, tokens: [5, 6] }], [outputs[1], outputs[0]]);
    await expect(attempt(drawing(turned, PARAMS[0]!, [1, 0]))).rejects.toMatchObject(invalid);
  });
});
