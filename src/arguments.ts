/** What the library's functions are given: a program in plain JavaScript may give anything. Refused by name, before anything is done. */

import { KvantError } from './errors.js';

export interface ArgumentKind {
  /** In words, as in "it takes a text". */
  readonly takes: string;
  accepts(value: unknown): boolean;
}

export const TEXT: ArgumentKind = { takes: 'a text', accepts: (value) => typeof value === 'string' };
export const FLAG: ArgumentKind = { takes: 'true or false', accepts: (value) => typeof value === 'boolean' };
export const FUNCTION: ArgumentKind = {
  takes: 'a function',
  accepts: (value) => typeof value === 'function',
};
export const LIST: ArgumentKind = { takes: 'a list', accepts: Array.isArray };
export const FIELDS: ArgumentKind = {
  takes: 'an object',
  accepts: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
};

export const oneOf = (known: readonly string[]): ArgumentKind => ({
  takes: `one of ${known.join(', ')}`,
  accepts: (value) => known.includes(value as string),
});

/** Errors: `invalid-parameter`, naming the argument. */
export function checkArgument(name: string, value: unknown, { takes, accepts }: ArgumentKind): void {
  if (!accepts(value)) throw refused('invalid-parameter', name, value, takes, '');
}

/** One that may be left out. Errors: `invalid-option`, naming it. */
export function checkOption(name: string, value: unknown, { takes, accepts }: ArgumentKind): void {
  if (value !== undefined && !accepts(value))
    throw refused('invalid-option', name, value, takes, ', or leave it out');
}

/** The value itself is not shown: it may be a secret. */
function refused(code: string, where: string, value: unknown, takes: string, more: string): KvantError {
  return new KvantError(code, `\`${where}\` takes ${takes}, got ${kindOf(value)}.`, {
    kind: 'invalid-request',
    where,
    fix: `Give ${takes}${more}.`,
  });
}

const NOTHING = new Map<unknown, string>([
  [undefined, 'nothing'],
  [null, 'null'],
  ['', 'an empty text'],
]);

/** What a value is, in words. */
export function kindOf(value: unknown): string {
  const nothing = NOTHING.get(value);
  if (nothing !== undefined) return nothing;
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'string' ? 'a text' : typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
