/** Text that is free up to a mark: thoughts up to their end, an answer up to a call. What the mark begins is a grammar again. */

import type { Expression } from './expression.js';
import type { Budget } from './limits.js';
import { regexWords } from './regex.js';
import { intersectWords, otherWords, type Words } from './words.js';

/** Any text in which none of these stands. */
export function wordsWithout(marks: readonly string[], budget: Budget): Words {
  return otherWords(regexWords(marks.map(escaped).join('|'), true, budget), budget);
}

/**
 * Any text in which none of the marks stands, and which does not begin with one of these characters, white space aside. Behind it
 * stands what a mark begins: a grammar that is triggered lazily.
 */
export function freeText(marks: readonly string[], budget: Budget, starts = ''): Expression {
  const free = wordsWithout(marks, budget);
  if (starts === '') return { kind: 'words', words: free, spelling: 'text' };
  const begun = regexWords(`^\\s*[${[...starts].map(escaped).join('')}]`, true, budget);
  return {
    kind: 'words',
    words: intersectWords(free, otherWords(begun, budget), budget),
    spelling: 'text',
  };
}

const escaped = (text: string): string => text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
