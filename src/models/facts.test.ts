import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parseModelConfig } from './families.js';

const SOURCES = fileURLToPath(new URL('../', import.meta.url));

const GEMMA = {
  architectures: ['Gemma3ForCausalLM'],
  vocab_size: 1000,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 6,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  sliding_window: 32,
  eos_token_id: [1, 106],
};

describe('ModelFacts', () => {
  it('tell what is known of a model outside its family', () => {
    expect(parseModelConfig(GEMMA).facts).toMatchObject({
      architecture: 'Gemma3ForCausalLM',
      family: 'gemma3',
      modalities: ['text'],
      vocabSize: 1000,
      hiddenSize: 64,
      intermediateSize: 128,
      layers: 6,
      heads: 4,
      kvHeads: 2,
      headDim: 16,
      maxPositions: 131_072,
      rope: 'full: default, theta 1000000; sliding: default, theta 10000',
      tied: true,
      eosTokenIds: [1, 106],
    });
    expect(parseModelConfig(GEMMA).facts.cache.map(({ window }) => window)).toEqual([
      32,
      32,
      32,
      32,
      32,
      null,
    ]);
  });

  it('have another identity where anything that is computed is another', () => {
    const { identity } = parseModelConfig(GEMMA).facts;
    expect(parseModelConfig({ ...GEMMA, query_pre_attn_scalar: 17 }).facts.identity).not.toBe(identity);
    expect(parseModelConfig({ ...GEMMA, rope_local_base_freq: 17 }).facts.identity).not.toBe(identity);
    expect(parseModelConfig(GEMMA).withTied(false).facts.identity).not.toBe(identity);
    expect(parseModelConfig({ ...GEMMA, made_up: 17 }).facts.identity).toBe(identity);
  });

  it('are all that is seen outside src/models: nobody there imports a config, a block or a family', () => {
    const files = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' }).filter(
      (name) => name.endsWith('.ts') && !name.endsWith('.test.ts') && !/^models[/\\]/.test(name),
    );
    const seen = files.filter((name) =>
      /models\/(config|config-fields|blocks\/[\w-]+|families\/[\w-]+)\.js'/.test(
        readFileSync(join(SOURCES, name), 'utf8'),
      ),
    );
    expect(files.length).toBeGreaterThan(100);
    expect(seen.map((name) => relative('.', name))).toEqual([]);
  });
});
