/** What of a wrapper's config is about pictures, and a decoder's definition with it. */

import type { ConfigFields } from '../config-fields.js';
import type { ModelDefinition } from '../family.js';
import { VISION_FAMILIES, type VisionName } from './families.js';
import type { ReadVision } from './family.js';

/**
 * A decoder with what sees in front of it. The same decoder where the config says nothing of a tower.
 *
 * @param fields those of the wrapper
 * @throws KvantError `model-config`, `model-config-unsupported`
 */
export function withVision(
  definition: ModelDefinition,
  fields: ConfigFields,
  name: VisionName,
): ModelDefinition {
  const vision = VISION_FAMILIES[name].read(fields, definition);
  if (vision === null) return definition;
  const { imageToken, identity } = vision;
  return join(definition, vision, JSON.stringify({ name, imageToken, identity }));
}

function join(definition: ModelDefinition, vision: ReadVision, identity: string): ModelDefinition {
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
    record: (ops, weights, options) =>
      definition.record(ops, weights, {
        ...options,
        addedLevels: vision.tower.addedLevels,
        // Without a slab there are no pictures.
        ahead: options.features ? (vision.ahead?.layers ?? null) : null,
      }),
    vision,
    asStored: (shapeOf) => join(definition.asStored(shapeOf), vision, identity),
    withTied: (tied) => join(definition.withTied(tied), vision, identity),
    withoutVision: () => definition,
  };
}
