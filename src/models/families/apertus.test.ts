import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../families.js';

const SIZES = {
  architectures: ['ApertusForCausalLM'],
  vocab_size: 96,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};

describe('apertus', () => {
  it('rotates as Llama 3 and has xIELU, where a config leaves them out', () => {
    const { facts, layout } = parseModelConfig(SIZES);
    expect(JSON.parse(facts.identity)).toMatchObject({
      mlpActivation: 'xielu',
      rope: { type: 'llama3', theta: 12_000_000, factor: 8 },
    });
    const numbers = layout.vectors.find(({ key }) => key === 'layers.1.xielu')!;
    expect(numbers.parts.map(({ name }) => name)).toEqual(
      ['alpha_p', 'alpha_n', 'beta', 'eps'].map((name) => `model.layers.1.mlp.act_fn.${name}`),
    );
    // softplus(0) is ln 2; of a large number itself, and of a small one nothing.
    const made = [...numbers.make!(Float32Array.of(0, 0, 0.5, -1e-6))];
    expect(made[0]).toBeCloseTo(Math.LN2, 6);
    expect(made[1]).toBeCloseTo(Math.LN2 + 0.5, 6);
    expect([...numbers.make!(Float32Array.of(200, -200, 0.5, -1e-6))].slice(0, 2)).toEqual([200, 0.5]);
  });

  it('has the other activations, with no numbers', () => {
    const { facts, layout } = parseModelConfig({ ...SIZES, hidden_act: 'relu2' });
    expect(JSON.parse(facts.identity)).toMatchObject({ mlpActivation: 'relu2' });
    expect(layout.vectors.some(({ key }) => key.endsWith('xielu'))).toBe(false);
  });

  it.each([{ qk_norm: false }, { post_norm: true }, { mlp_bias: true }])('refuses %j by name', (field) => {
    expect(() => parseModelConfig({ ...SIZES, ...field })).toThrow(
      expect.objectContaining({ code: 'model-config-unsupported', where: Object.keys(field)[0] }),
    );
  });
});
