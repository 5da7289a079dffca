/** Grammars that users write, in either notation. */

import type { Grammar } from './expression.js';
import { gbnfGrammar } from './gbnf.js';
import { isLark, larkGrammar } from './lark.js';
import type { Budget } from './limits.js';
import type { TokenNames } from './token-names.js';

/** Errors: `invalid-grammar` with line and column, `invalid-pattern`, `grammar-too-large`; those of schemas within. */
export function writtenGrammar(source: string, budget: Budget, names: TokenNames): Grammar {
  return isLark(source) ? larkGrammar(source, budget, names) : gbnfGrammar(source, names);
}
