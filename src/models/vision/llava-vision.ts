/** How LLaVA 1.5 (arXiv:2310.03744), LLaVA-NeXT, LLaVA-OneVision (arXiv:2408.03326), Pixtral and Mistral 3 see: the tower is what `vision_config` says it is. */

import type { UngatedActivation } from '../../device/graph.js';
import type { ConfigFields } from '../config-fields.js';
import type { ModelDefinition } from '../family.js';
import { type AnyresConfig, anyresTokens } from './anyres.js';
import type { ReadVision, VisionFamily } from './family.js';
import { pixtralTower, readPixtral } from './pixtral-tower.js';
import { twoLayers } from './projectors.js';
import { type Encoder, readClip, readSiglip } from './siglip.js';
import type { PatchGrid, PromptPiece } from './tower.js';
import { onlyAs, readActivation, readFeatureLayer } from './tower-fields.js';
import { vitTower } from './vit-tower.js';

const PREFIX = 'vision_tower.';

/** What a wrapper's config class means by fields that are not there. */
interface Defaults {
  readonly tower: string;
  readonly imageToken: number;
  readonly featureLayer: number;
  /** `vision_feature_select_strategy`: whether the row of the whole is left out. */
  readonly rows: 'default' | 'full';
  readonly bias: boolean;
  /** Pictures are padded and cut into tiles. Default: each is one square. */
  readonly anyres?: ReadAnyres;
}

/** The tiles that a config speaks of, and what its processor is told. */
type ReadAnyres = (fields: ConfigFields) => AnyresConfig & Pick<ReadVision, 'processorFor'>;

interface Found {
  readonly fields: ConfigFields;
  readonly section: ConfigFields;
  readonly decoder: Pick<ModelDefinition, 'facts' | 'layout'>;
  readonly defaults: Defaults;
  readonly activation: UngatedActivation;
  readonly bias: boolean;
}

type Read = (found: Found) => Omit<ReadVision, 'imageToken' | 'placeholder' | 'axes'>;

const TOWERS: Readonly<Record<string, Read>> = {
  clip_vision_model: (found) => {
    onlyAs(found.fields, 'vision_feature_select_strategy', found.defaults.rows, 'default');
    return square(found, readClip(found.section, PREFIX, CLIP_LARGE));
  },
  siglip_vision_model: (found) => {
    // It has no row of the whole that could be left out.
    onlyAs(found.fields, 'vision_feature_select_strategy', found.defaults.rows, 'full');
    const encoder = readSiglip(found.section, PREFIX);
    return square(found, { ...encoder, names: { ...encoder.names, behind: null } });
  },
  pixtral: (found) => {
    if (found.defaults.anyres === undefined) return pixtral(found);
    throw found.section.unsupported(
      'model_type',
      'the tower "pixtral" on tiles',
      'Use a model with CLIP or SigLIP.',
    );
  },
};

/** What LlavaConfig means by a `vision_config` that leaves fields out. */
const CLIP_LARGE = {
  hiddenSize: 1024,
  intermediateSize: 4096,
  depth: 24,
  heads: 16,
  imageSize: 336,
  patchSize: 14,
  activation: 'quick-gelu',
  eps: 1e-5,
} as const;

function family(name: string, defaults: Defaults): VisionFamily {
  return {
    name,
    read(fields, decoder) {
      const section = fields.object('vision_config');
      if (section === null) return null;
      const type = section.text('model_type') ?? defaults.tower;
      const read = TOWERS[type];
      if (read === undefined)
        throw section.unsupported(
          'model_type',
          `the tower "${type}"`,
          `Use a model with one of: ${Object.keys(TOWERS).join(', ')}.`,
        );
      const activation = readActivation(fields, 'gelu', 'projector_hidden_act');
      const bias = fields.flag('multimodal_projector_bias', defaults.bias);
      return {
        ...read({ fields, section, decoder, defaults, activation, bias }),
        imageToken: fields.count(['image_token_index', 'image_token_id'], defaults.imageToken, 0),
        axes: false,
        placeholder: null,
      };
    },
  };
}

/** Each patch a token. */
function square(found: Found, encoder: Encoder): ReturnType<Read> {
  const { fields, decoder, defaults, activation, bias } = found;
  const depth = readFeatureLayer(fields, encoder.depth, defaults.featureLayer);
  const read = defaults.anyres?.(fields) ?? null;
  const anyres = read === null ? undefined : { most: read.most };
  const width = decoder.facts.hiddenSize;
  const config = { ...encoder, depth, mergeSize: 1, width, ...(anyres !== undefined && { anyres }) };
  return {
    tower: vitTower(config, twoLayers({ activation, bias, norm: null }), decoder.layout.groups),
    mergeSize: 1,
    pieces: (grid) => [
      anyres === undefined ? grid.rows * grid.cols : anyresTokens(grid, encoder.side, anyres),
    ],
    ...(read?.processorFor !== undefined && { processorFor: read.processorFor }),
    identity: { ...config, activation },
  };
}

function pixtral({ fields, section, decoder, defaults, activation, bias }: Found): ReturnType<Read> {
  const read = readPixtral(section);
  const depth = readFeatureLayer(fields, read.depth, defaults.featureLayer);
  const merges = defaults.tower === 'pixtral';
  const side = merges ? fields.count('spatial_merge_size', 2) : 1;
  const eps = fields.object('text_config')?.positiveOrNull('rms_norm_eps') ?? 1e-5;
  if (!merges) onlyAs(fields, 'vision_feature_select_strategy', defaults.rows, 'full');
  const config = {
    ...read,
    depth,
    activation,
    bias,
    merger: merges ? { side, eps } : null,
    width: decoder.facts.hiddenSize,
  };
  return {
    tower: pixtralTower(config, decoder.layout.groups),
    mergeSize: side,
    pieces: (grid) => lines(grid, side),
    identity: config,
  };
}

/** A row of tokens, a mark, the next row; another mark behind the last. */
function lines({ rows, cols }: PatchGrid, side: number): PromptPiece[] {
  const row = [cols / side, '[IMG_BREAK]'];
  const all = Array.from({ length: rows / side }, () => row).flat();
  return [...all.slice(0, -1), '[IMG_END]'];
}

export const llava = family('llava', {
  tower: 'clip_vision_model',
  imageToken: 32_000,
  featureLayer: -2,
  rows: 'default',
  bias: true,
});
/** The file for the processor says the sizes again; where they differ those of config.json hold. */
function pinpoints(fields: ConfigFields): Readonly<Record<string, unknown>> {
  const stated = fields.value('image_grid_pinpoints');
  return stated === null ? {} : { image_grid_pinpoints: stated };
}

export const llavaNext = family('llava-next', {
  tower: 'clip_vision_model',
  imageToken: 32_000,
  featureLayer: -2,
  rows: 'default',
  bias: true,
  anyres: (fields) => {
    const stated = pinpoints(fields);
    return { most: null, processorFor: (config) => ({ ...config, ...stated }) };
  },
});

export const llavaOnevision = family('llava-onevision', {
  tower: 'siglip_vision_model',
  imageToken: 151_646,
  featureLayer: -1,
  rows: 'full',
  bias: true,
  anyres: (fields) => {
    const stated = pinpoints(fields);
    const ratio = fields.text('vision_aspect_ratio') ?? 'anyres_max_9';
    const most = Number(/^anyres_max_(\d+)$/.exec(ratio)?.[1] ?? 0);
    if (most < 1) throw fields.odd('vision_aspect_ratio', ratio, 'anyres_max_ and a number of tiles');
    // Of several pictures each is one tile.
    const none = { image_grid_pinpoints: [] };
    return { most, processorFor: (config, pictures) => ({ ...config, ...(pictures > 1 ? none : stated) }) };
  },
});

export const mistral3 = family('mistral3', {
  tower: 'pixtral',
  imageToken: 10,
  featureLayer: -1,
  rows: 'full',
  bias: false,
});
