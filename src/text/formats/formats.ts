import { didYouMean } from '../../did-you-mean.js';
import { KvantError } from '../../errors.js';
import { shown } from '../../printable.js';
import { APERTUS } from './apertus.js';
import { COHERE2 } from './cohere2.js';
import { DEEPSEEK } from './deepseek.js';
import { DEEPSEEK_DSML } from './deepseek-dsml.js';
import { FUNCTION_GEMMA, GEMMA4 } from './gemma.js';
import { GLM } from './glm.js';
import { GLM4 } from './glm4.js';
import { GRANITE } from './granite.js';
import { HARMONY } from './harmony.js';
import { HERMES } from './hermes.js';
import { HUNYUAN } from './hunyuan.js';
import { HY3, HY3_SUFFIXED } from './hy3.js';
import { KIMI } from './kimi.js';
import { LFM2 } from './lfm2.js';
import { LLAMA3_JSON } from './llama3-json.js';
import { MINIMAX } from './minimax.js';
import { MISTRAL } from './mistral.js';
import { MUSE_GLIMMER } from './muse-glimmer.js';
import { NEMOTRON } from './nemotron.js';
import { PHI4_MINI } from './phi4-mini.js';
import { PYTHONIC } from './pythonic.js';
import { QWEN3_CODER, SEED_OSS } from './qwen3-coder.js';
import type { FormatClues, ToolFormat } from './tool-format.js';

/** All formats. The first that a model shows is taken: those with more particular marks come first. */
export const TOOL_FORMATS: ToolFormat[] = [
  HARMONY,
  MUSE_GLIMMER,
  HY3_SUFFIXED,
  HY3,
  SEED_OSS,
  QWEN3_CODER,
  GLM,
  MINIMAX,
  DEEPSEEK_DSML,
  DEEPSEEK,
  KIMI,
  MISTRAL,
  COHERE2,
  GEMMA4,
  FUNCTION_GEMMA,
  APERTUS,
  HUNYUAN,
  LFM2,
  NEMOTRON,
  PHI4_MINI,
  GRANITE,
  HERMES,
  GLM4,
  PYTHONIC,
  LLAMA3_JSON,
];

/** The format of a model, Hermes's where it shows none. */
export function toolFormatOf(clues: FormatClues): ToolFormat {
  return TOOL_FORMATS.find((format) => format.detect(clues)) ?? HERMES;
}

/** Errors: `invalid-option`, which lists the names. */
export function toolFormatNamed(name: string): ToolFormat {
  const format = TOOL_FORMATS.find((one) => one.name === name);
  if (format !== undefined) return format;
  const names = TOOL_FORMATS.map((one) => one.name);
  const meant = didYouMean(name, names);
  throw new KvantError('invalid-option', `There is no tool-call format "${shown(name)}".${meant}`, {
    kind: 'invalid-request',
    where: 'toolFormat',
    fix: `Give one of ${names.join(', ')}, or leave it out: then the chat template and the tokenizer say which.`,
  });
}
