/** Grammars and the trees of tokens that they are read by, made where they keep nobody waiting. */

import { KvantError } from '../../errors.js';
import type { GrammarAsk } from '../../grammar/ask.js';
import { compileGrammar } from '../../grammar/compile.js';
import { type ForcedRuns, forcedRuns, type RunSpeller } from '../../grammar/forced-runs.js';
import { Budget } from '../../grammar/limits.js';
import type { GrammarTables } from '../../grammar/tables.js';
import { NO_TOKENS, type TokenNames } from '../../grammar/token-names.js';
import { prepareTokens, type TokenSet } from '../../grammar/token-set.js';
import type { TokenTrie } from '../../grammar/token-trie.js';
import { type AnswerAsk, answerGrammar } from '../../text/answer-grammar.js';
import { TOKEN_KNOWN, TOKEN_SPECIAL, type TokenTable, tokenBytes } from '../../text/token-bytes.js';
import type { ModelText } from '../model-text.js';
import type { TaskResult, TextTask } from './text-task.js';

/** Trees over what tokens add to a text; `first` for the first token of one, where that is not the same. */
export interface TokenTries {
  readonly all: TokenSet;
  readonly first: TokenSet | null;
}

/** The task. Errors: those of `answerGrammar`; `grammar-too-large`. */
export const grammar: TextTask<AnswerAsk, GrammarTables> = (text, asked) => {
  const budget = new Budget();
  try {
    return {
      value: compileGrammar(answerGrammar(asked, text.tokenClues(), budget, tokenNames(text)), budget),
    };
  } catch (error) {
    throw atField(error, asked);
  }
};

/** Fields of a request that ask for a form. */
const FIELDS: Readonly<Record<GrammarAsk['kind'], string>> = {
  json: 'json',
  schema: 'schema',
  regex: 'regex',
  choice: 'choice',
  grammar: 'grammar',
  tags: 'structuralTag',
};

/** An error that says nothing of where is of the form, or of the calls where they are all that is asked for. */
function atField(error: unknown, { ask, tools }: AnswerAsk): unknown {
  if (!(error instanceof KvantError) || error.where !== undefined) return error;
  const field = ask !== null ? FIELDS[ask.kind] : tools !== null ? 'toolChoice' : undefined;
  if (field === undefined) return error;
  const { code, message, kind, fix } = error;
  return new KvantError(code, message, {
    kind,
    where: field,
    ...(fix === undefined ? {} : { fix }),
    cause: error,
  });
}

function tokenNames(model: ModelText): TokenNames {
  const { tokenTable } = model;
  if (tokenTable === null) return NO_TOKENS;
  const { flags, size } = tokenTable;
  const { idOf } = model.tokenClues();
  return { size, idOf, isSpecial: (id) => id < size && !isText(flags[id]!) };
}

/** Whether a token stands for its bytes. */
const isText = (flags: number): boolean => (flags & (TOKEN_KNOWN | TOKEN_SPECIAL)) === TOKEN_KNOWN;

/** What a grammar's forced runs are made of. Plain data over shared memory. */
export interface RunsAsk {
  readonly tables: GrammarTables;
  /** Of `TokenTries.all`. */
  readonly trie: TokenTrie;
}

/** The task: tokens that need not be drawn. */
export const runs: TextTask<RunsAsk, ForcedRuns> = (text, { tables, trie }) => ({
  value: forcedRuns(tables, trie, runSpeller(text)),
});

/** How a tokenizer writes what stands within a text: many put a space before what begins one. */
export function runSpeller(model: ModelText): RunSpeller {
  const table = model.tokenTable!;
  const bytesOf = (id: number): Uint8Array => tokenBytes(table, id);
  const endOf = (ids: Int32Array, text: Uint8Array): Int32Array | null => {
    let left = text.length;
    for (let i = ids.length - 1; i >= 0; i--) {
      const id = ids[i]!;
      if (!(id < table.size) || !isText(table.flags[id]!)) return null;
      const bytes = bytesOf(id);
      left -= bytes.length;
      if (left < 0 || bytes.some((byte, at) => byte !== text[left + at])) return null;
      if (left === 0) return ids.subarray(i);
    }
    return null;
  };
  return {
    bytesOf,
    spell: (text) => {
      const bytes = new TextEncoder().encode(text);
      const alone = model.encode(text, false);
      const found = endOf(alone, bytes);
      return found?.length === alone.length ? found : endOf(model.encode(`\n${text}`, false), bytes);
    },
  };
}

/** The task. Errors: `tokenizer-missing`. */
export const tries: TextTask<null, TokenTries> = ({ tokenTable }): TaskResult<TokenTries> => ({
  value: tokenTries(tokenTable),
});

export function tokenTries(table: TokenTable | null): TokenTries {
  if (table === null)
    throw new KvantError(
      'tokenizer-missing',
      'These weights have no tokenizer: tokens cannot be held to a form.',
      {
        kind: 'invalid-request',
        fix: 'Leave the form of the answer out, or use a model with a tokenizer.',
      },
    );
  const { data, offsets, flags, size } = table;
  const usable = (id: number): boolean => isText(flags[id]!);
  return { all: prepareTokens({ data, offsets, usable, size }), first: firstTrie(table, usable) };
}

/** The first token of a text may have other bytes, or lose its leading spaces. */
function firstTrie(table: TokenTable, usable: (id: number) => boolean): TokenSet | null {
  if (table.first !== undefined) return prepareTokens({ ...table.first, usable, size: table.size });
  const { data, offsets, size, leadingCount, leadingByte } = table;
  if (leadingCount === 0) return null;
  const starts = new Uint32Array(size + 1);
  const bytes = new Uint8Array(data.length);
  for (let id = 0, length = 0; id < size; id++) {
    let from = offsets[id]!;
    const end = offsets[id + 1]!;
    for (let i = 0; i < leadingCount && from < end && data[from] === leadingByte; i++) from++;
    bytes.set(data.subarray(from, end), length);
    length += end - from;
    starts[id + 1] = length;
  }
  return prepareTokens({ data: bytes, offsets: starts, usable, size });
}
