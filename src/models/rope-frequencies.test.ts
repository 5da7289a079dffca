import { describe, expect, it } from 'vitest';
import { readPacked } from '../../test/fixtures/read-packed.js';
import type { JsonObject } from '../weights/folder-files.js';
import { ConfigFields } from './config-fields.js';
import { parseRope, readRotaryDims } from './rope-config.js';
import { ropeFrequencies, ropeVariant } from './rope-frequencies.js';

interface RopeCase {
  readonly head_dim: number;
  readonly max_position_embeddings: number;
  readonly rope_parameters: JsonObject;
  readonly frequencies: readonly number[];
  readonly attention_factor: number;
  /** Longest context; omitted where all have the same frequencies. */
  readonly context?: number;
}

const fixture = readPacked(
  new URL('../../test/fixtures/models/rope-frequencies.json.gz', import.meta.url),
) as { cases: Record<string, RopeCase> };

/** A family that can do all. */
const TRAITS = { partial: 1, alpha: true };

function read(fields: JsonObject, { head_dim, max_position_embeddings }: RopeCase) {
  const config = new ConfigFields(fields, 'test');
  const dims = readRotaryDims(config, head_dim, TRAITS);
  return { dims, rope: parseRope(config, max_position_embeddings, 1, dims, TRAITS) };
}

describe('ropeFrequencies', () => {
  it.each(Object.entries(fixture.cases))('%s agrees with transformers', (_, expected) => {
    const { rope_parameters, max_position_embeddings, context = max_position_embeddings } = expected;
    const { rope, dims } = read({ rope_parameters }, expected);
    const { frequencies, attentionFactor } = ropeFrequencies(rope, dims, context);
    expect(attentionFactor).toBeCloseTo(expected.attention_factor, 9);
    expect(frequencies.length).toBe(expected.frequencies.length);
    // The fixture was computed in f32.
    for (const [i, frequency] of expected.frequencies.entries())
      expect(Math.abs(frequencies[i]! - frequency)).toBeLessThanOrEqual(2e-6 * frequency);
  });

  it('reads the fields of transformers 4 as those of 5', () => {
    for (const one of Object.values(fixture.cases)) {
      const { rope_parameters } = one;
      const { rope_theta, rope_type, partial_rotary_factor, ...rest } = rope_parameters;
      const fields = { rope_theta, partial_rotary_factor, rope_scaling: { type: rope_type, ...rest } };
      expect(read(fields, one)).toEqual(read({ rope_parameters }, one));
    }
  });

  it('takes the long factors where the served context is longer than the original one', () => {
    const { rope } = read(
      { rope_parameters: fixture.cases.longrope!.rope_parameters },
      fixture.cases.longrope!,
    );
    const at = (context: number) => [
      ropeVariant(rope, context),
      ropeFrequencies(rope, 8, context).frequencies[0],
    ];
    expect(at(64)).toEqual(['short', 1 / 1.5]);
    expect(at(65)).toEqual(['long', 1 / 3]);
    expect(ropeVariant({ type: 'default', theta: 1e4 }, 65)).toBe('');
  });
});
