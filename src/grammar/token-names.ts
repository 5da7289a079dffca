/** What grammars that name tokens have to know of a tokenizer. */

import { type Expression, sequence, text } from './expression.js';

export interface TokenNames {
  /** Ids are below this. */
  readonly size: number;
  /** The token that is written so, special ones included. */
  idOf(text: string): number | undefined;
  /** Whether bytes never spell it. */
  isSpecial(id: number): boolean;
}

/** Of a model without a tokenizer, and where there is none to ask. */
export const NO_TOKENS: TokenNames = { size: 0, idOf: () => undefined, isSpecial: () => false };

/** What may be a special token in a text. */
const MARKS = /<[^<>\s]{1,64}>|\[\/?[A-Za-z_]{1,64}\]/g;

/** A text in which marks that are special tokens stand as those tokens. */
export function spelled(value: string, names: TokenNames): Expression {
  const parts: Expression[] = [];
  let from = 0;
  for (const { index, 0: mark } of value.matchAll(MARKS)) {
    const id = names.idOf(mark);
    if (id === undefined || !names.isSpecial(id)) continue;
    if (index > from) parts.push(text(value.slice(from, index)));
    parts.push({ kind: 'token', id });
    from = index + mark.length;
  }
  if (from < value.length || parts.length === 0) parts.push(text(value.slice(from)));
  return parts.length === 1 ? parts[0]! : sequence(...parts);
}

/** Whether a text has a special token in it. */
export function hasSpecial(value: string, names: TokenNames): boolean {
  return [...value.matchAll(MARKS)].some(([mark]) => {
    const id = names.idOf(mark);
    return id !== undefined && names.isSpecial(id);
  });
}
