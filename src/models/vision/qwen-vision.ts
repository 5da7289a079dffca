/** How Qwen's models see. */

import type { VisionFamily } from './family.js';
import {
  QWEN2_5_TOWER,
  QWEN2_TOWER,
  QWEN3_5_TOWER,
  QWEN3_TOWER,
  type QwenTowerKind,
  readQwenTower,
} from './qwen-config.js';
import { qwenTower } from './qwen-tower.js';

function family(name: string, kind: QwenTowerKind, imageToken: number): VisionFamily {
  return {
    name,
    read(fields, { facts, layout }) {
      const section = fields.object('vision_config');
      if (section === null) return null;
      // Of text all axes are one, and sections do not matter.
      if (layout.ropes.some(({ sections }) => sections === undefined)) {
        fields.notice(
          'pictures are refused: config.json has no sections of the rotation that fit its heads',
          {
            field: 'mrope_section',
          },
        );
        return null;
      }
      const config = readQwenTower(section, kind, facts.hiddenSize);
      if (config.added.length > facts.layers)
        throw section.odd(
          'deepstack_visual_indexes',
          config.added,
          `no more blocks than the decoder has layers (${facts.layers})`,
        );
      return {
        tower: qwenTower(config, kind, layout.groups),
        imageToken: fields.count('image_token_id', imageToken, 0),
        mergeSize: config.mergeSize,
        axes: true,
        placeholder: null,
        pieces: ({ rows, cols }) => [(rows * cols) / config.mergeSize ** 2],
        identity: config,
      };
    },
  };
}

// Ids are those of the config classes.
export const qwen2Vl = family('qwen2-vl', QWEN2_TOWER, 151_655);
export const qwen25Vl = family('qwen2.5-vl', QWEN2_5_TOWER, 151_655);
export const qwen3Vl = family('qwen3-vl', QWEN3_TOWER, 151_655);
export const qwen35Vl = family('qwen3.5-vl', QWEN3_5_TOWER, 248_056);
