/** What a request may change of how its pictures are made. */

import { KvantError } from '../../errors.js';
import type { ImageProcessorOptions } from '../types.js';

const FIELDS = ['minPixels', 'maxPixels'] as const;

/** What a processor is read from. */
export type ProcessorConfig = Readonly<Record<string, unknown>>;

/** Errors: `invalid-parameter`, `unknown-parameter`. Null: nothing is changed. */
export function checkImageProcessor(given: unknown): void {
  if (given === undefined) return;
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw invalid('imageProcessor', '`imageProcessor` takes an object', 'Send minPixels, maxPixels or both.');
  for (const [name, value] of Object.entries(given)) {
    const where = `imageProcessor.${name}`;
    if (!FIELDS.some((field) => field === name))
      throw new KvantError('unknown-parameter', `\`${where}\` is not a parameter.`, {
        kind: 'invalid-request',
        where,
        fix: 'Send minPixels, maxPixels or both.',
      });
    if (value !== undefined && !(Number.isSafeInteger(value) && value > 0))
      throw invalid(where, `\`${where}\` takes a whole number above 0`, 'Give pixels: width times height.');
  }
}

/**
 * The processor's config with what a request changes. `own`: the settings of the model's processor.
 * Errors: `unsupported-parameter` for one that bounds no pixels; `invalid-parameter` for more pixels than the model's, or bounds that cross.
 */
export function withImageProcessor(
  config: ProcessorConfig,
  own: { readonly minPixels?: number; readonly maxPixels?: number },
  { minPixels, maxPixels }: ImageProcessorOptions,
): ProcessorConfig {
  if (own.minPixels === undefined || own.maxPixels === undefined)
    throw new KvantError('unsupported-parameter', 'The processor of this model has no bounds of pixels.', {
      kind: 'unsupported',
      where: 'imageProcessor',
      fix: 'Leave `imageProcessor` out.',
    });
  const [least, most] = [minPixels ?? own.minPixels, maxPixels ?? own.maxPixels];
  for (const [name, value] of [
    ['imageProcessor.maxPixels', most],
    ['imageProcessor.minPixels', least],
  ] as const)
    if (value > own.maxPixels)
      throw invalid(name, `\`${name}\` is ${value}; the model takes ${own.maxPixels} pixels`, 'Give fewer.');
  if (least > most) {
    const name = minPixels === undefined ? 'imageProcessor.maxPixels' : 'imageProcessor.minPixels';
    const what = `the least number of pixels is ${least}, the most is ${most}`;
    throw invalid(name, `\`${name}\`: ${what}`, 'Give bounds that do not cross.');
  }
  return { ...config, min_pixels: least, max_pixels: most };
}

function invalid(where: string, message: string, fix: string): KvantError {
  return new KvantError('invalid-parameter', `${message}.`, { kind: 'invalid-request', where, fix });
}
