/** The `vision_config` of Qwen's towers. */

import type { Activation, UngatedActivation } from '../../device/graph.js';
import type { ConfigFields } from '../config-fields.js';

export interface QwenTowerConfig {
  readonly depth: number;
  /** Of the hidden states. */
  readonly hiddenSize: number;
  readonly heads: number;
  readonly intermediateSize: number;
  readonly mlp:
    | { readonly gated: true; readonly activation: Activation }
    | { readonly gated: false; readonly activation: UngatedActivation };
  readonly patchSize: number;
  /** Frames that a patch of the checkpoint spans. */
  readonly frames: number;
  readonly mergeSize: number;
  /** Of the decoder. */
  readonly width: number;
  readonly theta: number;
  /** Side of a window in tokens; null where all blocks see the whole picture. */
  readonly window: number | null;
  /** Blocks that see the whole picture although there are windows. */
  readonly wholeBlocks: readonly number[];
}

/** What a generation of the tower does in its own way. */
export interface QwenTowerKind {
  /** RMS norms and gated MLPs (Qwen2.5-VL), or layer norms and plain ones. */
  readonly modern: boolean;
  readonly windows: boolean;
  readonly defaults: {
    readonly hiddenSize: number;
    readonly heads: number;
    readonly activation: UngatedActivation;
  };
  readonly sizes: (fields: ConfigFields) => {
    readonly hiddenSize: number;
    readonly intermediateSize: number;
    readonly width: number;
  };
}

const ACTIVATIONS: Readonly<Record<string, UngatedActivation>> = {
  silu: 'silu',
  gelu: 'gelu',
  gelu_pytorch_tanh: 'gelu-tanh',
  quick_gelu: 'quick-gelu',
};

/**
 * @throws KvantError `model-config` for a field that makes no sense, `model-config-unsupported` for what kvant cannot compute
 */
export function readQwenTower(fields: ConfigFields, kind: QwenTowerKind, width: number): QwenTowerConfig {
  const { hiddenSize, intermediateSize, width: stated } = kind.sizes(fields);
  if (stated !== width) throw fields.odd('out_hidden_size', stated, `the decoder's width (${width})`);
  const heads = fields.count('num_heads', kind.defaults.heads);
  if (hiddenSize % heads !== 0 || (hiddenSize / heads) % 4 !== 0)
    throw fields.odd('num_heads', heads, `a number that gives heads of a multiple of 4 (of ${hiddenSize})`);
  const patchSize = fields.count(['patch_size', 'spatial_patch_size'], 14);
  const mergeSize = fields.count('spatial_merge_size', 2);
  const depth = fields.count('depth', 32);
  const name = fields.text('hidden_act');
  const activation = name === null ? kind.defaults.activation : ACTIVATIONS[name];
  if (activation === undefined)
    throw fields.unsupported(
      'hidden_act',
      `the activation ${JSON.stringify(name)} in a vision tower`,
      `Use a model with one of: ${Object.keys(ACTIVATIONS).join(', ')}.`,
    );
  if (kind.modern && activation === 'quick-gelu')
    throw fields.odd('hidden_act', name, 'an activation of gated MLPs');
  const channels = fields.count(['in_channels', 'in_chans'], 3);
  if (channels !== 3) throw fields.odd('in_channels', channels, '3 (red, green and blue)');
  const whole = fields.value('fullatt_block_indexes') ?? [7, 15, 23, 31];
  if (!Array.isArray(whole) || !whole.every((index) => Number.isSafeInteger(index)))
    throw fields.odd('fullatt_block_indexes', whole, 'a list of blocks');
  const theta = fields.object('rope_parameters')?.positiveOrNull('rope_theta') ?? 10_000;
  return {
    depth,
    hiddenSize,
    heads,
    intermediateSize,
    mlp: kind.modern ? { gated: true, activation: activation as Activation } : { gated: false, activation },
    patchSize,
    frames: fields.count('temporal_patch_size', 2),
    mergeSize,
    width,
    theta,
    window: kind.windows
      ? Math.max(1, Math.trunc(fields.count('window_size', 112) / mergeSize / patchSize))
      : null,
    wholeBlocks: kind.windows ? (whole as number[]) : [],
  };
}

/** Qwen2-VL: the width of the tower is `embed_dim`, `hidden_size` is the decoder's. */
export const QWEN2_TOWER: QwenTowerKind = {
  modern: false,
  windows: false,
  defaults: { hiddenSize: 1280, heads: 16, activation: 'quick-gelu' },
  sizes: (fields) => {
    const hiddenSize = fields.count('embed_dim', 1280);
    const ratio = fields.positive('mlp_ratio', 4);
    return {
      hiddenSize,
      intermediateSize: Math.trunc(hiddenSize * ratio),
      width: fields.count('hidden_size', 3584),
    };
  },
};

export const QWEN2_5_TOWER: QwenTowerKind = {
  modern: true,
  windows: true,
  defaults: { hiddenSize: 1280, heads: 16, activation: 'silu' },
  sizes: (fields) => ({
    hiddenSize: fields.count('hidden_size', 1280),
    intermediateSize: fields.count('intermediate_size', 3420),
    width: fields.count('out_hidden_size', 3584),
  }),
};
