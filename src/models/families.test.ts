import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { knownArchitectures, parseModelConfig } from './families.js';

describe('the list of families', () => {
  it('stands in docs/models.md, each architecture with its family', () => {
    const docs = readFileSync(new URL('../../docs/models.md', import.meta.url), 'utf8');
    const rows = docs.split('\n').filter((line) => line.startsWith('| `'));
    const missing = knownArchitectures().filter((name) => !rows.some((row) => row.includes(`\`${name}\``)));
    expect(missing).toEqual([]);
  });

  it('reads what names itself a Llama as one: SmolLM2, with fields of its own', () => {
    const { facts } = parseModelConfig({
      architectures: ['LlamaForCausalLM'],
      model_type: 'llama',
      is_llama_config: true,
      rope_interleaved: false,
      rope_theta: 100_000,
      rope_scaling: null,
      hidden_size: 576,
      intermediate_size: 1536,
      num_hidden_layers: 30,
      num_attention_heads: 9,
      num_key_value_heads: 3,
      max_position_embeddings: 8192,
      tie_word_embeddings: true,
      vocab_size: 49_152,
      attention_bias: false,
      mlp_bias: false,
      pretraining_tp: 1,
    });
    expect(facts).toMatchObject({ family: 'llama', headDim: 64, kvHeads: 3, tied: true });
    expect(facts.rope).toBe('default, theta 100000');
  });
});
