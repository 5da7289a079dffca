/** How GLM-4.1V, 4.5V, 4.6V and GLM-OCR see. */

import type { Activation } from '../../device/graph.js';
import type { ConfigFields } from '../config-fields.js';
import type { VisionFamily } from './family.js';
import { type GlmTowerConfig, glmTower } from './glm-tower.js';
import { tenths } from './qwen-vision.js';
import type { PromptPiece, VideoDefinition } from './tower.js';
import { checkChannels, readActivation, readHeads, readSide, turnsByAxes } from './tower-fields.js';
import { CHANNELS, FILM } from './tower-weights.js';

/** What a generation of the tower does in its own way. */
interface GlmTowerKind {
  /** Norms of the heads of q and k, biases, and no positions that were learnt. */
  readonly ocr: boolean;
  readonly imageToken: number;
  /** The token of a video, and those around what stands for two of its frames. */
  readonly film: readonly [video: number, begin: number, end: number];
  readonly defaults: {
    readonly hiddenSize: number;
    readonly heads: number;
    readonly width: number;
    readonly intermediateSize: number;
  };
}

function readTower(fields: ConfigFields, { ocr, defaults }: GlmTowerKind, width: number): GlmTowerConfig {
  const stated = fields.count('out_hidden_size', defaults.width);
  if (stated !== width) throw fields.odd('out_hidden_size', stated, `the decoder's width (${width})`);
  const hiddenSize = fields.count('hidden_size', defaults.hiddenSize);
  const heads = readHeads(fields, ['num_heads', 'num_attention_heads'], hiddenSize, defaults.heads);
  const named = readActivation(fields, 'silu');
  if (named === 'quick-gelu')
    throw fields.odd('hidden_act', fields.value('hidden_act'), 'an activation of gated MLPs');
  const activation = named as Activation;
  checkChannels(fields, ['in_channels', 'in_chans']);
  const patchSize = readSide(fields, 'patch_size', 14);
  const imageSize = readSide(fields, 'image_size', 336);
  const learned = Math.floor(imageSize / patchSize);
  if (!ocr && learned === 0) throw fields.odd('image_size', imageSize, `a patch (${patchSize}) at least`);
  const intermediateSize = fields.count('intermediate_size', defaults.intermediateSize);
  const bias = fields.flag('attention_bias', ocr);
  return {
    depth: fields.count('depth', 24),
    block: {
      hiddenSize,
      heads,
      // Those that are not GLM-OCR's state the width of the merger.
      intermediateSize: ocr ? intermediateSize : width,
      norm: { kind: 'rms', eps: fields.positive('rms_norm_eps', 1e-5) },
      mlp: { gated: true, activation },
      ...(ocr && { headNorms: true }),
    },
    biases: { qkv: bias, proj: ocr && bias, mlp: ocr && bias },
    patchSize,
    frames: fields.count('temporal_patch_size', 2),
    mergeSize: fields.count('spatial_merge_size', 2),
    width,
    inner: ocr ? width * CHANNELS : intermediateSize,
    activation,
    theta: fields.object('rope_parameters')?.positiveOrNull('rope_theta') ?? 10_000,
    learned: ocr ? null : learned,
  };
}

/** Two frames at a time as a picture, their time in words behind it. A video is marked by the template. */
function readVideo(
  fields: ConfigFields,
  { film }: GlmTowerKind,
  rowToken: number,
  tokens: number,
): VideoDefinition {
  const [token, begin, end] = [
    fields.count('video_token_id', film[0], 0),
    fields.count('image_start_token_id', film[1], 0),
    fields.count('image_end_token_id', film[2], 0),
  ];
  const newer = fields.text('model_type') === 'glm46v';
  return {
    token,
    rowToken,
    processors: newer
      ? ['Glm46VVideoProcessor', 'Glm4vVideoProcessor']
      : ['Glm4vVideoProcessor', 'Glm46VVideoProcessor'],
    tells: 'first',
    marks: null,
    time: null,
    pieces: ({ rows, cols }, seconds, processor) =>
      seconds.flatMap((at): PromptPiece[] => [
        { token: begin },
        (rows * cols) / tokens,
        { token: end },
        processor === 'Glm46VVideoProcessor' ? `${tenths(at)} seconds` : String(Math.trunc(at)),
      ]),
  };
}

function family(name: string, kind: GlmTowerKind): VisionFamily {
  return {
    name,
    read(fields, { facts, layout }) {
      const section = fields.object('vision_config');
      if (section === null || !turnsByAxes(fields, layout)) return null;
      const config = readTower(section, kind, facts.hiddenSize);
      const tokens = config.mergeSize ** 2;
      const imageToken = fields.count('image_token_id', kind.imageToken, 0);
      return {
        tower: glmTower(config, layout.groups),
        imageToken,
        mergeSize: config.mergeSize,
        axes: true,
        placeholder: null,
        pieces: ({ rows, cols }) => [(rows * cols) / tokens],
        video: config.frames === FILM ? readVideo(fields, kind, imageToken, tokens) : null,
        identity: config,
      };
    },
  };
}

// Ids are those of the config classes; published configs state theirs.
export const glm4v = family('glm4v', {
  ocr: false,
  imageToken: 151_343,
  film: [151_344, 151_339, 151_340],
  defaults: { hiddenSize: 1536, heads: 12, width: 4096, intermediateSize: 13_696 },
});
export const glmOcr = family('glm-ocr', {
  ocr: true,
  imageToken: 59_280,
  film: [59_281, 59_256, 59_257],
  defaults: { hiddenSize: 1024, heads: 16, width: 1536, intermediateSize: 4096 },
});
