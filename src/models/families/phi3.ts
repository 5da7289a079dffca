/**
 * Phi-3 and Phi-4 with plain rotation: a Llama whose q, k and v are one tensor, and so are gate and up.
 * Variants for long contexts (Phi-3.5 among them) scale the rotation by lists of factors (longrope) or rotate a part of each head: they are refused.
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
  window: (fields) => (fields.has('sliding_window') ? fields.count('sliding_window') : null),
  slides: () => true,
  defaults: { maxPositions: 4096, ropeTheta: 10_000 },
};

function readConfig(stated: ConfigFields, architecture: string): DecoderConfig {
  const fields = stated.withDefaults({ rms_norm_eps: 1e-5 });
  // In these checkpoints all names of a scaling mean longrope, `yarn` too.
  for (const name of ['rope_parameters', 'rope_scaling']) {
    const type = fields.object(name)?.text(['rope_type', 'type']) ?? 'default';
    if (type !== 'default')
      throw fields.unsupported(
        name,
        `a rotation of the type ${JSON.stringify(type)} (longrope)`,
        'Use a variant with a short context: its config.json has no rope_scaling.',
      );
  }
  return readDecoderConfig(fields, architecture, TRAITS);
}

function layout(config: DecoderConfig): WeightLayout {
  const { hiddenSize, intermediateSize, heads, kvHeads, headDim } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: headDim }],
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      // Rows of q, then k, then v; of gate, then up.
      const qkv = { tensor: 'self_attn.qkv_proj', rows: (heads + 2 * kvHeads) * headDim };
      at.matrix('attention', 'qkv', hiddenSize, [qkv]);
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
