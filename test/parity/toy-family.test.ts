/** The walk "add a family" of docs/extending.md: a page and a place in the list, and nothing else, make a model run. */

import { describe, expect, it } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import { attend, attentionWeights } from '../../src/models/blocks/attention.js';
import { gated, gatedMlpWeights } from '../../src/models/blocks/gated-mlp.js';
import { decoderLayout } from '../../src/models/blocks/layout-builder.js';
import { recordStack } from '../../src/models/blocks/stack.js';
import { type DecoderConfig, readDecoderConfig } from '../../src/models/config.js';
import { parseModelConfig } from '../../src/models/families.js';
import { type Family, register } from '../../src/models/family.js';
import { loadModel } from '../../src/models/load.js';
import { RandomWeights } from '../../src/models/shapes.js';
import { createReferenceDevice } from './reference-device.js';
import { largestDifference, Runner } from './runner.js';

interface ToyConfig extends DecoderConfig {
  /** Multiplies the logits: a field that no other family has. */
  readonly loudness: number;
}

/** Attention and MLP read one norm and are added side by side; one layer in two has no rotation. */
const toy: Family<ToyConfig> = {
  name: 'toy',
  architectures: ['ToyForCausalLM'],
  modelTypes: ['toy'],
  readConfig: (fields, architecture) => ({
    ...readDecoderConfig(fields, architecture, {
      bias: () => ({ qkv: false, output: false, mlp: false }),
      qkNorm: false,
      window: () => null,
      slides: () => false,
      defaults: { maxPositions: 128, ropeTheta: 10_000 },
    }),
    loudness: fields.positive('loudness', 1),
  }),
  layout: (config) =>
    decoderLayout(config, {
      ropes: [{ key: 'toy', parameters: config.rope, dims: config.headDim }],
      layer: (at) => {
        at.norm('norm', 'only_norm', config.hiddenSize);
        attentionWeights(at, { ...config, window: null });
        gatedMlpWeights(at, { ...config, bias: false });
      },
    }),
  record: (ops, config, weights, options) =>
    recordStack(ops, config, weights, options, {
      logits: { factor: config.loudness, softcap: null },
      layer: (x, at) => {
        const normed = at.norm(x, 'norm');
        const rope = at.index % 2 === 0 ? 'toy' : null;
        const attended = attend(at, normed, { ...config, window: null, rope });
        const sum = at.linear(at.wanted(attended), 'output', at.wanted(x));
        return at.linear(gated(at, at.wanted(normed), config.activation), 'down', sum);
      },
    }),
};

const CONFIG = {
  architectures: ['ToyForCausalLM'],
  vocab_size: 96,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};

const PROMPT = Array.from({ length: 40 }, (_, i) => (i * 37) % 96);

async function logitsOf(loudness: number, cpu: boolean): Promise<Float32Array> {
  await using device = cpu ? await createCpuDevice({ precision: 'reference' }) : createReferenceDevice();
  const definition = parseModelConfig({ ...CONFIG, loudness }, 'toy', [register(toy)]);
  const model = await loadModel(new RandomWeights({ kind: 'float', dtype: 'f16' }), definition, device);
  await using runner = await Runner.create(device, model, { context: 64, chunk: 16 });
  return (await runner.generate(PROMPT, 4)).logits.at(-1)!;
}

describe('a family of a page', () => {
  it('is found by its name, tells its facts, and runs as in float64', async () => {
    const { facts } = parseModelConfig({ ...CONFIG, loudness: 2 }, 'toy', [register(toy)]);
    expect(facts).toMatchObject({ family: 'toy', layers: 2, headDim: 16, maxPositions: 128 });
    const exact = await logitsOf(2, false);
    expect(largestDifference(await logitsOf(2, true), exact)).toBeLessThan(1e-4);
    const quiet = await logitsOf(1, false);
    expect(
      largestDifference(
        exact,
        quiet.map((v) => 2 * v),
      ),
    ).toBeLessThan(1e-4);
    expect(Math.max(...exact.map(Math.abs))).toBeGreaterThan(0.1);
  });

  it('is not known where the list lacks it', () => {
    expect(() => parseModelConfig(CONFIG)).toThrow(/"ToyForCausalLM" is not known/);
  });
});
