/** How Qwen's models see. */

import { roundEven } from '../../media/qwen-processor.js';
import type { ConfigFields } from '../config-fields.js';
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
import type { PatchGrid, PromptPiece, VideoDefinition } from './tower.js';
import { turnsByAxes } from './tower-fields.js';
import { FILM } from './tower-weights.js';

/** `fields`: of the wrapper. `section`: its `vision_config`. */
type ReadVideo = (fields: ConfigFields, section: ConfigFields, mergeSize: number) => VideoDefinition;

const tokensOf = ({ rows, cols }: PatchGrid, mergeSize: number): number => (rows * cols) / mergeSize ** 2;

/** Frames one behind the other, with times of their own. `perPair`: positions from two of them to the next two. */
function byAxis(
  perPair: (section: ConfigFields) => (seconds: number) => number,
): (fields: ConfigFields, section: ConfigFields, mergeSize: number) => VideoDefinition {
  return (fields, section, mergeSize) => {
    const step = perPair(section);
    return {
      token: fields.count('video_token_id', 151_656, 0),
      processors: ['Qwen2VLVideoProcessor'],
      tells: 'middle',
      marks: null,
      // In f32, and cut off behind the product, as the reference has it.
      time: (pair, seconds) => Math.trunc(Math.fround(pair * Math.fround(step(Math.fround(seconds))))),
      pieces: (grid, seconds) => seconds.map(() => tokensOf(grid, mergeSize)),
    };
  };
}

/** Two frames at a time, each with its time in words and the marks of a picture. */
function byWords(token: number, [start, end]: readonly [number, number]): ReadVideo {
  return (fields, _, mergeSize) => {
    const marks = [
      fields.count('vision_start_token_id', start, 0),
      fields.count('vision_end_token_id', end, 0),
    ] as const;
    return {
      token: fields.count('video_token_id', token, 0),
      processors: ['Qwen3VLVideoProcessor'],
      tells: 'middle',
      marks,
      time: null,
      pieces: (grid, seconds) =>
        seconds.flatMap((at): PromptPiece[] => [
          `<${tenths(at)} seconds>`,
          { token: marks[0] },
          tokensOf(grid, mergeSize),
          { token: marks[1] },
        ]),
    };
  };
}

/** With one digit behind the point; what lies in the middle goes to the even one, as Python writes it. */
export function tenths(seconds: number): string {
  const middle = Number.isInteger(seconds * 4) && (seconds * 4) % 2 !== 0;
  return (middle ? roundEven(seconds * 10) / 10 : seconds).toFixed(1);
}

function family(name: string, kind: QwenTowerKind, imageToken: number, readVideo: ReadVideo): VisionFamily {
  return {
    name,
    read(fields, { facts, layout }) {
      const section = fields.object('vision_config');
      if (section === null) return null;
      if (!turnsByAxes(fields, layout)) return null;
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
        pieces: (grid) => [tokensOf(grid, config.mergeSize)],
        video: config.frames === FILM ? readVideo(fields, section, config.mergeSize) : null,
        identity: config,
      };
    },
  };
}

// Ids are those of the config classes.
const MARKS = [151_652, 151_653] as const;
export const qwen2Vl = family(
  'qwen2-vl',
  QWEN2_TOWER,
  151_655,
  byAxis(() => () => 1),
);
export const qwen25Vl = family(
  'qwen2.5-vl',
  QWEN2_5_TOWER,
  151_655,
  byAxis((section) => {
    const rate = section.positive('tokens_per_second', 4);
    return (seconds) => rate * seconds;
  }),
);
export const qwen3Vl = family('qwen3-vl', QWEN3_TOWER, 151_655, byWords(151_656, MARKS));
export const qwen35Vl = family('qwen3.5-vl', QWEN3_5_TOWER, 248_056, byWords(248_057, [248_053, 248_054]));
