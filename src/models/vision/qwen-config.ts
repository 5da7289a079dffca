/** The `vision_config` of Qwen's towers. */

import type { Activation, UngatedActivation } from '../../device/graph.js';
import type { ConfigFields } from '../config-fields.js';
import type { BlockShape } from './blocks.js';
import { checkChannels, readActivation, readHeads } from './tower-fields.js';

export interface QwenTowerConfig {
  readonly depth: number;
  readonly block: BlockShape;
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
  /** Side of the square of positions that were learnt; null where there is none. */
  readonly learned: number | null;
  /** Blocks whose rows are added behind the decoder's first layers, one after the other (DeepStack). */
  readonly added: readonly number[];
}

/** What a generation of the tower does in its own way. */
export interface QwenTowerKind {
  readonly norm: 'rms' | 'layer';
  readonly gated: boolean;
  readonly windows: boolean;
  /** Learned positions, a bias of the patches, and other names (Qwen3-VL and later). */
  readonly learned: boolean;
  readonly defaults: {
    readonly depth: number;
    readonly patchSize: number;
    readonly activation: UngatedActivation;
    readonly added: readonly number[];
  };
  readonly sizes: (fields: ConfigFields) => {
    readonly hiddenSize: number;
    readonly intermediateSize: number;
    readonly width: number;
  };
}

/** Of all norms of these towers. */
const EPS = 1e-6;

/**
 * @throws KvantError `model-config` for a field that makes no sense, `model-config-unsupported` for what kvant cannot compute
 */
export function readQwenTower(fields: ConfigFields, kind: QwenTowerKind, width: number): QwenTowerConfig {
  const { hiddenSize, intermediateSize, width: stated } = kind.sizes(fields);
  if (stated !== width) throw fields.odd('out_hidden_size', stated, `the decoder's width (${width})`);
  const heads = readHeads(fields, 'num_heads', hiddenSize, 16);
  const { defaults } = kind;
  const patchSize = fields.count(['patch_size', 'spatial_patch_size'], defaults.patchSize);
  const mergeSize = fields.count('spatial_merge_size', 2);
  const depth = fields.count('depth', defaults.depth);
  const activation = readActivation(fields, defaults.activation);
  if (kind.gated && activation === 'quick-gelu')
    throw fields.odd('hidden_act', fields.value('hidden_act'), 'an activation of gated MLPs');
  checkChannels(fields, ['in_channels', 'in_chans']);
  const theta = fields.object('rope_parameters')?.positiveOrNull('rope_theta') ?? 10_000;
  return {
    depth,
    block: {
      hiddenSize,
      heads,
      intermediateSize,
      norm: { kind: kind.norm, eps: EPS },
      mlp: kind.gated ? { gated: true, activation: activation as Activation } : { gated: false, activation },
    },
    patchSize,
    frames: fields.count('temporal_patch_size', 2),
    mergeSize,
    width,
    theta,
    window: kind.windows
      ? Math.max(1, Math.trunc(fields.count('window_size', 112) / mergeSize / patchSize))
      : null,
    wholeBlocks: kind.windows ? readBlocks(fields, 'fullatt_block_indexes', [7, 15, 23, 31]) : [],
    learned: kind.learned ? readLearned(fields) : null,
    added: readAdded(fields, depth, defaults.added),
  };
}

function readBlocks(fields: ConfigFields, name: string, fallback: readonly number[]): readonly number[] {
  const blocks = fields.value(name) ?? fallback;
  if (Array.isArray(blocks) && blocks.every((index) => Number.isSafeInteger(index)))
    return blocks as number[];
  throw fields.odd(name, blocks, 'a list of blocks');
}

function readLearned(fields: ConfigFields): number {
  const positions = fields.count('num_position_embeddings', 2304);
  const side = Math.sqrt(positions);
  if (Number.isInteger(side)) return side;
  throw fields.odd('num_position_embeddings', positions, 'a square');
}

function readAdded(fields: ConfigFields, depth: number, fallback: readonly number[]): readonly number[] {
  const added = readBlocks(fields, 'deepstack_visual_indexes', fallback);
  // The reference takes them as it comes to their blocks.
  const rising = added.every((block, i) => block >= 0 && block < depth && (i === 0 || block > added[i - 1]!));
  if (rising) return added;
  throw fields.odd('deepstack_visual_indexes', added, `rising numbers below the tower's depth (${depth})`);
}

const sizes: QwenTowerKind['sizes'] = (fields) => ({
  hiddenSize: fields.count('hidden_size', 1280),
  intermediateSize: fields.count('intermediate_size', 3420),
  width: fields.count('out_hidden_size', 3584),
});

/** Qwen2-VL: the width of the tower is `embed_dim`, `hidden_size` is the decoder's. */
export const QWEN2_TOWER: QwenTowerKind = {
  norm: 'layer',
  gated: false,
  windows: false,
  learned: false,
  defaults: { depth: 32, patchSize: 14, activation: 'quick-gelu', added: [] },
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
  norm: 'rms',
  gated: true,
  windows: true,
  learned: false,
  defaults: { depth: 32, patchSize: 14, activation: 'silu', added: [] },
  sizes,
};

/** Qwen3-VL. */
export const QWEN3_TOWER: QwenTowerKind = {
  norm: 'layer',
  gated: false,
  windows: false,
  learned: true,
  defaults: { depth: 27, patchSize: 16, activation: 'gelu-tanh', added: [8, 16, 24] },
  sizes: (fields) => ({
    hiddenSize: fields.count('hidden_size', 1152),
    intermediateSize: fields.count('intermediate_size', 4304),
    width: fields.count('out_hidden_size', 3584),
  }),
};

/** Qwen3.5: that of Qwen3-VL, of which nothing is added behind layers where the config does not say so. */
export const QWEN3_5_TOWER: QwenTowerKind = {
  ...QWEN3_TOWER,
  defaults: { ...QWEN3_TOWER.defaults, added: [] },
};
