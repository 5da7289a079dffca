/** What config.json says about rotation, read into parameters. Frequencies are made of them in rope-frequencies.ts. */

import { ROPE_AXES, type RopeSections } from '../device/rope.js';
import type { ConfigFields } from './config-fields.js';
import { ROPE_TYPES, type RopeParameters } from './rope-frequencies.js';

/** `0.1 · mscale · ln(factor) + 1`, and 1 where nothing is stretched. */
export function yarnScale(factor: number, mscale: number): number {
  return factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
}

/** What a family's rotation may have that those of most cannot. */
export interface RotationTraits {
  /** Part of each head that rotates where config.json does not say. Where this is omitted whole heads rotate. */
  readonly partial?: number;
  /** `alpha` of a dynamic scaling grows the base once, as Hunyuan has it. Default: it is refused. */
  readonly alpha?: boolean;
  /** `llama_4_scaling_beta` lets queries grow, and the family reads it. Default: it is refused. */
  readonly queryGrowth?: boolean;
}

/**
 * Reads `rope_parameters` (transformers 5) or `rope_theta` with `rope_scaling` (transformers 4). Where a config has
 * both, `rope_scaling` counts: it is what people add by hand to stretch a model.
 *
 * @param dims leading elements of a head that rotate, to check lists by
 * @throws KvantError `model-config` (a field missing or odd), `model-config-unsupported` (another rope type, or a rotation
 * that differs by layer)
 */
export function parseRope(
  config: ConfigFields,
  maxPositions: number,
  defaultTheta: number,
  dims: number,
  traits: RotationTraits = {},
): RopeParameters {
  const parameters = config.object('rope_parameters');
  const nested = ropeSection(config);
  for (const section of [parameters, nested]) refuseByLayer(section);
  const theta =
    nested?.positiveOrNull('rope_theta') ??
    config.positiveOrNull('rope_theta') ??
    parameters?.positiveOrNull('rope_theta') ??
    defaultTheta;
  if (nested === null) return { type: 'default', theta };
  const beta = nested.atLeastZero('llama_4_scaling_beta', 0);
  if (beta !== 0 && traits.queryGrowth !== true)
    throw nested.unsupported(
      'llama_4_scaling_beta',
      `"llama_4_scaling_beta": ${beta} in this family`,
      'Use a checkpoint without it. Ministral 3 has it: its model_type is ministral3.',
    );
  const type = nested.text(['rope_type', 'type']) ?? 'default';
  if (type === 'default' && (nested.positiveOrNull('factor') ?? 1) !== 1)
    nested.notice('the factor of the rotation counts for nothing: config.json names no way of scaling', {
      where: nested.where,
      factor: nested.positiveOrNull('factor'),
    });
  if (type === 'default') return { type, theta };
  if (type === 'dynamic') return dynamic(nested, theta, traits);
  if (type === 'linear') return { type, theta, factor: nested.positive('factor') };
  if (type === 'proportional') return proportional(config, nested, theta, dims);
  if (type !== 'llama3' && type !== 'yarn' && type !== 'longrope')
    throw nested.unsupported(
      'rope_type',
      `the rotary scaling ${JSON.stringify(type)}`,
      `Use a model with one of: ${ROPE_TYPES.join(', ')}.`,
    );
  const originalMaxPositions = config.count(
    'original_max_position_embeddings',
    nested.count('original_max_position_embeddings', maxPositions),
  );
  switch (type) {
    case 'llama3':
      return llama3(nested, theta, originalMaxPositions);
    case 'yarn':
      return yarn(nested, theta, originalMaxPositions, maxPositions);
    case 'longrope':
      return longrope(nested, theta, originalMaxPositions, maxPositions, dims);
  }
}

/**
 * How pairs are dealt out to the three axes of positions (`mrope_section`, `mrope_interleaved`); null where the config does not say, or
 * says it for heads of another size.
 *
 * @param dims leading elements of a head that rotate
 * @throws KvantError `model-config`, where they are no three numbers of pairs
 */
export function readRopeSections(config: ConfigFields, dims: number): RopeSections | null {
  const section = ropeSection(config);
  const sizes = section?.value('mrope_section');
  if (section === null || sizes === undefined || sizes === null) return null;
  const fits =
    Array.isArray(sizes) &&
    sizes.length === ROPE_AXES &&
    sizes.every((size) => Number.isSafeInteger(size) && size >= 0);
  if (!fits) throw section.odd('mrope_section', sizes, `three numbers of pairs, ${dims / 2} in all,`);
  const [time, height, width] = sizes as [number, number, number];
  // Text has one position on all axes: it does not meet the sections, and what sees asks for them.
  if (time + height + width !== dims / 2) return null;
  return { sizes: [time, height, width], interleaved: section.flag('mrope_interleaved', false) };
}

/** The object that says how positions are rotated. */
export function ropeSection(config: ConfigFields): ConfigFields | null {
  const scaling = config.object('rope_scaling');
  return scaling !== null && !scaling.empty ? scaling : config.object('rope_parameters');
}

/**
 * Leading elements of a head that rotate: `partial_rotary_factor` of it, rounded down; the whole head where a proportional rotation lets a part of
 * its pairs stand still.
 *
 * @throws KvantError `model-config-unsupported` where the family's heads rotate whole, `model-config`
 */
export function readRotaryDims(config: ConfigFields, headDim: number, { partial }: RotationTraits): number {
  const factor = partialFactor(config) ?? partial ?? 1;
  // Its part is one of the pairs: all of the head are looked up.
  if (ropeSection(config)?.text(['rope_type', 'type']) === 'proportional') return headDim;
  if (factor === 1) return headDim;
  if (partial === undefined)
    throw config.unsupported(
      'partial_rotary_factor',
      `rotating a part of each head (partial_rotary_factor ${factor}) in this family`,
      'Use a model whose heads rotate whole.',
    );
  const dims = Math.floor(headDim * factor);
  if (factor > 1 || dims < 1)
    throw config.odd('partial_rotary_factor', factor, `a part, from 1/${headDim} to 1, of each head`);
  return dims;
}

function dynamic(section: ConfigFields, theta: number, traits: RotationTraits): RopeParameters {
  // 0 is as good as none.
  const alpha = section.atLeastZero('alpha', 0);
  if (alpha === 0) return { type: 'dynamic', theta };
  if (traits.alpha === true) return { type: 'ntk-alpha', theta, alpha };
  throw section.unsupported(
    'alpha',
    `"alpha": ${alpha} of a dynamic scaling in this family`,
    'Use a model that is scaled otherwise.',
  );
}

function proportional(
  config: ConfigFields,
  section: ConfigFields,
  theta: number,
  dims: number,
): RopeParameters {
  const partial = partialFactor(config) ?? 1;
  if (partial > 1) throw config.odd('partial_rotary_factor', partial, 'a part, up to 1, of each head');
  const turning = Math.floor((partial * dims) / 2);
  return { type: 'proportional', theta, factor: section.positive('factor', 1), turning };
}

function partialFactor(config: ConfigFields): number | null {
  const nested = ropeSection(config)?.positiveOrNull('partial_rotary_factor') ?? null;
  return nested ?? config.positiveOrNull('partial_rotary_factor');
}

function llama3(section: ConfigFields, theta: number, originalMaxPositions: number): RopeParameters {
  const lowFreqFactor = section.positive('low_freq_factor');
  const highFreqFactor = section.positive('high_freq_factor');
  if (highFreqFactor <= lowFreqFactor)
    throw section.odd('high_freq_factor', highFreqFactor, `more than low_freq_factor (${lowFreqFactor})`);
  const factor = section.positive('factor');
  return { type: 'llama3', theta, factor, lowFreqFactor, highFreqFactor, originalMaxPositions };
}

function longrope(
  section: ConfigFields,
  theta: number,
  originalMaxPositions: number,
  maxPositions: number,
  dims: number,
): RopeParameters {
  const factor = section.positive('factor', maxPositions / originalMaxPositions);
  const implied = factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(originalMaxPositions));
  const factors = (name: string): readonly number[] => {
    const list = section.value(name);
    const length = Math.ceil(dims / 2);
    const fits = Array.isArray(list) && list.length === length && list.every((one) => isFactor(one));
    if (!fits) throw section.odd(name, list, `a list of ${length} numbers above 0, one a pair that rotates,`);
    return list as number[];
  };
  return {
    type: 'longrope',
    theta,
    shortFactors: factors('short_factor'),
    longFactors: factors('long_factor'),
    originalMaxPositions,
    attentionFactor: section.positive('attention_factor', implied),
  };
}

function isFactor(value: unknown): boolean {
  return typeof value === 'number' && value > 0 && value < Number.POSITIVE_INFINITY;
}

function yarn(
  section: ConfigFields,
  theta: number,
  originalMaxPositions: number,
  maxPositions: number,
): RopeParameters {
  const factor = section.positive('factor', maxPositions / originalMaxPositions);
  // 0 is as good as none.
  const mscale = section.atLeastZero('mscale', 0);
  const mscaleAllDim = section.atLeastZero('mscale_all_dim', 0);
  const implied =
    mscale !== 0 && mscaleAllDim !== 0
      ? yarnScale(factor, mscale) / yarnScale(factor, mscaleAllDim)
      : yarnScale(factor, 1);
  return {
    type: 'yarn',
    theta,
    factor,
    originalMaxPositions,
    betaFast: section.positive('beta_fast', 32),
    betaSlow: section.positive('beta_slow', 1),
    attentionFactor: section.positive('attention_factor', implied),
    truncate: section.flag('truncate', true),
  };
}

function refuseByLayer(section: ConfigFields | null): void {
  if (section?.has('full_attention', 'sliding_attention'))
    throw section.unsupported(
      'rope_parameters',
      'a rotation that differs by type of layer',
      'Use a model with one rotation for all layers.',
    );
}
