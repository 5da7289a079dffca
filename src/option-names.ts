/** Options that nobody reads are refused: a misspelt one would be ignored in silence. */
import { kindOf } from './arguments.js';
import { didYouMean } from './did-you-mean.js';
import { KvantError } from './errors.js';

/** One entry for each option of `T`: the compiler tells when one is missing or too many. */
export type OptionNames<T> = { readonly [K in keyof Required<T>]: true };

/**
 * Refuses what is no object, and options that are not `known`; an undefined value counts as left out.
 * `of` says whose they are, as in "`maxRow` is no option of Engine.load".
 *
 * Errors: `invalid-option`, `unknown-option`, naming it.
 */
export function checkOptionNames(options: unknown, known: Readonly<Record<string, true>>, of: string): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw new KvantError('invalid-option', `The options of ${of} are an object, got ${kindOf(options)}.`, {
      kind: 'invalid-request',
      where: 'options',
      fix: 'Give an object, or leave it out.',
    });
  const given = options as Readonly<Record<string, unknown>>;
  for (const name of Object.keys(given)) {
    if (given[name] === undefined || Object.hasOwn(known, name)) continue;
    throw new KvantError('unknown-option', `\`${name}\` is no option of ${of}.`, {
      kind: 'invalid-request',
      where: name,
      fix: didYouMean(name, Object.keys(known)).trim() || 'Check the spelling, or leave it out.',
    });
  }
}
