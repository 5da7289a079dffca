/**
 * Phi-3, 3.5, 4 and 4-mini: a Llama whose q, k and v are one tensor, and so are gate and up. Those for long contexts scale the
 * rotation by lists of factors (longrope), one for contexts up to the original one and one for longer ones; the served context
 * decides between them. Of Phi-4-mini's heads a part rotates.
 *
 * Source: the model code of transformers (models/phi3).
 */

import { decoderLayout } from '../blocks/layout-builder.js';
import { preNormWeights } from '../blocks/residual.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import type { WeightLayout } from '../layout.js';
import { ROPE, recordPreNorm } from './pre-norm.js';

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: false,
  rotation: { partial: 1 },
  window: (fields) => (fields.has('sliding_window') ? fields.count('sliding_window') : null),
  slides: () => true,
  defaults: { maxPositions: 4096, ropeTheta: 10_000 },
};

const DEFAULTS = { rms_norm_eps: 1e-5, original_max_position_embeddings: 4096 };

function readConfig(stated: ConfigFields, architecture: string): DecoderConfig {
  let fields = stated.withDefaults(DEFAULTS);
  for (const name of ['rope_parameters', 'rope_scaling']) {
    const section = fields.object(name);
    const type = section?.text(['rope_type', 'type']) ?? 'default';
    if (section === null || type === 'default') continue;
    // In these checkpoints all names of a scaling mean longrope.
    if (type !== 'longrope' && type !== 'su' && type !== 'yarn')
      throw section.unsupported(
        'rope_type',
        `the rotary scaling ${JSON.stringify(type)} in a Phi-3`,
        'Use a variant with the scaling that was published: longrope.',
      );
    fields = fields.replacing(name, { ...section.json, rope_type: 'longrope' });
  }
  return readDecoderConfig(fields, architecture, TRAITS);
}

function layout(config: DecoderConfig): WeightLayout {
  const { hiddenSize, intermediateSize, heads, kvHeads, headDim } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      // Rows of q, then k, then v; of gate, then up.
      const qkv = { tensor: 'self_attn.qkv_proj', rows: (heads + 2 * kvHeads) * headDim };
      // As some converters of GGUF files have had them.
      const apart = ['q', 'k', 'v'].map((part) => ({
        tensor: `self_attn.${part}_proj`,
        rows: (part === 'q' ? heads : kvHeads) * headDim,
      }));
      at.matrix('attention', 'qkv', hiddenSize, [qkv], { others: apart });
      at.matrix('attention', 'output', heads * headDim, [{ tensor: 'self_attn.o_proj', rows: hiddenSize }]);
      at.cache(config, config.windows[at.index] ?? null);
      at.matrix('mlp', 'gate-up', hiddenSize, [{ tensor: 'mlp.gate_up_proj', rows: 2 * intermediateSize }]);
      at.matrix('mlp', 'down', intermediateSize, [{ tensor: 'mlp.down_proj', rows: hiddenSize }]);
    },
  });
}

export const phi3: Family<DecoderConfig> = {
  name: 'phi3',
  architectures: ['Phi3ForCausalLM'],
  modelTypes: ['phi3'],
  readConfig,
  layout,
  record: recordPreNorm,
};
