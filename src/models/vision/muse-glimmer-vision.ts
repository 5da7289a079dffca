/** How Muse Glimmer sees. */

import type { ConfigFields } from '../config-fields.js';
import type { VisionFamily } from './family.js';
import { type MuseGlimmerTowerConfig, museGlimmerTower } from './muse-glimmer-tower.js';
import { tenths } from './qwen-vision.js';
import type { PromptPiece, VideoDefinition } from './tower.js';
import { onlyAs, readActivation, readHeads } from './tower-fields.js';
import { FILM } from './tower-weights.js';

/** Ids are those of the config class. */
const [IMAGE_TOKEN, VIDEO_TOKEN] = [200_092, 200_091];
const [WINDOW, FULL] = ['window_attention', 'full_attention'];
/** Of the norms in blocks, whatever the config says. */
const BLOCK_EPS = 1e-5;

export const museGlimmer: VisionFamily = {
  name: 'muse-glimmer',
  read(fields, { facts, layout }) {
    const section = fields.object('vision_config');
    if (section === null) return null;
    const { mergeSize, ...tower } = readTower(section);
    const seen = tower.block.hiddenSize * mergeSize ** 2;
    const stated = fields.count('out_hidden_size', 6144);
    if (stated !== seen)
      throw fields.odd('out_hidden_size', stated, `the width of the patches of a token (${seen})`);
    const config: MuseGlimmerTowerConfig = {
      ...tower,
      mergeSize,
      inner: fields.count('projector_hidden_size', 4096),
      activation: readActivation(fields, 'gelu', 'projector_hidden_act'),
      width: facts.hiddenSize,
    };
    return {
      tower: museGlimmerTower(config, layout.groups),
      imageToken: fields.count('image_token_id', IMAGE_TOKEN, 0),
      mergeSize,
      axes: false,
      placeholder: null,
      pieces: ({ rows, cols }) => ['<|image_start|>', (rows * cols) / mergeSize ** 2, '<|image_end|>'],
      video: config.frames === FILM ? readVideo(fields, mergeSize ** 2) : null,
      identity: config,
    };
  },
};

/** Two frames at a time, the time of the first in words before them. */
function readVideo(fields: ConfigFields, tokens: number): VideoDefinition {
  return {
    token: fields.count('video_token_id', VIDEO_TOKEN, 0),
    processors: ['MuseGlimmerVideoProcessor'],
    tells: 'first',
    marks: null,
    time: null,
    pieces: ({ rows, cols }, seconds) =>
      seconds.flatMap((at, pair): PromptPiece[] => [
        `${pair === 0 ? '<|vid_start|>' : '<|vid_frame_separator|>'}Time: ${tenths(at)}s`,
        (rows * cols) / tokens,
        ...(pair === seconds.length - 1 ? ['<|vid_end|>'] : []),
      ]),
  };
}

/** MuseGlimmerVisionConfig. */
function readTower(fields: ConfigFields): Omit<MuseGlimmerTowerConfig, 'inner' | 'activation' | 'width'> {
  const hiddenSize = fields.count('hidden_size', 1536);
  const mergeSize = fields.count('merge_size', 2);
  const learned = fields.count('pos_emb_height', 32);
  onlyAs(fields, 'pos_emb_width', 32, learned);
  if (learned % mergeSize !== 0)
    throw fields.unsupported(
      'merge_size',
      `a token of ${mergeSize} patches a side in windows of ${learned}`,
      'Use a model whose windows hold whole tokens.',
    );
  const rope = fields.object('rope_parameters');
  // The reference takes what is called default for its own.
  if (rope !== null && rope.text('rope_type') !== 'default') onlyAs(rope, 'rope_type', 'axial', 'axial');
  return {
    block: {
      hiddenSize,
      heads: readHeads(fields, 'num_attention_heads', hiddenSize, 16),
      intermediateSize: fields.count('intermediate_size', 8960),
      norm: { kind: 'layer', eps: BLOCK_EPS },
      mlp: { gated: false, activation: readActivation(fields, 'gelu') },
    },
    windowed: readWindowed(fields, fields.count('num_hidden_layers', 50)),
    norm: { kind: 'layer', eps: fields.positive('layer_norm_eps', 1e-5) },
    patchSize: fields.count('patch_size', 14),
    frames: fields.count('patch_temporal', 2),
    mergeSize,
    learned,
    theta: rope?.positiveOrNull('rope_theta') ?? 10_000,
  };
}

/** Every fourth block and the last see all, where the config does not say which. */
function readWindowed(fields: ConfigFields, depth: number): boolean[] {
  const types = fields.texts('layer_types');
  if (types === null) return Array.from({ length: depth }, (_, b) => (b + 1) % 4 !== 0 && b !== depth - 1);
  if (types.length !== depth || types.some((type) => type !== WINDOW && type !== FULL))
    throw fields.odd('layer_types', types, `"${WINDOW}" or "${FULL}" for each of the ${depth} blocks`);
  return types.map((type) => type === WINDOW);
}
