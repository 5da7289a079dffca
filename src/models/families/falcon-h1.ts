/**
 * Falcon-H1. Every layer has attention and Mamba 2 side by side, on one normed input, and so both a KV cache and a state:
 *
 *     each layer:  n = norm(x);  x += a₁ · o(attend(a₀ · n)) + s₁ · out(mamba(s₀ · n))
 *                  x += d · down(silu(g · gate(norm(x))) · up(norm(x)))
 *
 * Multipliers are those of config.json; keys have one, and so have z, x, B, C and dt of Mamba. mlx-lm multiplies its weights with all of
 * them but two, and applies none: what multiplies keys, and a₀ of values, is left to do.
 *
 * Source: the model code of transformers (models/falcon_h1).
 */

import type { Tensor } from '../../device/graph.js';
import { attend, attentionWeights } from '../blocks/attention.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { type Mamba2Options, type Mamba2Shape, mamba2, mamba2Weights, readMamba2 } from '../blocks/mamba2.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import type { ShapeOf } from '../layout.js';
import { attentionAndMlpBias } from '../stated-biases.js';
import { refuseOtherLayers } from '../structure-fields.js';
import { ROPE } from './pre-norm.js';

export interface FalconH1Config extends DecoderConfig {
  readonly mamba: Mamba2Shape;
  readonly mambaNorm: NonNullable<Mamba2Options['norm']>;
  /** The weights have multipliers in them, as mlx-lm writes them. */
  readonly folded: boolean;
  /** As config.json states them. */
  readonly scales: {
    readonly embedding: number;
    readonly head: number;
    readonly key: number;
    readonly attentionIn: number;
    readonly attentionOut: number;
    readonly mambaIn: number;
    readonly mambaOut: number;
    readonly gate: number;
    readonly down: number;
    readonly z: number;
    readonly x: number;
    readonly b: number;
    readonly c: number;
    readonly dt: number;
  };
}

const TRAITS: DecoderTraits = {
  bias: attentionAndMlpBias,
  qkNorm: false,
  window: () => null,
  slides: () => false,
  normEps: { name: 'rms_norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 8192, ropeTheta: 10_000 },
};

const MAMBA_NAMES = {
  heads: 'mamba_n_heads',
  headDim: 'mamba_d_head',
  groups: 'mamba_n_groups',
  stateSize: 'mamba_d_state',
  taps: 'mamba_d_conv',
  convBias: 'mamba_conv_bias',
  biases: ['mamba_proj_bias', 'projectors_bias'],
};
const MAMBA_DEFAULTS = { heads: 128, groups: 1, stateSize: 256, taps: 4, convBias: true };

function readConfig(fields: ConfigFields, architecture: string): FalconH1Config {
  refuseOtherLayers(fields, ['hybrid', 'attention', 'full_attention'], 'falcon_h1');
  const stated = fields.replacing('layer_types', null);
  const config = readDecoderConfig(stated.withDefaults({ num_key_value_heads: 8 }), architecture, TRAITS);
  if (config.activation !== 'silu')
    throw fields.unsupported(
      'hidden_act',
      'a Falcon-H1 without SiLU',
      'Use one that has "hidden_act": "silu".',
    );
  const [gate, down] = multipliers(fields, 'mlp_multipliers', 2) as [number, number];
  const [z, x, b, c, dt] = multipliers(fields, 'ssm_multipliers', 5) as [
    number,
    number,
    number,
    number,
    number,
  ];
  const expanded = fields.count('mamba_expand', 2) * config.hiddenSize;
  const width = fields.states('mamba_d_ssm') ? fields.count('mamba_d_ssm', expanded) : 1024;
  const before = fields.flag('mamba_norm_before_gate', true);
  return {
    ...config,
    mamba: readMamba2(fields, MAMBA_NAMES, MAMBA_DEFAULTS, width),
    mambaNorm: fields.flag('mamba_rms_norm', false) ? (before ? 'before' : 'behind') : 'none',
    folded: false,
    scales: {
      embedding: fields.positive('embedding_multiplier', 1),
      head: fields.positive('lm_head_multiplier', 1),
      key: fields.positive('key_multiplier', 1),
      attentionIn: fields.positive('attention_in_multiplier', 1),
      attentionOut: fields.positive('attention_out_multiplier', 1),
      mambaIn: fields.positive('ssm_in_multiplier', 1),
      mambaOut: fields.positive('ssm_out_multiplier', 1),
      gate,
      down,
      z,
      x,
      b,
      c,
      dt,
    },
  };
}

/** A list of so many numbers above 0; ones where it is absent. */
function multipliers(fields: ConfigFields, name: string, count: number): readonly number[] {
  const stated = fields.value(name) ?? Array.from({ length: count }, () => 1);
  const fits = Array.isArray(stated) && stated.length === count;
  if (!fits || !stated.every((value) => typeof value === 'number' && value > 0 && Number.isFinite(value)))
    throw fields.odd(name, stated, `a list of ${count} numbers above 0`);
  return stated;
}

/** Convolutions are stored as `[channels, 1, taps]`, and by mlx-lm as `[channels, taps, 1]`. */
function asStored(config: FalconH1Config, shapeOf: ShapeOf): FalconH1Config {
  return { ...config, folded: shapeOf('model.layers.0.mamba.conv1d.weight')?.at(-1) === 1 };
}

/** What is left to multiply with. */
function scalesOf({ folded, tied, scales }: FalconH1Config): FalconH1Config['scales'] {
  if (!folded) return scales;
  const { embedding, head, key, attentionIn } = scales;
  const ones = { mambaIn: 1, mambaOut: 1, gate: 1, down: 1, z: 1, x: 1, b: 1, c: 1, dt: 1 };
  return {
    ...ones,
    embedding: 1,
    head: tied ? head / embedding : 1,
    key,
    attentionIn: 1,
    // What multiplies values may as well multiply what comes of them.
    attentionOut: attentionIn,
  };
}

export const falconH1: Family<FalconH1Config> = {
  name: 'falcon_h1',
  architectures: ['FalconH1ForCausalLM'],
  modelTypes: ['falcon_h1'],
  readConfig,
  asStored,
  layout: (config) => {
    const { hiddenSize, intermediateSize, mamba, mambaNorm } = config;
    const scales = scalesOf(config);
    const { mlp: bias } = config.bias;
    return decoderLayout(config, {
      ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
      lastNorm: 'final_layernorm',
      layer: (at) => {
        at.norm('input-norm', 'input_layernorm', hiddenSize);
        at.norm('mlp-norm', 'pre_ff_layernorm', hiddenSize);
        attentionWeights(at, { ...config, window: null });
        mamba2Weights(at, hiddenSize, mamba, 'mamba', { norm: mambaNorm !== 'none', apart: true, scales });
        // Two matrices, for one of them is multiplied.
        for (const side of ['gate', 'up'])
          at.matrix('mlp', side, hiddenSize, [
            { tensor: `feed_forward.${side}_proj`, rows: intermediateSize, bias },
          ]);
        at.matrix('mlp', 'down', intermediateSize, [
          { tensor: 'feed_forward.down_proj', rows: hiddenSize, bias },
        ]);
      },
    });
  },
  record: (ops, config, weights, options) => {
    const { heads, kvHeads, headDim, qkNorm, mamba, mambaNorm: norm } = config;
    const scales = scalesOf(config);
    const scaled = (x: Tensor, by: number): Tensor => (by === 1 ? x : ops.scale(x, by));
    // What multiplies keys may as well multiply scores.
    const attention = {
      heads,
      kvHeads,
      headDim,
      qkNorm,
      window: null,
      rope: ROPE,
      scale: scales.key / Math.sqrt(headDim),
    };
    return recordStack(ops, config, weights, options, {
      embeddingScale: scales.embedding,
      logits: { factor: scales.head, softcap: null },
      layer: (x, at) => {
        const normed = at.norm(x, 'input-norm');
        const seen = at.wanted(mamba2(at, scaled(normed, scales.mambaIn), mamba, { norm, scales }));
        const attended = at.wanted(attend(at, scaled(normed, scales.attentionIn), attention));
        const mixed = ops.add(
          scaled(at.linear(seen, 'mamba-out'), scales.mambaOut),
          scaled(at.linear(attended, 'output'), scales.attentionOut),
        );
        const sum = ops.add(at.wanted(x), mixed);
        const again = at.norm(sum, 'mlp-norm');
        const gate = scaled(at.linear(again, 'gate'), scales.gate);
        const down = at.linear(ops.gate(at.linear(again, 'up'), gate, 'silu'), 'down');
        return ops.add(sum, scaled(down, scales.down));
      },
    });
  },
};
