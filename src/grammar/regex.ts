/** Regular expressions (pattern.ts) to automata. */

import { ANY_CODE_POINT } from './code-points.js';
import { type Budget, checkSource } from './limits.js';
import { splitLookAhead } from './look-ahead.js';
import { type PatternNode, type PatternOptions, parsePattern } from './pattern.js';
import { determinise, intersectWords, otherWords, WordNfa, type Words } from './words.js';

/** By grammar: the patterns that have been read for it. */
const known = new WeakMap<Budget, Map<string, Words>>();

/**
 * The words that a pattern matches: as a whole, or with `search` somewhere within. Read once for a grammar.
 * Errors: `invalid-pattern`, `grammar-too-large`.
 */
export function regexWords(
  pattern: string,
  search: boolean,
  budget: Budget,
  options: PatternOptions = {},
): Words {
  let own = known.get(budget);
  if (own === undefined) {
    own = new Map();
    known.set(budget, own);
  }
  const key = JSON.stringify([pattern, search, options]);
  let words = own.get(key);
  if (words === undefined) {
    words = readPattern(pattern, search, budget, options);
    own.set(key, words);
  }
  return words;
}

function readPattern(pattern: string, search: boolean, budget: Budget, options: PatternOptions): Words {
  checkSource(pattern);
  const split = options.part === true ? null : splitLookAhead(pattern, search);
  if (split !== null) {
    let words = regexWords(split.rest, search, budget, options);
    for (const { pattern: begin, isNot } of split.ahead) {
      const begun = regexWords(`^(?:${begin})`, true, budget, options);
      words = intersectWords(words, isNot ? otherWords(begun, budget) : begun, budget);
    }
    return words;
  }
  const node = parsePattern(pattern, budget, options);
  const nfa = new WordNfa();
  const start = nfa.add();
  const end = nfa.add();
  build(node, nfa, start, end, budget);
  if (search) {
    nfa.edge(start, ANY_CODE_POINT, start);
    // What a pattern that ends with `$` has matched has nothing behind it.
    nfa.edge(end, ANY_CODE_POINT, end);
  }
  return determinise(nfa, start, end, budget);
}

function build(node: PatternNode, nfa: WordNfa, from: number, to: number, budget: Budget): void {
  budget.spend(2);
  switch (node.kind) {
    case 'set':
      budget.spend(node.ranges.length);
      nfa.edge(from, node.ranges, to);
      return;
    case 'begin':
      nfa.atBegin[from]!.push(to);
      return;
    case 'end':
      nfa.atEnd[from]!.push(to);
      return;
    case 'choice':
      for (const item of node.items) {
        const start = nfa.add();
        nfa.jump(from, start);
        build(item, nfa, start, to, budget);
      }
      return;
    case 'sequence': {
      let at = from;
      for (const item of node.items) {
        const next = nfa.add();
        build(item, nfa, at, next, budget);
        at = next;
      }
      nfa.jump(at, to);
      return;
    }
    case 'repeat': {
      const { item, min, max } = node;
      let at = from;
      for (let i = 0; i < min; i++) {
        const next = nfa.add();
        build(item, nfa, at, next, budget);
        at = next;
      }
      if (max === null) {
        const loop = nfa.add();
        nfa.jump(at, loop);
        const end = nfa.add();
        build(item, nfa, loop, end, budget);
        nfa.jump(end, loop);
        nfa.jump(loop, to);
        return;
      }
      for (let i = min; i < max; i++) {
        nfa.jump(at, to);
        const next = nfa.add();
        build(item, nfa, at, next, budget);
        at = next;
      }
      nfa.jump(at, to);
      return;
    }
  }
}
