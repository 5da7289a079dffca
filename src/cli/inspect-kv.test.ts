import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../models/families.js';
import { inspectModel } from '../models/inspect.js';
import { RandomWeights } from '../models/shapes.js';
import { kvLines, sequenceKv } from './inspect-kv.js';

/** Gemma 4 31B as far as KV goes, and Qwen3.5 27B. */
const GEMMA = {
  architectures: ['Gemma4ForCausalLM'],
  model_type: 'gemma4_text',
  hidden_size: 5376,
  intermediate_size: 21_504,
  num_hidden_layers: 60,
  num_attention_heads: 32,
  num_key_value_heads: 16,
  num_global_key_value_heads: 4,
  attention_k_eq_v: true,
  head_dim: 256,
  global_head_dim: 512,
  hidden_size_per_layer_input: 0,
  sliding_window: 1024,
};

describe('what inspect says of KV', () => {
  it('is 3.5 GB of f16 for 32k tokens of Gemma 4 31B, where all of it were 29', () => {
    const summary = inspectModel(new RandomWeights(), parseModelConfig(GEMMA));
    const planned = { tokens: 32_768, batchTokens: 2048 };
    const { settledBytes, wholeBytes } = sequenceKv(summary, planned);
    // Ten layers of 4 heads of 512; fifty of 16 of 256, which see 1024 tokens: the blocks that these are in, and two steps under way.
    const [full, sliding] = [2 * 4 * 512 * 2, 2 * 16 * 256 * 2];
    expect(settledBytes).toBe(10 * 32_768 * full + 50 * 1056 * sliding);
    expect(settledBytes / 1e9).toBeCloseTo(3.5, 1);
    expect(wholeBytes / 1e9).toBeCloseTo(29.5, 1);
    const lines = kvLines(summary, planned);
    expect(lines[0]).toBe(
      `901120 B a token, 3.3 GiB at 32768 tokens (4.1 GiB while the prompt is computed, 28 GiB if all of it were kept)`,
    );
    expect(lines[1]).toBe('50 layers: behind 1024 tokens it is given back: a sequence keeps 2064 at most');
    const all = '5, 11, 17, 23, 29, 35, 41, 47, 53, 59';
    expect(lines).toContain(`layers ${all}: full attention, K f16, V f16, 4 × 512, 8192 B a token`);
  });

  it('names the effective format of each layer, and why it is another than was asked for', () => {
    // Heads of 512 stay floats.
    const narrow = parseModelConfig({ ...GEMMA, global_head_dim: 256 });
    const summary = inspectModel(new RandomWeights(), narrow, { kv: { kvBits: 4 } });
    const lines = kvLines(summary, { tokens: 32_768, batchTokens: 2048 }).slice(2);
    expect(lines.find((line) => line.startsWith('layer 59:'))).toMatch(/K f16, V f16.*\(.*last/);
    expect(lines.find((line) => line.startsWith('layers 5, 11'))).toMatch(/K affine4, V affine4, 4 × 256/);
    expect(lines.find((line) => line.includes('sliding window 1024'))).toMatch(/K f16, V f16.*\(.*window/);
  });
});
