/**
 * OLMo 3: an OLMo 2 in which three layers of four slide. Those have a plain rotation; a scaling is for the others.
 *
 * Source: the model code of transformers (models/olmo3).
 */

import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import type { RopeParameters } from '../rope-frequencies.js';
import { OLMO2_TRAITS, olmoLayout, recordOlmo } from './olmo2.js';

export interface Olmo3Config extends DecoderConfig {
  /** Rotation of the layers that slide; `rope` is that of the others. */
  readonly slidingRope: RopeParameters;
}

const THETA = 500_000;
/** One layer in so many sees everything, where a config does not list them. */
const PATTERN = 4;

const TRAITS: DecoderTraits = {
  ...OLMO2_TRAITS,
  window: (fields) => {
    if (!fields.states('sliding_window')) return 4096;
    return fields.has('sliding_window') ? fields.count('sliding_window') : null;
  },
  slides: (_, layer) => (layer + 1) % PATTERN !== 0,
  defaults: { maxPositions: 2048, ropeTheta: THETA },
};

const FULL_ROPE = 'full';
const SLIDING_ROPE = 'sliding';

function readConfig(fields: ConfigFields, architecture: string): Olmo3Config {
  const { full, sliding } = readRopes(fields);
  const config = readDecoderConfig(full, architecture, TRAITS);
  return { ...config, slidingRope: readDecoderConfig(sliding, architecture, TRAITS).rope };
}

/** The fields with the rotation of full layers as that of all, and with that of those that slide. */
function readRopes(fields: ConfigFields): { full: ConfigFields; sliding: ConfigFields } {
  const parameters = fields.object('rope_parameters');
  const of = (name: string): ConfigFields =>
    fields.replacing('rope_parameters', parameters?.object(name)?.json ?? null);
  if (parameters?.has('full_attention', 'sliding_attention')) {
    // A scaling beside them is added to the rotation of full layers.
    const scaling = fields.object('rope_scaling')?.json ?? {};
    const full = { ...parameters.object('full_attention')?.json, ...scaling };
    return {
      full: fields.replacing('rope_parameters', full).replacing('rope_scaling', null),
      sliding: of('sliding_attention').replacing('rope_scaling', null),
    };
  }
  if (parameters !== null && !parameters.empty)
    throw fields.odd('rope_parameters', parameters.json, '"full_attention" and "sliding_attention"');
  // Readers disagree on which layers another one is for.
  if (fields.positive('rope_theta', THETA) !== THETA)
    throw fields.unsupported(
      'rope_theta',
      `a rope_theta of ${fields.positive('rope_theta')} that is not said to be of full or of sliding layers`,
      'State "rope_parameters" with "full_attention" and "sliding_attention", each with its "rope_theta".',
    );
  return {
    full: fields,
    sliding: fields.replacing('rope_scaling', null).replacing('rope_parameters', null),
  };
}

export const olmo3: Family<Olmo3Config> = {
  name: 'olmo3',
  architectures: ['Olmo3ForCausalLM'],
  modelTypes: ['olmo3'],
  readConfig,
  layout: (config) =>
    olmoLayout(config, [
      { key: FULL_ROPE, parameters: config.rope, dims: config.rotaryDims },
      { key: SLIDING_ROPE, parameters: config.slidingRope, dims: config.rotaryDims },
    ]),
  record: (ops, config, weights, options) =>
    recordOlmo(ops, config, weights, options, (window) => (window === null ? FULL_ROPE : SLIDING_ROPE)),
};
