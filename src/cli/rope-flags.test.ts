import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { addRopeFlags, overridesOf, type RopeFlags } from './rope-flags.js';

function read(...args: string[]) {
  const command = addRopeFlags(new Command())
    .exitOverride()
    .configureOutput({ writeErr: () => {} });
  return overridesOf(command.parse(args, { from: 'user' }).opts<RopeFlags>());
}

describe('rope flags', () => {
  it('set fields of config.json', () => {
    expect(read()).toBeUndefined();
    expect(read('--rope-theta', '1e6')).toEqual({ rope_theta: 1e6 });
    expect(read('--rope-freq-base', '500000')).toEqual({ rope_theta: 500_000 });
    expect(read('--rope-scale', '4')).toEqual({ rope_scaling: { rope_type: 'linear', factor: 4 } });
    expect(read('--rope-freq-scale', '0.25')).toEqual(read('--rope-scale', '4'));
    expect(read('--rope-scaling', 'none')).toEqual({ rope_scaling: { rope_type: 'default' } });
    expect(read('--rope-scaling', 'YARN', '--rope-scale', '4', '--yarn-orig-ctx', '2048')).toEqual({
      rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 2048 },
    });
    expect(
      read('--rope-scale=4', '--yarn-beta-fast=16', '--yarn-beta-slow=2', '--yarn-attn-factor=0.5'),
    ).toEqual({
      rope_scaling: {
        rope_type: 'yarn',
        factor: 4,
        beta_fast: 16,
        beta_slow: 2,
        attention_factor: 0.5 * (0.1 * Math.log(4) + 1),
      },
    });
    const json = '{"rope_type": "yarn", "factor": 2}';
    expect(read('--rope-scaling', json)).toEqual({ rope_scaling: JSON.parse(json) });
    expect(read('--hf-overrides', '{"a": 1}', '--rope-theta', '2')).toEqual({ a: 1, rope_theta: 2 });
  });

  it.each([
    [['--hf-overrides', '{a: 1}'], /no JSON/],
    [['--hf-overrides', '[1]'], /JSON object/],
    [['--hf-overrides', '3'], /JSON object/],
    [['--rope-scaling', 'dynamic'], /none, linear, yarn/],
    [['--rope-scaling', '{'], /no JSON/],
    [['--rope-theta', '0'], /number/],
    [['--rope-theta', '1', '--rope-freq-base', '2'], /differ/],
    [['--rope-scale', '4', '--rope-freq-scale', '0.5'], /differ/],
    [['--rope-scaling', 'yarn'], /needs a factor/],
    [['--rope-scaling', 'none', '--rope-scale', '2'], /no factor/],
    [['--rope-scaling', 'linear', '--rope-scale', '2', '--yarn-orig-ctx', '64'], /not linear/],
    [['--rope-scaling', '{"type": "yarn"}', '--rope-scale', '2'], /says all/],
    [['--hf-overrides', '{"rope_theta": 1}', '--rope-theta', '2'], /both set rope_theta/],
  ])('refuse %j', (args, message) => {
    expect(() => read(...args)).toThrow(message);
  });
});
