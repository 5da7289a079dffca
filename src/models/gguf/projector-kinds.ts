/** The kinds of mmproj files that are read. A kind is a page's entry, and nothing more here. */

import { ENCODER_KINDS } from './projector-encoders.js';
import { GEMMA4_KINDS } from './projector-gemma4.js';
import { GLM_KINDS } from './projector-glm.js';
import { MUSE_KINDS } from './projector-muse.js';
import { QWEN_KINDS } from './projector-qwen.js';
import type { ProjectorKind } from './projector-rules.js';

export const PROJECTOR_KINDS: readonly ProjectorKind[] = [
  ...QWEN_KINDS,
  ...ENCODER_KINDS,
  ...GEMMA4_KINDS,
  ...GLM_KINDS,
  ...MUSE_KINDS,
];
