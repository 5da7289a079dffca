/** Qwen2 and Qwen2.5: biases on q, k and v; the upper layers may slide. */

import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import { preNormLayout, recordPreNorm } from './pre-norm.js';

/** What it means where a config leaves the field out; `null` means no window. */
const DEFAULT_WINDOW = 4096;

/** `sliding_window` counts only beside `use_sliding_window`; published configs state it either way. */
export function qwenWindow(fields: ConfigFields): number | null {
  if (!fields.flag('use_sliding_window', false)) return null;
  if (!fields.states('sliding_window')) return DEFAULT_WINDOW;
  return fields.has('sliding_window') ? fields.count('sliding_window') : null;
}

/** Layers from `max_window_layers` up slide. */
export function qwenSlides(fields: ConfigFields, layer: number): boolean {
  return layer >= fields.count('max_window_layers', 28, 0);
}

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: true, output: false, mlp: false }),
  qkNorm: false,
  window: qwenWindow,
  slides: qwenSlides,
  defaults: { maxPositions: 32_768, ropeTheta: 10_000 },
};

export const qwen2: Family<DecoderConfig> = {
  name: 'qwen2',
  architectures: ['Qwen2ForCausalLM'],
  modelTypes: ['qwen2'],
  readConfig: (fields, architecture) => readDecoderConfig(fields, architecture, TRAITS),
  layout: preNormLayout,
  record: recordPreNorm,
};
