import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../weights/folder-files.js';
import { ConfigFields } from './config-fields.js';
import { parseRope, readRopeSections, readRotaryDims } from './rope-config.js';

describe('parseRope', () => {
  const parse = (rope_scaling: JsonObject, more: JsonObject = {}) =>
    parseRope(new ConfigFields({ rope_scaling, ...more }, 'test'), 1024, 10_000, 8);

  it('refuses other scalings by name', () => {
    expect(() => parse({ rope_type: 'axial' })).toThrow(/"axial" is not supported/);
    expect(() => parse({ rope_type: 'dynamic', factor: 2, alpha: 1000 })).toThrow(/"alpha": 1000/);
    const growing = { rope_type: 'yarn', factor: 2, llama_4_scaling_beta: 0.1 };
    expect(() => parse(growing)).toThrow(/"llama_4_scaling_beta": 0.1/);
    expect(parse({ ...growing, llama_4_scaling_beta: 0 })).toMatchObject({ type: 'yarn' });
    expect(parse({ rope_type: 'dynamic', factor: 2, alpha: 0 })).toEqual({ type: 'dynamic', theta: 10_000 });
  });

  it('wants a factor of longrope for each pair that rotates', () => {
    const long_factor = [1, 2, 3, 4];
    for (const short_factor of [[1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, 0], [1, 2, 3, '4'], 4, null])
      expect(() => parse({ rope_type: 'longrope', long_factor, short_factor })).toThrow(
        /"short_factor" is .* a list of 4 numbers above 0/,
      );
    expect(parse({ rope_type: 'longrope', long_factor, short_factor: long_factor })).toMatchObject({
      type: 'longrope',
      attentionFactor: 1,
    });
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
      expect(parseRope(fields, 1024, 10_000, 8)).toEqual({ type: 'default', theta: 10_000 });
      expect(fields.notices).toMatchObject([{ fields: { factor: 4, where: 'test: rope_scaling' } }]);
    }
    const plain = new ConfigFields({ rope_scaling: { type: 'default', factor: 1 } }, 'test');
    expect(parseRope(plain, 1024, 10_000, 8).type).toBe('default');
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

describe('readRotaryDims', () => {
  const dims = (json: JsonObject, partial?: number) =>
    readRotaryDims(new ConfigFields(json, 'test'), 16, partial === undefined ? {} : { partial });

  it("rounds a part of the head down; the rotation's own field goes before", () => {
    expect(dims({}, 0.5)).toBe(8);
    expect(dims({ partial_rotary_factor: 0.7 }, 0.5)).toBe(11);
    expect(dims({ partial_rotary_factor: 0.7, rope_parameters: { partial_rotary_factor: 0.25 } }, 0.5)).toBe(
      4,
    );
    expect(dims({ rope_scaling: { partial_rotary_factor: 0.75 }, rope_parameters: {} }, 0.5)).toBe(12);
    expect(dims({ partial_rotary_factor: 1 })).toBe(16);
  });

  it('refuses a part where a family has none, and what is no part', () => {
    expect(() => dims({ partial_rotary_factor: 0.5 })).toThrow(/partial_rotary_factor 0.5.* not supported/);
    expect(() => dims({ rope_scaling: { partial_rotary_factor: 0.5 } })).toThrow(/partial_rotary_factor 0.5/);
    for (const partial_rotary_factor of [1.5, 0.05, 0, -1, 'half'])
      expect(() => dims({ partial_rotary_factor }, 1)).toThrow(/"partial_rotary_factor" is/);
  });
});

describe('readRopeSections', () => {
  const sections = (json: JsonObject) => readRopeSections(new ConfigFields(json, 'test'), 128);

  it('reads runs of pairs, and pairs that take turns', () => {
    const runs = { rope_scaling: { type: 'mrope', mrope_section: [16, 24, 24] } };
    expect(sections(runs)).toEqual({ sizes: [16, 24, 24], interleaved: false });
    const turns = { rope_parameters: { mrope_section: [24, 20, 20], mrope_interleaved: true } };
    expect(sections(turns)).toEqual({ sizes: [24, 20, 20], interleaved: true });
    expect(sections({ rope_scaling: { type: 'linear', factor: 2 } })).toBeNull();
    expect(sections({})).toBeNull();
    // Heads of another size: text does not meet them.
    expect(sections({ rope_scaling: { mrope_section: [16, 24, 25] } })).toBeNull();
  });

  it('refuses sections that are no three numbers of pairs', () => {
    for (const mrope_section of [[16, 24], [16, 24, 24, 0], [-1, 33, 32], '16', [16.5, 23.5, 24]])
      expect(() => sections({ rope_scaling: { mrope_section } })).toThrow(
        /"mrope_section" is .* three numbers of pairs, 64 in all/,
      );
  });
});
