/** What of a wrapper's config is about pictures, and a decoder's definition with it. */

import type { ConfigFields } from '../config-fields.js';
import type { ModelDefinition } from '../family.js';
import { QWEN2_5_TOWER, QWEN2_TOWER, readQwenTower } from './qwen-config.js';
import { qwenTower } from './qwen-tower.js';
import type { VisionDefinition } from './tower.js';

export const TOWERS = ['qwen2-vl', 'qwen2.5-vl'] as const;
export type TowerName = (typeof TOWERS)[number];

const KINDS = { 'qwen2-vl': QWEN2_TOWER, 'qwen2.5-vl': QWEN2_5_TOWER } as const;
/** Of Qwen's config classes. */
const IMAGE_TOKEN = 151_655;

/**
 * A decoder with what sees in front of it. The same decoder where the config says nothing of a tower.
 *
 * @param fields those of the wrapper
 * @throws KvantError `model-config`, `model-config-unsupported`
 */
export function withVision(
  definition: ModelDefinition,
  fields: ConfigFields,
  name: TowerName,
): ModelDefinition {
  const section = fields.object('vision_config');
  if (section === null) return definition;
  if (definition.layout.ropes.some(({ sections }) => sections === undefined))
    throw fields.odd(
      'mrope_section',
      null,
      'given, with a number of pairs for each axis, all of them together,',
    );
  const kind = KINDS[name];
  const config = readQwenTower(section, kind, definition.facts.hiddenSize);
  const tower = qwenTower(config, kind, definition.layout.groups);
  const imageToken = fields.count('image_token_id', IMAGE_TOKEN, 0);
  return join(definition, { tower, imageToken }, JSON.stringify({ name, ...config, imageToken }));
}

function join(definition: ModelDefinition, vision: VisionDefinition, identity: string): ModelDefinition {
  const { layout, facts } = definition;
  return {
    ...definition,
    facts: { ...facts, modalities: ['text', 'image'], identity: `${facts.identity} ${identity}` },
    layout: {
      ...layout,
      matrices: [...layout.matrices, ...vision.tower.matrices],
      vectors: [...layout.vectors, ...vision.tower.vectors],
      groups: layout.groups + 1,
    },
    vision,
    withTied: (tied) => join(definition.withTied(tied), vision, identity),
    withoutVision: () => definition,
  };
}
