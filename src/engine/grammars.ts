/** Holds rows to their grammars, on the engine's thread: masks for all that have the same tokenizer. */

import { KvantError } from '../errors.js';
import { ByteCache } from '../grammar/byte-cache.js';
import { type ForcedRuns, runFrom } from '../grammar/forced-runs.js';
import { GrammarMasks } from '../grammar/masks.js';
import { Matcher, type ParserState } from '../grammar/matcher.js';
import { suppressedIds } from '../sampling/draws-left.js';
import { TOKEN_SPECIAL, type TokenTable, tokenBytes } from '../text/token-bytes.js';
import type { Constrain, Constraint, ForcedRun } from './constraint.js';
import type { RowGrammar } from './row-grammar.js';
import type { CoreRequest } from './sequence.js';
import type { TokenTries } from './texts/grammar-task.js';
import { withThinkingBudget } from './thinking-budget.js';

/** Bytes of grammars whose states are kept for the next request with the same. */
const KEPT_BYTES = 64 * 2 ** 20;
/** Of one, with the states that it comes to, about. */
const GRAMMAR_BYTES = 2 ** 20;

interface Masks {
  readonly all: GrammarMasks;
  /** Of the first token of a text that begins anew. */
  readonly first: GrammarMasks;
}

export class Grammars {
  readonly #table: TokenTable;
  readonly #endIds: readonly number[];
  readonly #vocabSize: number;
  readonly #matchers = new ByteCache<string, Matcher>(KEPT_BYTES);
  #masks: Masks | null = null;

  constructor(table: TokenTable, endIds: readonly number[], vocabSize: number) {
    this.#table = table;
    this.#endIds = endIds;
    this.#vocabSize = vocabSize;
  }

  /** All that a request is held to; null for nothing. */
  constrainAll(request: CoreRequest): Constrain | null {
    const { grammar, thinking, continuation } = request;
    const held = grammar === undefined ? null : this.constrain(grammar, continuation, takesRuns(request));
    return thinking === undefined ? held : withThinkingBudget(thinking, this.#table, held);
  }

  /** `continuation`: the answer goes on where the prompt's text ends. `mayRun`: tokens may be forced. */
  constrain({ tables, tries, runs }: RowGrammar, continuation: boolean, mayRun: boolean): Constrain {
    if (this.#masks === null) {
      const make = (trie: TokenTries['all']): GrammarMasks =>
        new GrammarMasks(trie, this.#endIds, this.#vocabSize);
      const all = make(tries.all);
      this.#masks = { all, first: tries.first === null ? all : make(tries.first) };
    }
    const masks = this.#masks;
    let matcher = this.#matchers.get(tables.key);
    if (matcher === undefined) {
      matcher = new Matcher(tables);
      this.#matchers.set(tables.key, matcher, GRAMMAR_BYTES);
    }
    const known = matcher;
    const begins = !continuation && tries.first !== null;
    const forced = mayRun ? runs : null;
    return () =>
      new GrammarConstraint(
        known,
        masks.all,
        begins ? masks.first : null,
        this.#table,
        forced,
        this.#vocabSize,
      );
  }
}

/** A token that the request rules out, now or always, is forced on nobody. */
function takesRuns({ rules, sampling }: CoreRequest): boolean {
  return rules.banned.length === 0 && sampling.minTokens === 0 && suppressedIds(rules).size === 0;
}

/** One for each choice. */
class GrammarConstraint implements Constraint {
  readonly #matcher: Matcher;
  readonly #masks: GrammarMasks;
  /** Null once the text has begun, and where its beginning is as the rest. */
  #first: GrammarMasks | null;
  readonly #table: TokenTable;
  /** Null where none are taken. */
  readonly #runs: ForcedRuns | null;
  #state: ParserState;
  /** Where its masks are made, each over the one before. */
  readonly #room: Uint32Array;

  constructor(
    matcher: Matcher,
    masks: GrammarMasks,
    first: GrammarMasks | null,
    table: TokenTable,
    runs: ForcedRuns | null,
    vocabSize: number,
  ) {
    this.#room = new Uint32Array(Math.ceil(vocabSize / 32));
    this.#matcher = matcher;
    this.#masks = masks;
    this.#first = first;
    this.#table = table;
    this.#runs = runs;
    this.#state = matcher.start;
  }

  /** A mask stands until it is asked again. Errors: `no-token-fits`. */
  next(last: number | null, mayRun = true): Uint32Array | ForcedRun {
    const first = this.#first;
    if (last !== null) {
      this.#state = this.#after(last, first !== null);
      this.#first = null;
    }
    const begins = last === null && first !== null;
    const run = mayRun && !begins ? this.#takeRun() : null;
    const mask = (begins ? first : this.#masks).mask(this.#matcher, this.#state, this.#room);
    if (mask.every((word) => word === 0)) throw noTokenFits();
    return run === null ? mask : { run, behind: mask };
  }

  /** Goes on to where the next token is not forced; null where it is not anyway. */
  #takeRun(): Int32Array | null {
    const { places, done } = this.#state;
    const [place] = places;
    if (this.#runs === null || place === undefined || places.length > 1 || done) return null;
    const run = runFrom(this.#runs, place.state);
    for (const id of run ?? []) this.#state = this.#after(id, false);
    return run;
  }

  #after(id: number, isFirst: boolean): ParserState {
    const isText = (this.#table.flags[id]! & TOKEN_SPECIAL) === 0;
    const bytes = !isText ? null : isFirst ? firstBytes(this.#table, id) : tokenBytes(this.#table, id);
    const state = this.#matcher.advance(this.#state, id, bytes);
    if (state === null)
      throw new KvantError('internal', `Token ${id} is not what the answer may go on with.`);
    return state;
  }
}

function firstBytes(table: TokenTable, id: number): Uint8Array {
  const { first, leadingCount, leadingByte } = table;
  if (first !== undefined) return first.data.subarray(first.offsets[id]!, first.offsets[id + 1]!);
  const bytes = tokenBytes(table, id);
  let from = 0;
  while (from < leadingCount && bytes[from] === leadingByte) from++;
  return bytes.subarray(from);
}

function noTokenFits(): KvantError {
  return new KvantError('no-token-fits', 'The model has no token for what the answer must go on with.', {
    kind: 'unsupported',
    fix: 'Its tokenizer lacks some bytes: use a model with a byte-level tokenizer, or a form without those characters.',
  });
}
