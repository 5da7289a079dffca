/** What an answer may be held to, as requests say it, and the grammar that it becomes. Plain data: it crosses threads. */

import { compileGrammar } from './compile.js';
import { choice, type Grammar, text } from './expression.js';
import { jsonObjectGrammar, schemaGrammar } from './json/schema.js';
import { invalidSchema } from './json/schema-nodes.js';
import { Budget, checkSource } from './limits.js';
import { regexWords } from './regex.js';
import type { GrammarTables } from './tables.js';

export type GrammarAsk =
  /** A JSON object, whatever is in it. */
  | { readonly kind: 'json' }
  /** `schema`: its JSON text. */
  | { readonly kind: 'schema'; readonly schema: string; readonly strict: boolean }
  | { readonly kind: 'regex'; readonly pattern: string }
  | { readonly kind: 'choice'; readonly choices: readonly string[] };

/**
 * Errors: `invalid-schema`, `unsupported-schema`, `invalid-pattern`, `invalid-grammar`, `grammar-too-large`.
 */
export function compileAsk(ask: GrammarAsk): GrammarTables {
  const budget = new Budget();
  return compileGrammar(grammarOf(ask, budget), budget);
}

export function grammarOf(ask: GrammarAsk, budget: Budget): Grammar {
  switch (ask.kind) {
    case 'json':
      return jsonObjectGrammar();
    case 'schema':
      checkSource(ask.schema);
      return schemaGrammar(readSchema(ask.schema), budget, { strict: ask.strict });
    case 'regex':
      return only({ kind: 'words', words: regexWords(ask.pattern, false, budget), spelling: 'text' });
    case 'choice':
      return only(choice(...ask.choices.map(text)));
  }
}

const only = (root: Grammar['rules'] extends ReadonlyMap<string, infer E> ? E : never): Grammar => ({
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
