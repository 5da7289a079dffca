/**
 * The frequencies of rotary position embedding, in float64.
 *
 * Plain RoPE (Su et al., arXiv:2104.09864) turns pair i of a head by `position · θ_i` with
 * `θ_i = base^(−2i / dims)`. The variants stretch a trained model over longer contexts:
 *
 * - `linear` (position interpolation, Chen et al., arXiv:2306.15595): `θ_i / factor`.
 * - `llama3` (Llama 3.1's model code): by wavelength `λ = 2π / θ_i`. Short ones (λ < original / high) stay, long ones
 *   (λ > original / low) are divided by the factor, between them the two are mixed with
 *   `s = (original / λ − low) / (high − low)`: `(1 − s) · θ_i / factor + s · θ_i`.
 * - `yarn` (Peng et al., arXiv:2309.00071, §3.2-3.4): the same idea with a linear ramp over the pair's index. The index
 *   whose pair turns r times within the original context is `dims · ln(original / 2πr) / (2 ln base)`; the ramp
 *   goes from the one for `beta_fast` to the one for `beta_slow`. Scores are also sharpened: cos and sin are
 *   multiplied by `0.1 · ln(factor) + 1`, or by the quotient of two such terms where `mscale` and `mscale_all_dim` are
 *   given.
 * - `dynamic` (NTK-aware, base grown with the length of the sequence): it changes what earlier positions were
 *   rotated by, which a cache of rotated keys cannot follow. Up to the trained length it equals plain RoPE, and so
 *   it is taken as that, with contexts limited to that length.
 */

import type { ConfigFields } from './config-fields.js';

export const ROPE_TYPES = ['default', 'linear', 'llama3', 'yarn', 'dynamic'] as const;

export type RopeParameters =
  | { readonly type: 'default' | 'dynamic'; readonly theta: number }
  | { readonly type: 'linear'; readonly theta: number; readonly factor: number }
  | {
      readonly type: 'llama3';
      readonly theta: number;
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      /** Context the model was trained on before it was stretched. */
      readonly originalMaxPositions: number;
    }
  | {
      readonly type: 'yarn';
      readonly theta: number;
      readonly factor: number;
      readonly originalMaxPositions: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      /** Multiplies cos and sin. */
      readonly attentionFactor: number;
      /** Round the ramp's ends outwards to whole indices. */
      readonly truncate: boolean;
    };

export interface RopeFrequencies {
  /** `[dims / 2]` radians a position. */
  readonly frequencies: Float64Array;
  /** Multiplies cos and sin of both q and k. */
  readonly attentionFactor: number;
}

/**
 * @param dims leading elements of a head that rotate; even
 * @example ropeFrequencies({ type: 'default', theta: 10000 }, 128).frequencies[0] // 1
 */
export function ropeFrequencies(rope: RopeParameters, dims: number): RopeFrequencies {
  const frequencies = new Float64Array(dims / 2);
  for (let i = 0; i < frequencies.length; i++) frequencies[i] = rope.theta ** ((-2 * i) / dims);
  switch (rope.type) {
    case 'default':
    case 'dynamic':
      return { frequencies, attentionFactor: 1 };
    case 'linear':
      for (let i = 0; i < frequencies.length; i++) frequencies[i]! /= rope.factor;
      return { frequencies, attentionFactor: 1 };
    case 'llama3':
      for (let i = 0; i < frequencies.length; i++) frequencies[i] = llama3(frequencies[i]!, rope);
      return { frequencies, attentionFactor: 1 };
    case 'yarn':
      yarn(frequencies, rope, dims);
      return { frequencies, attentionFactor: rope.attentionFactor };
  }
}

function llama3(frequency: number, rope: Extract<RopeParameters, { type: 'llama3' }>): number {
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = rope;
  // Turns within the original context: original / λ.
  const turns = (originalMaxPositions * frequency) / (2 * Math.PI);
  if (turns > highFreqFactor) return frequency;
  if (turns < lowFreqFactor) return frequency / factor;
  const smooth = (turns - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
  return ((1 - smooth) * frequency) / factor + smooth * frequency;
}

function yarn(
  frequencies: Float64Array,
  rope: Extract<RopeParameters, { type: 'yarn' }>,
  dims: number,
): void {
  const indexOf = (turns: number): number =>
    (dims * Math.log(rope.originalMaxPositions / (turns * 2 * Math.PI))) / (2 * Math.log(rope.theta));
  let low = indexOf(rope.betaFast);
  let high = indexOf(rope.betaSlow);
  if (rope.truncate) {
    low = Math.floor(low);
    high = Math.ceil(high);
  }
  low = Math.max(low, 0);
  high = Math.min(high, dims - 1);
  // A ramp of no width is a step.
  const width = high === low ? 0.001 : high - low;
  for (let i = 0; i < frequencies.length; i++) {
    const stretched = Math.min(1, Math.max(0, (i - low) / width));
    frequencies[i]! *= 1 - stretched + stretched / rope.factor;
  }
}

/** `0.1 · mscale · ln(factor) + 1`, and 1 where nothing is stretched. */
function yarnScale(factor: number, mscale: number): number {
  return factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
}

/**
 * Reads `rope_parameters` (transformers 5) or `rope_theta` with `rope_scaling` (transformers 4). Where a config has
 * both, `rope_scaling` counts: it is what people add by hand to stretch a model.
 *
 * @throws KvantError `model-config` (a field missing or odd), `model-config-unsupported` (another rope type, a rotation
 * that differs by layer, or only a part of each head rotated)
 */
export function parseRope(config: ConfigFields, maxPositions: number, defaultTheta: number): RopeParameters {
  const parameters = config.object('rope_parameters');
  const scaling = config.object('rope_scaling');
  const nested = scaling !== null && !scaling.empty ? scaling : parameters;
  refuseOtherRotations(config, parameters, scaling);
  const theta =
    nested?.positiveOrNull('rope_theta') ??
    config.positiveOrNull('rope_theta') ??
    parameters?.positiveOrNull('rope_theta') ??
    defaultTheta;
  if (nested === null) return { type: 'default', theta };
  const type = nested.text(['rope_type', 'type']) ?? 'default';
  if (type === 'default' && (nested.positiveOrNull('factor') ?? 1) !== 1)
    nested.notice('the factor of the rotation counts for nothing: config.json names no way of scaling', {
      where: nested.where,
      factor: nested.positiveOrNull('factor'),
    });
  if (type === 'default' || type === 'dynamic') return { type, theta };
  if (type !== 'linear' && type !== 'llama3' && type !== 'yarn')
    throw nested.unsupported(
      'rope_type',
      `the rotary scaling ${JSON.stringify(type)}`,
      `Use a model with one of: ${ROPE_TYPES.join(', ')}.`,
    );
  if (type === 'linear') return { type, theta, factor: nested.positive('factor') };
  const originalMaxPositions = config.count(
    'original_max_position_embeddings',
    nested.count('original_max_position_embeddings', maxPositions),
  );
  if (type === 'llama3') {
    const lowFreqFactor = nested.positive('low_freq_factor');
    const highFreqFactor = nested.positive('high_freq_factor');
    if (highFreqFactor <= lowFreqFactor)
      throw nested.odd('high_freq_factor', highFreqFactor, `more than low_freq_factor (${lowFreqFactor})`);
    const factor = nested.positive('factor');
    return { type, theta, factor, lowFreqFactor, highFreqFactor, originalMaxPositions };
  }
  const factor = nested.positive('factor', maxPositions / originalMaxPositions);
  // 0 is as good as none.
  const mscale = nested.atLeastZero('mscale', 0);
  const mscaleAllDim = nested.atLeastZero('mscale_all_dim', 0);
  const implied =
    mscale !== 0 && mscaleAllDim !== 0
      ? yarnScale(factor, mscale) / yarnScale(factor, mscaleAllDim)
      : yarnScale(factor, 1);
  return {
    type,
    theta,
    factor,
    originalMaxPositions,
    betaFast: nested.positive('beta_fast', 32),
    betaSlow: nested.positive('beta_slow', 1),
    attentionFactor: nested.positive('attention_factor', implied),
    truncate: nested.flag('truncate', true),
  };
}

function refuseOtherRotations(config: ConfigFields, ...sections: readonly (ConfigFields | null)[]): void {
  for (const section of [config, ...sections]) {
    const partial = section?.positiveOrNull('partial_rotary_factor') ?? 1;
    if (partial !== 1)
      throw config.unsupported(
        'partial_rotary_factor',
        `rotating a part of each head (partial_rotary_factor ${partial})`,
        'Use a model whose heads rotate whole.',
      );
  }
  for (const section of sections) {
    if (section?.has('full_attention', 'sliding_attention'))
      throw section.unsupported(
        'rope_parameters',
        'a rotation that differs by type of layer',
        'Use a model with one rotation for all layers.',
      );
  }
}

/**
 * The longest context the rotation was made for. `max_position_embeddings` as published means the stretched length
 * for llama3, the trained one for linear, and either for yarn.
 */
export function ropeMaxPositions(rope: RopeParameters, maxPositions: number): number {
  if (rope.type === 'linear') return Math.floor(maxPositions * rope.factor);
  if (rope.type === 'yarn')
    return Math.max(maxPositions, Math.floor(rope.originalMaxPositions * rope.factor));
  return maxPositions;
}
