/**
 * Gemma 4. Beside a Gemma 3:
 *
 * - norms multiply by w; scores are not scaled; v is normed too, without weights; every layer's result is multiplied by a number;
 * - layers that see all have heads of another width, another count of KV heads, and may take k, as `k_proj` makes it, for v;
 * - the last layers may look at the keys and values of the last one before them that sees as they do;
 * - each layer may mix in an embedding of its own (per-layer inputs);
 * - a mixture of experts may stand beside the MLP, both normed by themselves.
 *
 * Source: the model code of transformers (models/gemma4).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { type AttentionOptions, attend, attentionWeights } from '../blocks/attention.js';
import { mixed, stacksOf } from '../blocks/experts.js';
import { gated, gatedMlpWeights } from '../blocks/gated-mlp.js';
import { decoderLayout, type LayerLayout } from '../blocks/layout-builder.js';
import { perLayerInputs, perLayerParts, perLayerWeights } from '../blocks/per-layer-inputs.js';
import { sandwichNormWeights } from '../blocks/residual.js';
import { type Layer, recordStack } from '../blocks/stack.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { type Gemma4Config, readGemma4, shapeOf } from './gemma4-config.js';
import { type MixtureTraits, mixtureWeights } from './mixture.js';

const FULL_ROPE = 'full';
const SLIDING_ROPE = 'sliding';

const MIXTURE: MixtureTraits = {
  names: {
    block: '',
    router: 'router.proj',
    stacks: stacksOf('experts.switch_glu', 'experts'),
  },
};

function layout(config: Gemma4Config): WeightLayout {
  const { hiddenSize, layers, shared, perLayer, mixture } = config;
  const sharing = Array.from({ length: shared }, (_, i) => layers - shared + i);
  return decoderLayout(config, {
    ropes: [
      { key: FULL_ROPE, parameters: config.fullRope, dims: config.full.headDim },
      { key: SLIDING_ROPE, parameters: config.rope, dims: config.rotaryDims },
    ],
    ...(perLayer === null ? {} : perLayerParts(config, perLayer)),
    // Checkpoints may have them, and nobody reads them.
    harmless: sharing.map(
      (index) => new RegExp(`^model\\.layers\\.${index}\\.self_attn\\.[kv]_(proj|norm)\\.`),
    ),
    layer: (at) => {
      sandwichNormWeights(at, hiddenSize);
      const own = shapeOf(config, at.index);
      attentionWeights(at, { ...config, ...own, queriesOnly: own.cacheOf !== at.index });
      gatedMlpWeights(at, { hiddenSize, intermediateSize: own.intermediateSize, bias: false });
      if (mixture !== null) {
        mixtureWeights(at, hiddenSize, mixture, MIXTURE);
        routerWeights(at, hiddenSize, mixture.experts.experts);
      }
      if (perLayer !== null) perLayerWeights(at, hiddenSize, perLayer);
      at.number('layer-scalar', 'layer_scalar');
    },
  });
}

/** What the router reads is normed and scaled by itself; what experts make, and the MLP beside them, are normed. */
function routerWeights(at: LayerLayout, hiddenSize: number, experts: number): void {
  const by = hiddenSize ** -0.5;
  at.vector('router-scale', [{ name: 'router.scale', shape: [hiddenSize] }], (all) => all.map((v) => v * by));
  at.vector('expert-scales', [{ name: 'router.per_expert_scale', shape: [experts] }]);
  at.norm('mlp-norm-1', 'post_feedforward_layernorm_1', hiddenSize);
  at.norm('expert-norm', 'pre_feedforward_layernorm_2', hiddenSize);
  at.norm('mlp-norm-2', 'post_feedforward_layernorm_2', hiddenSize);
}

/** Returns logits `[outputs, vocab]`. */
function record(ops: Ops, config: Gemma4Config, weights: Weights, options: RecordOptions): Tensor {
  const { perLayer, activation } = config;
  let inputs: Tensor | null = null;
  return recordStack(ops, config, weights, options, {
    embeddingScale: Math.sqrt(config.hiddenSize),
    logits: { factor: 1, softcap: config.logitCap },
    layer: (x, at) => {
      if (perLayer !== null) inputs ??= perLayerInputs(ops, x, weights, config, perLayer);
      const attended = at.wanted(attend(at, at.norm(x, 'input-norm'), attentionOf(at, config)));
      const rest = at.wanted(x);
      const sum = ops.add(rest, at.norm(at.linear(attended, 'output'), 'attention-norm'));
      const down = at.linear(gated(at, at.norm(sum, 'mlp-norm'), activation), 'down');
      let y = ops.add(sum, at.norm(withExperts(at, sum, down, config), 'output-norm'));
      if (inputs !== null) {
        const gate = at.linear(y, 'per-layer-gate');
        const own = ops.gate(at.wanted(inputs), gate, 'gelu-tanh', null, at.index * gate.cols);
        y = ops.add(y, at.norm(at.linear(own, 'per-layer-out'), 'per-layer-norm'));
      }
      return ops.scale(y, at.number('layer-scalar'));
    },
  });
}

function attentionOf(at: Layer, config: Gemma4Config): AttentionOptions {
  const { heads } = config;
  const { kvHeads, headDim, window, cacheOf } = shapeOf(config, at.index);
  const shared = cacheOf !== at.index;
  const values = { from: (heads + kvHeads) * headDim, cols: headDim, groups: kvHeads };
  return {
    heads,
    kvHeads,
    headDim,
    qkNorm: true,
    window,
    rope: window === null ? FULL_ROPE : SLIDING_ROPE,
    scale: 1,
    ...(shared
      ? { cacheOf }
      : { prepare: (qkv) => at.ops.norm(qkv, 'rms', [{ ...values, weight: null, bias: null }], at.eps) }),
  };
}

/** What the MLP made, with what experts make beside it. */
function withExperts(at: Layer, sum: Tensor, down: Tensor, { mixture, activation }: Gemma4Config): Tensor {
  if (mixture === null) return down;
  const routed = at.ops.rmsNorm(sum, at.vector('router-scale'), at.eps);
  const made = mixed(at, at.norm(sum, 'expert-norm'), mixture.experts, mixture.route, activation, {
    routed,
    expertScales: at.vector('expert-scales'),
  });
  return at.ops.add(at.norm(down, 'mlp-norm-1'), at.norm(made, 'mlp-norm-2'));
}

export const gemma4: Family<Gemma4Config> = {
  name: 'gemma4',
  architectures: ['Gemma4ForCausalLM'],
  modelTypes: ['gemma4_text'],
  readConfig: readGemma4,
  layout,
  record,
};

/** What configs of 12B leave out is less: it has no embeddings of layers' own. */
const UNIFIED = { hidden_size_per_layer_input: 0, sliding_window: 1024, max_position_embeddings: 262_144 };

export const gemma4Unified: Family<Gemma4Config> = {
  ...gemma4,
  name: 'gemma4_unified',
  architectures: ['Gemma4UnifiedForCausalLM'],
  modelTypes: ['gemma4_unified_text'],
  readConfig: (fields, architecture) => readGemma4(fields.withDefaults(UNIFIED), architecture),
};
