/** Fields that the `vision_config` of several towers have. */

import type { UngatedActivation } from '../../device/graph.js';
import type { ConfigFields } from '../config-fields.js';
import type { WeightLayout } from '../layout.js';
import { CHANNELS } from './tower-weights.js';

const ACTIVATIONS: Readonly<Record<string, UngatedActivation>> = {
  silu: 'silu',
  gelu: 'gelu',
  gelu_pytorch_tanh: 'gelu-tanh',
  quick_gelu: 'quick-gelu',
};

/** Errors: `model-config-unsupported`. */
export function readActivation(
  fields: ConfigFields,
  fallback: UngatedActivation,
  field = 'hidden_act',
): UngatedActivation {
  const name = fields.text(field);
  const activation = name === null ? fallback : ACTIVATIONS[name];
  if (activation !== undefined) return activation;
  throw fields.unsupported(
    field,
    `the activation ${JSON.stringify(name)} in a vision tower`,
    `Use a model with one of: ${Object.keys(ACTIVATIONS).join(', ')}.`,
  );
}

/** Errors: `model-config`, for heads that kernels have no room for or that do not divide the hidden states. */
export function readHeads(
  fields: ConfigFields,
  names: string | readonly string[],
  hiddenSize: number,
  fallback: number,
): number {
  const heads = fields.count(names, fallback);
  if (hiddenSize % heads === 0 && (hiddenSize / heads) % 4 === 0 && hiddenSize / heads <= MOST_HEAD_DIM)
    return heads;
  const name = typeof names === 'string' ? names : names[0]!;
  throw fields.odd(
    name,
    heads,
    `a number that gives heads of a multiple of 4, at most ${MOST_HEAD_DIM} wide (of ${hiddenSize})`,
  );
}

const MOST_HEAD_DIM = 128;

/** Errors: `model-config`, for pictures that are not red, green and blue. */
export function checkChannels(fields: ConfigFields, names: string | readonly string[]): void {
  const channels = fields.count(names, CHANNELS);
  const name = typeof names === 'string' ? names : names[0]!;
  if (channels !== CHANNELS) throw fields.odd(name, channels, '3 (red, green and blue)');
}

/** A side in pixels, given as one number or as two equal ones. */
export function readSide(fields: ConfigFields, name: string, fallback: number): number {
  const value = fields.value(name);
  if (!Array.isArray(value)) return fields.count(name, fallback);
  const [first] = value as unknown[];
  if (
    typeof first === 'number' &&
    Number.isSafeInteger(first) &&
    first > 0 &&
    value.every((v) => v === first)
  )
    return first;
  throw fields.odd(name, value, 'one side in pixels, or equal ones');
}

/**
 * Blocks that are run, where `vision_feature_layer` (`name`) names one of `depth + 1` hidden states: the first is before all blocks.
 * Errors: `model-config`, `model-config-unsupported` for several.
 */
export function readFeatureLayer(
  fields: ConfigFields,
  depth: number,
  fallback: number,
  name = 'vision_feature_layer',
): number {
  const layer = fields.value(name) ?? fallback;
  if (Array.isArray(layer))
    throw fields.unsupported(
      name,
      'features of several blocks of a tower',
      'Use a model that takes those of one block.',
    );
  if (typeof layer === 'number' && Number.isSafeInteger(layer) && layer >= -depth - 1 && layer <= depth)
    return layer < 0 ? depth + 1 + layer : layer;
  throw fields.odd(name, layer, `a block of a tower of ${depth}`);
}

/** Whether a decoder turns by three axes; else a notice says that pictures are refused. Of text all axes are one, and sections do not matter. */
export function turnsByAxes(fields: ConfigFields, { ropes }: WeightLayout): boolean {
  if (ropes.every(({ sections }) => sections !== undefined)) return true;
  fields.notice('pictures are refused: config.json has no sections of the rotation that fit its heads', {
    field: 'mrope_section',
  });
  return false;
}

/** Refuses what a field says other than what is computed. Errors: `model-config-unsupported`. */
export function onlyAs(fields: ConfigFields, name: string, fallback: unknown, wanted: unknown): void {
  const value = fields.value(name) ?? fallback;
  if (value === wanted) return;
  throw fields.unsupported(
    name,
    `${JSON.stringify(value)} for "${name}" in what sees`,
    `Use a model with ${JSON.stringify(wanted)}.`,
  );
}
