/** `mm_processor_kwargs`, as vLLM has it: how pictures are made, in the words of Qwen's processors. */

import type { ImageProcessorOptions } from '../../engine/types.js';
import { KvantError } from '../../errors.js';
import { type Body, refuseUnknown } from '../request-body.js';

const NAME = 'mm_processor_kwargs';
const OPTIONS = { min_pixels: 'minPixels', max_pixels: 'maxPixels' } as const;
/** The same in newer files; they are pixels, not edges. */
const SIZE = { shortest_edge: 'minPixels', longest_edge: 'maxPixels' } as const;

/** Undefined where nothing is said. Errors: `unknown-parameter`, `invalid-parameter`, `conflicting-parameters`. */
export function imageFields(body: Body): ImageProcessorOptions | undefined {
  const given = body[NAME];
  if (given === undefined || given === null) return undefined;
  const outer = objectOf(given, NAME);
  refuseUnknown(outer, { names: new Set([...Object.keys(OPTIONS), 'size']), prefix: `${NAME}.` });
  const options: { minPixels?: number; maxPixels?: number } = {};
  take(outer, OPTIONS, NAME, options);
  if (outer.size !== undefined && outer.size !== null) {
    const size = objectOf(outer.size, `${NAME}.size`);
    refuseUnknown(size, { names: new Set(Object.keys(SIZE)), prefix: `${NAME}.size.` });
    take(size, SIZE, `${NAME}.size`, options);
  }
  return Object.keys(options).length === 0 ? undefined : options;
}

function take(
  from: Body,
  names: Readonly<Record<string, 'minPixels' | 'maxPixels'>>,
  prefix: string,
  options: { minPixels?: number; maxPixels?: number },
): void {
  for (const [name, option] of Object.entries(names)) {
    const value = from[name];
    const where = `${prefix}.${name}`;
    if (value === undefined || value === null) continue;
    if (!Number.isSafeInteger(value) || (value as number) <= 0)
      throw invalid(where, 'a whole number above 0', 'Send a number of pixels, width times height.');
    if (options[option] !== undefined && options[option] !== value)
      throw new KvantError('conflicting-parameters', `\`${where}\` says otherwise than \`${NAME}\`.`, {
        kind: 'invalid-request',
        where,
        fix: 'Send one of them.',
      });
    options[option] = value as number;
  }
}

function objectOf(value: unknown, where: string): Body {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Body;
  throw invalid(where, 'an object', 'Send {"min_pixels": …, "max_pixels": …}.');
}

function invalid(where: string, takes: string, fix: string): KvantError {
  return new KvantError('invalid-parameter', `\`${where}\` takes ${takes}.`, {
    kind: 'invalid-request',
    where,
    fix,
  });
}
