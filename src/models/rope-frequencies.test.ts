import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../weights/folder-files.js';
import { ConfigFields } from './config-fields.js';
import { parseRope, ropeFrequencies } from './rope-frequencies.js';

interface RopeCase {
  readonly head_dim: number;
  readonly max_position_embeddings: number;
  readonly rope_parameters: JsonObject;
  readonly frequencies: readonly number[];
  readonly attention_factor: number;
}

const fixture = JSON.parse(
  readFileSync(new URL('../../test/fixtures/models/rope-frequencies.json', import.meta.url), 'utf8'),
) as { cases: Record<string, RopeCase> };

describe('ropeFrequencies', () => {
  it.each(Object.entries(fixture.cases))('%s agrees with transformers', (_, expected) => {
    const { rope_parameters, max_position_embeddings, head_dim } = expected;
    const rope = parseRope(new ConfigFields({ rope_parameters }, 'test'), max_position_embeddings, 1);
    const { frequencies, attentionFactor } = ropeFrequencies(rope, head_dim);
    expect(attentionFactor).toBeCloseTo(expected.attention_factor, 9);
    expect(frequencies.length).toBe(expected.frequencies.length);
    // The fixture was computed in f32.
    for (const [i, frequency] of expected.frequencies.entries())
      expect(Math.abs(frequencies[i]! / frequency - 1)).toBeLessThan(2e-6);
  });

  it('reads the fields of transformers 4 as those of 5', () => {
    for (const { rope_parameters, max_position_embeddings } of Object.values(fixture.cases)) {
      const { rope_theta, rope_type, ...rest } = rope_parameters;
      const fields = { rope_theta, rope_scaling: { type: rope_type, ...rest } };
      expect(parseRope(new ConfigFields(fields, 'test'), max_position_embeddings, 1)).toEqual(
        parseRope(new ConfigFields({ rope_parameters }, 'test'), max_position_embeddings, 1),
      );
    }
  });
});

describe('parseRope', () => {
  const parse = (rope_scaling: JsonObject, more: JsonObject = {}) =>
    parseRope(new ConfigFields({ rope_scaling, ...more }, 'test'), 1024, 10_000);

  it('refuses other scalings by name', () => {
    expect(() => parse({ rope_type: 'longrope', long_factor: [] })).toThrow(/"longrope" is not supported/);
    expect(() => parse({ rope_type: 'linear', factor: 2, partial_rotary_factor: 0.5 })).toThrow(
      /partial_rotary_factor 0.5/,
    );
  });

  it('prefers a rope_scaling added by hand, and keeps the theta', () => {
    const more = { rope_parameters: { rope_type: 'default', rope_theta: 1e6 } };
    expect(parse({ rope_type: 'linear', factor: 4 }, more)).toEqual({
      type: 'linear',
      theta: 1e6,
      factor: 4,
    });
    expect(parse({}, more)).toEqual({ type: 'default', theta: 1e6 });
  });

  it('refuses rotations by type of layer', () => {
    const rope_parameters = { full_attention: { rope_type: 'default', rope_theta: 1e6 } };
    expect(() => parse({}, { rope_parameters })).toThrow(/differs by type of layer/);
  });

  it('says that a factor without a type counts for nothing, as in transformers', () => {
    for (const scaling of [{ factor: 4 }, { type: 'default', factor: 4 }]) {
      const fields = new ConfigFields({ rope_scaling: scaling }, 'test');
      expect(parseRope(fields, 1024, 10_000)).toEqual({ type: 'default', theta: 10_000 });
      expect(fields.notices).toMatchObject([{ fields: { factor: 4, where: 'test: rope_scaling' } }]);
    }
    const plain = new ConfigFields({ rope_scaling: { type: 'default', factor: 1 } }, 'test');
    expect(parseRope(plain, 1024, 10_000).type).toBe('default');
    expect(plain.notices).toEqual([]);
  });

  it('misses the fields a scaling needs', () => {
    expect(() => parse({ rope_type: 'linear' })).toThrow(/rope_scaling has no "factor"/);
    expect(() => parse({ rope_type: 'llama3', factor: 8, low_freq_factor: 1 })).toThrow(/"high_freq_factor"/);
    expect(() => parse({ rope_type: 'llama3', factor: 8, low_freq_factor: 4, high_freq_factor: 4 })).toThrow(
      /more than low_freq_factor/,
    );
    expect(() => parse({ rope_type: 'yarn', factor: -1 })).toThrow(/above 0/);
  });

  it('takes the original length from the top level, the scaling or the context, in that order', () => {
    const yarn = { rope_type: 'yarn', factor: 2 };
    expect(parse(yarn)).toMatchObject({ originalMaxPositions: 1024 });
    const stated = { ...yarn, original_max_position_embeddings: 512 };
    expect(parse(stated)).toMatchObject({ originalMaxPositions: 512 });
    expect(parse(stated, { original_max_position_embeddings: 256 })).toMatchObject({
      originalMaxPositions: 256,
    });
  });
});
