/** What an answer may be held to, as requests say it, and the grammar that it becomes. Plain data: it crosses threads. */

import { compileGrammar } from './compile.js';
import { type Expression, type Grammar, oneOf, text } from './expression.js';
import { jsonObjectGrammar, schemaGrammar } from './json/schema.js';
import { invalidSchema } from './json/schema-nodes.js';
import { Budget, checkSource } from './limits.js';
import { regexWords } from './regex.js';
import { structuralTagGrammar } from './structural-tag.js';
import type { GrammarTables } from './tables.js';
import { NO_TOKENS, type TokenNames } from './token-names.js';
import { writtenGrammar } from './written.js';

export type GrammarAsk =
  /** A JSON object, whatever is in it. */
  | { readonly kind: 'json' }
  /** `schema`: its JSON text. */
  | { readonly kind: 'schema'; readonly schema: string; readonly strict: boolean }
  | { readonly kind: 'regex'; readonly pattern: string }
  | { readonly kind: 'choice'; readonly choices: readonly string[] }
  /** In GBNF or Lark. */
  | { readonly kind: 'grammar'; readonly grammar: string }
  /** A structural tag: its JSON text. */
  | { readonly kind: 'tags'; readonly tags: string };

/**
 * Errors: `invalid-schema`, `unsupported-schema`, `invalid-pattern`, `invalid-grammar`, `invalid-structural-tag`, `grammar-too-large`.
 */
export function compileAsk(ask: GrammarAsk, names: TokenNames = NO_TOKENS): GrammarTables {
  const budget = new Budget();
  return compileGrammar(grammarOf(ask, budget, names), budget);
}

export function grammarOf(ask: GrammarAsk, budget: Budget, names: TokenNames = NO_TOKENS): Grammar {
  switch (ask.kind) {
    case 'json':
      return jsonObjectGrammar();
    case 'schema':
      checkSource(ask.schema);
      return schemaGrammar(readSchema(ask.schema), budget, { strict: ask.strict });
    case 'regex':
      return only({ kind: 'words', words: regexWords(ask.pattern, false, budget), spelling: 'text' });
    case 'grammar':
      return writtenGrammar(ask.grammar, budget, names);
    case 'tags':
      return structuralTagGrammar(ask.tags, budget, names);
    case 'choice':
      checkSource(ask.choices);
      return only(oneOf(ask.choices.map(text)));
  }
}

const only = (root: Expression): Grammar => ({
  rules: new Map([['answer', root]]),
  root: 'answer',
});

function readSchema(source: string): unknown {
  try {
    return JSON.parse(source) as unknown;
  } catch {
    throw invalidSchema('#', 'is not JSON');
  }
}
