/** The models that see: a wrapper (wrappers.ts) names its page here. */

import { ayaVision } from './aya-vision.js';
import type { VisionFamily } from './family.js';
import { gemma3 } from './gemma3-vision.js';
import { gemma4Unified } from './gemma4-unified-vision.js';
import { gemma4 } from './gemma4-vision.js';
import { glm4v, glmOcr } from './glm-vision.js';
import { idefics3 } from './idefics3-vision.js';
import { internVlChat } from './internvl-chat-vision.js';
import { internVl } from './internvl-vision.js';
import { lfm2Vl } from './lfm2-vl-vision.js';
import { llava, llavaNext, llavaOnevision, mistral3 } from './llava-vision.js';
import { museGlimmer } from './muse-glimmer-vision.js';
import { qwen2Vl, qwen3Vl, qwen25Vl, qwen35Vl } from './qwen-vision.js';

export const VISION_FAMILIES = {
  'qwen2-vl': qwen2Vl,
  'qwen2.5-vl': qwen25Vl,
  'qwen3-vl': qwen3Vl,
  'qwen3.5-vl': qwen35Vl,
  'aya-vision': ayaVision,
  gemma3,
  gemma4,
  'gemma4-unified': gemma4Unified,
  glm4v,
  'glm-ocr': glmOcr,
  idefics3,
  internvl: internVl,
  'internvl-chat': internVlChat,
  'lfm2-vl': lfm2Vl,
  llava,
  'llava-next': llavaNext,
  'llava-onevision': llavaOnevision,
  mistral3,
  'muse-glimmer': museGlimmer,
} as const satisfies Readonly<Record<string, VisionFamily>>;

export type VisionName = keyof typeof VISION_FAMILIES;
