import { HERMES } from './hermes.js';
import type { ToolFormat } from './tool-format.js';

/** All formats. The first that a template's source shows is taken: those with more particular marks come first. */
export const TOOL_FORMATS: readonly ToolFormat[] = [HERMES];

/** The format of a chat template, Hermes's where it shows none. */
export function toolFormatOf(template: string): ToolFormat {
  return TOOL_FORMATS.find((format) => format.detect(template)) ?? HERMES;
}
