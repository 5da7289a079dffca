import { describe, expect, it } from 'vitest';
import { createReferenceDevice } from '../../test/parity/reference-device.js';
import { Runner } from '../../test/parity/runner.js';
import type { KvOptions } from '../kv/options.js';
import { unpackAffineRow } from '../weights/affine.js';
import { decodeFloats } from '../weights/dtypes.js';
import { parseModelConfig } from './families.js';
import { inspectModel } from './inspect.js';
import { parameterCount } from './layout.js';
import { loadModel } from './load.js';
import { RandomWeights, shapeModel, shapeNames } from './shapes.js';

/** Parameters as the model cards state them, embeddings once where they are tied. */
const PUBLISHED: Readonly<Record<string, number>> = {
  'qwen3-0.6b': 0.596e9,
  'qwen3-8b': 8.19e9,
  'qwen2.5-0.5b': 0.494e9,
  'qwen2.5-7b': 7.62e9,
  'llama-1b': 1.236e9,
  'llama-3b': 3.213e9,
  'llama-8b': 8.03e9,
  'mistral-7b': 7.25e9,
  'gemma-3-4b': 3.88e9,
  'gemma-4-26b-a4b': 25.2e9,
  'gpt-oss-20b': 20.91e9,
  'glm-4.7-flash': 30e9,
  'granite-4-h-tiny': 6.94e9,
};

describe('shapes', () => {
  it('have the parameters their models are known for', () => {
    for (const [name, parameters] of Object.entries(PUBLISHED)) {
      const count = parameterCount(shapeModel(name).layout);
      expect(Math.abs(count / parameters - 1), `${name}: ${count}`).toBeLessThan(0.003);
    }
  });

  it('take another vocabulary, and refuse an unknown name with the list', () => {
    expect(shapeModel('llama-8b', { vocab: 32_000 }).facts.vocabSize).toBe(32_000);
    for (const name of shapeNames()) expect(shapeModel(name).facts.layers).toBeGreaterThan(0);
    expect(() => shapeModel('llama-9b')).toThrow(/"llama-9b"/);
    expect(() => shapeModel('toString')).toThrow(/no shape/);
  });

  it('are summarised without being made', () => {
    const summary = inspectModel(new RandomWeights(), shapeModel('llama-8b'));
    // 4.5 bits a weight, in every matrix.
    expect(summary.weightBytes / summary.parameters).toBeCloseTo(4.5 / 8, 3);
    expect(summary.kvBytesPerToken).toBe(32 * 8 * 128 * 2 * 2);
    expect(summary.weights.map(({ kind }) => kind)).toEqual([
      'embedding',
      'attention',
      'mlp',
      'head',
      'norms and biases',
    ]);
    expect(summary.weights[0]?.formats).toEqual(['4-bit (group 64)']);
  });
});

describe('latents', () => {
  /** The sizes of DeepSeek-V2-Lite. */
  const LITE = {
    architectures: ['DeepseekV2ForCausalLM'],
    hidden_size: 2048,
    intermediate_size: 10_944,
    num_hidden_layers: 27,
    num_attention_heads: 16,
    q_lora_rank: null,
    kv_lora_rank: 512,
    qk_rope_head_dim: 64,
    qk_nope_head_dim: 128,
    v_head_dim: 128,
    first_k_dense_replace: 1,
    n_routed_experts: 64,
    n_shared_experts: 2,
    num_experts_per_tok: 6,
    moe_intermediate_size: 1408,
    vocab_size: 102_400,
    max_position_embeddings: 163_840,
  };
  const bytes = (kv: KvOptions): number =>
    inspectModel(new RandomWeights(), parseModelConfig(LITE, 'lite'), { kv }).kvBytesPerToken;

  it('take the bytes of one vector a token, and nothing for values', () => {
    expect(bytes({})).toBe(27 * 2 * 576);
    expect(bytes({ kvBits: 8, kvSkipLayers: [] })).toBe(27 * (576 + 9 * 4));
    // The last layer stays float.
    expect(bytes({ kvBits: 4 })).toBe(26 * (288 + 9 * 4) + 2 * 576);
  });

  it('have the format of keys, and none that is rotated', () => {
    const summary = (kv: KvOptions) =>
      inspectModel(new RandomWeights(), parseModelConfig(LITE, 'lite'), { kv }).cache[0]!;
    expect(summary({ kvFormat: 'affine8/affine4' })).toMatchObject({
      kind: 'latent',
      headDim: 576,
      valueDim: 512,
      keyFormat: 'affine8',
      valueFormat: 'affine8',
      valueBytes: 0,
    });
    expect(summary({ kvFormat: 'turbo4' })).toMatchObject({
      keyFormat: 'f16',
      reason: 'values that are a view of the keys cannot be read from rotated ones',
    });
  });

  it('hold the parameters of kv_b_proj once, split', () => {
    const count = parameterCount(parseModelConfig(LITE, 'lite').layout);
    expect(Math.abs(count / 15.7e9 - 1)).toBeLessThan(0.003);
  });
});

describe('RandomWeights', () => {
  const rows = 64;
  const cols = 512;

  it('are zero-mean with variance 1 / cols, and no two rows or tensors alike', async () => {
    const spec = { bits: 4, groupSize: 64 } as const;
    const source = new RandomWeights();
    const matrix = source.matrix('a.weight', { rows, cols });
    const { data, scales, biases } = await matrix.readRows(0, rows);
    const width = (cols * 4) / 8;
    const groups = cols / 64;
    const scale = new Float32Array(rows * groups);
    const bias = new Float32Array(rows * groups);
    decodeFloats(scales as Uint8Array, 'f16', scale);
    decodeFloats(biases as Uint8Array, 'f16', bias);
    let sum = 0;
    let squares = 0;
    const seen = new Set<string>();
    for (let r = 0; r < rows; r++) {
      const row = new Float32Array(cols);
      unpackAffineRow(
        data.subarray(r * width, (r + 1) * width),
        scale.subarray(r * groups, (r + 1) * groups),
        bias.subarray(r * groups, (r + 1) * groups),
        spec,
        row,
      );
      for (const value of row) {
        sum += value;
        squares += value * value;
      }
      seen.add(row.join());
    }
    const count = rows * cols;
    expect(Math.abs(sum / count) * Math.sqrt(cols)).toBeLessThan(0.03);
    expect((squares / count) * cols).toBeCloseTo(1, 1);
    expect(seen.size).toBe(rows);
    const other = await source.matrix('b.weight', { rows, cols }).readRows(0, rows);
    expect(Buffer.from(other.data).equals(Buffer.from(data))).toBe(false);
  });

  it('make a model whose logits are finite and differ', async () => {
    await using device = createReferenceDevice();
    const model = await loadModel(new RandomWeights(), shapeModel('demo', { vocab: 512 }), device);
    await using runner = await Runner.create(device, model, { context: 16, chunk: 8 });
    const { logits } = await runner.generate([1, 2, 3, 4], 2);
    for (const row of logits) {
      expect(row.every(Number.isFinite)).toBe(true);
      const deviation = Math.sqrt(row.reduce((sum, x) => sum + x * x, 0) / row.length);
      expect(deviation).toBeGreaterThan(0.3);
      expect(deviation).toBeLessThan(3);
    }
    expect(logits[0]).not.toEqual(logits[1]);
  });

  it('are the same however they are read', async () => {
    for (const format of [
      { kind: 'affine', bits: 3, groupSize: 32, dtype: 'bf16' },
      { kind: 'float', dtype: 'f16' },
    ] as const) {
      const matrix = new RandomWeights(format).matrix('a.weight', { rows, cols });
      const whole = await matrix.readRows(0, rows);
      const one = await matrix.readRows(17, 18);
      const width = whole.data.length / rows;
      expect(Buffer.from(one.data)).toEqual(Buffer.from(whole.data.subarray(17 * width, 18 * width)));
    }
  });

  it('fall back to f16 where groups do not divide a row', () => {
    const matrix = new RandomWeights().matrix('a.weight', { rows: 4, cols: 100 });
    expect(matrix.format).toEqual({ kind: 'float', dtype: 'f16' });
  });
});
