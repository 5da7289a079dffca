/** Expressions as automata over bytes, calls of rules and tokens, which may be in several states at once. */

import { shown } from '../printable.js';
import { type ByteRanges, type CodePointRange, LAST_CODE_POINT, utf8Ranges } from './code-points.js';
import { type Expression, invalidGrammar } from './expression.js';
import { JSON_PLAIN, jsonEscapes } from './json-characters.js';
import { type Budget, MAX_DEPTH, tooLarge } from './limits.js';

export interface ByteEdge {
  readonly low: number;
  readonly high: number;
  readonly to: number;
}
export interface NumberedEdge {
  /** A rule's number, or a token's id. */
  readonly number: number;
  readonly to: number;
}

/** Bytes of characters: the first, and those behind it. */
interface Path {
  readonly low: number;
  readonly high: number;
  readonly rest: Path | null;
  /** The same for the same bytes, of those behind a first one. */
  readonly key: number;
}

function pathOf(path: ByteRanges, i: number): Path {
  const [low, high] = path[i]!;
  const rest = i + 1 < path.length ? pathOf(path, i + 1) : null;
  // Bytes behind the first have six bits of their own. There are three at most.
  return { low, high, rest, key: ((rest?.key ?? 1) * 64 + (low & 63)) * 64 + (high & 63) };
}

/** What may be counted instead of written out. */
export type Countable = Expression & { readonly kind: 'counted' | 'repeat' };

/** Repetitions of so many are counted. */
const MANY = 16;
const QUOTE = 0x22;
/** Half a surrogate pair, for which UTF-8 has no bytes. */
const HALF = /\p{Cs}/u;
const MAX_NFA = 200_000;
/** Front ends bound what users write; their own frames come on top. */
const DEEPEST = 32 * MAX_DEPTH;

const NONE: readonly never[] = [];

/** Most states have nothing of most kinds: they share an empty list. */
function put<T>(lists: (readonly T[])[], at: number, item: T): void {
  const list = lists[at]!;
  if (list === NONE) lists[at] = [item];
  else (list as T[]).push(item);
}

export class ByteNfa {
  readonly bytes: (readonly ByteEdge[])[] = [];
  readonly calls: (readonly NumberedEdge[])[] = [];
  readonly tokens: (readonly NumberedEdge[])[] = [];
  readonly jumps: (readonly number[])[] = [];
  /** Ends of characters that have been written out, by where they lead and their bytes. */
  readonly #tails = new Map<number, Map<number, number>>();
  /** Escapes that have been, by which they are and where they lead. */
  readonly #escaped = new Map<string, number>();
  readonly #spelled = new Map<number, readonly Path[]>();
  readonly #budget: Budget;
  readonly #ruleNumber: (name: string) => number;
  /** Makes a rule of what is counted, and tells its number. */
  readonly #countedNumber: (expression: Countable) => number;
  #depth = 0;

  constructor(
    budget: Budget,
    ruleNumber: (name: string) => number,
    countedNumber: (expression: Countable) => number,
  ) {
    this.#budget = budget;
    this.#ruleNumber = ruleNumber;
    this.#countedNumber = countedNumber;
  }

  /** Errors: `grammar-too-large`. */
  add(): number {
    this.#budget.spend(1);
    if (this.bytes.length === MAX_NFA) throw tooLarge('repeats too much');
    this.bytes.push(NONE);
    this.calls.push(NONE);
    this.tokens.push(NONE);
    this.jumps.push(NONE);
    return this.bytes.length - 1;
  }

  /** Leads from one state to the other by whatever the expression says. */
  build(expression: Expression, from: number, to: number): void {
    if (++this.#depth > DEEPEST) throw tooLarge('is nested too deep');
    this.#build(expression, from, to);
    this.#depth--;
  }

  #build(expression: Expression, from: number, to: number): void {
    switch (expression.kind) {
      case 'text': {
        if (HALF.test(expression.text))
          throw invalidGrammar(
            `The text ${shown(JSON.stringify(expression.text))} has half a surrogate pair.`,
            'Send whole characters; half of one is never written.',
          );
        const bytes = Buffer.from(expression.text, 'utf8');
        let at = from;
        bytes.forEach((byte, i) => {
          const next = i === bytes.length - 1 ? to : this.add();
          put(this.bytes, at, { low: byte, high: byte, to: next });
          at = next;
        });
        if (bytes.length === 0) put(this.jumps, from, to);
        return;
      }
      case 'byte':
        put(this.bytes, from, { low: expression.low, high: expression.high, to });
        return;
      case 'set':
        this.#set(expression.ranges, from, to);
        return;
      case 'sequence': {
        let at = from;
        for (const item of expression.items) {
          const next = this.add();
          this.build(item, at, next);
          at = next;
        }
        put(this.jumps, at, to);
        return;
      }
      case 'choice':
        for (const item of expression.items) {
          const start = this.add();
          put(this.jumps, from, start);
          this.build(item, start, to);
        }
        return;
      case 'repeat':
        this.#repeat(expression, from, to);
        return;
      case 'counted':
        put(this.calls, from, { number: this.#countedNumber(expression), to });
        return;
      case 'list':
        this.#list(expression, from, to);
        return;
      case 'rule':
        put(this.calls, from, { number: this.#ruleNumber(expression.rule), to });
        return;
      case 'token':
        put(this.tokens, from, { number: expression.id, to });
        return;
      case 'words':
        this.#words(expression, from, to);
        return;
      case 'string-rest': {
        const { words, any, rule } = expression;
        const closing = this.add();
        put(this.bytes, closing, { low: QUOTE, high: QUOTE, to });
        const states = this.#words({ words, spelling: 'json' }, from, closing, any);
        put(this.calls, states[any]!, { number: this.#ruleNumber(rule), to });
        return;
      }
    }
  }

  #set(ranges: readonly CodePointRange[], from: number, to: number): void {
    for (const [low, high] of ranges) {
      if (high < 0x80) {
        this.#budget.spend(1);
        put(this.bytes, from, { low, high, to });
        continue;
      }
      const paths = this.#paths(low, high);
      this.#budget.spend(2 * paths.length);
      for (const { low: first, high: last, rest } of paths)
        put(this.bytes, from, { low: first, high: last, to: this.#tail(rest, to) });
    }
  }

  /** The bytes of a range of code points, by their first. */
  #paths(low: number, high: number): readonly Path[] {
    const key = low * (LAST_CODE_POINT + 1) + high;
    let paths = this.#spelled.get(key);
    if (paths === undefined) {
      paths = utf8Ranges([low, high]).map((path) => pathOf(path, 0));
      this.#spelled.set(key, paths);
    }
    return paths;
  }

  /** The state before the rest of a character. Characters that lead to the same place share how they end. */
  #tail(rest: Path | null, to: number): number {
    if (rest === null) return to;
    let tails = this.#tails.get(to);
    if (tails === undefined) {
      tails = new Map();
      this.#tails.set(to, tails);
    }
    let state = tails.get(rest.key);
    if (state === undefined) {
      state = this.add();
      tails.set(rest.key, state);
      const { low, high, rest: further } = rest;
      put(this.bytes, state, { low, high, to: this.#tail(further, to) });
    }
    return state;
  }

  #repeat(expression: Expression & { readonly kind: 'repeat' }, from: number, to: number): void {
    const { item, min, max } = expression;
    if ((max ?? min) > MANY) {
      put(this.calls, from, { number: this.#countedNumber(expression), to });
      return;
    }
    let at = from;
    for (let i = 0; i < min; i++) {
      const next = this.add();
      this.build(item, at, next);
      at = next;
    }
    if (max === null) {
      const loop = this.add();
      const end = this.add();
      put(this.jumps, at, loop);
      this.build(item, loop, end);
      put(this.jumps, end, loop);
      put(this.jumps, loop, to);
      return;
    }
    for (let i = min; i < max; i++) {
      put(this.jumps, at, to);
      const next = this.add();
      this.build(item, at, next);
      at = next;
    }
    put(this.jumps, at, to);
  }

  /** Two lines of states: before the first item that is there, and behind one. */
  #list({ items, more, separator }: Expression & { readonly kind: 'list' }, from: number, to: number): void {
    let none = from;
    let some = this.add();
    for (const { item, optional } of items) {
      const nextNone = this.add();
      const nextSome = this.add();
      const start = this.add();
      const inner = this.add();
      const end = this.add();
      put(this.jumps, none, start);
      this.build(separator, some, inner);
      put(this.jumps, inner, start);
      this.build(item, start, end);
      put(this.jumps, end, nextSome);
      if (optional) {
        put(this.jumps, none, nextNone);
        put(this.jumps, some, nextSome);
      }
      none = nextNone;
      some = nextSome;
    }
    if (more !== null) {
      const start = this.add();
      const end = this.add();
      put(this.jumps, none, start);
      this.build(separator, some, start);
      this.build(more, start, end);
      put(this.jumps, end, some);
    }
    put(this.jumps, none, to);
    put(this.jumps, some, to);
  }

  /** The state before the escapes of a range's characters; null where none has one. */
  #escapes(low: number, high: number, to: number): number | null {
    const escapes = jsonEscapes(low, high);
    if (escapes.length === 0) return null;
    const key = `${escapes.join('')}>${to}`;
    let state = this.#escaped.get(key);
    if (state === undefined) {
      state = this.add();
      this.#escaped.set(key, state);
      for (const spelled of escapes) this.build({ kind: 'text', text: spelled }, state, to);
    }
    return state;
  }

  /** `without`: a state that leads nowhere by itself. Returns the states of the words. */
  #words(
    { words, spelling }: Pick<Expression & { readonly kind: 'words' }, 'words' | 'spelling'>,
    from: number,
    to: number,
    without = -1,
  ): readonly number[] {
    const states = words.edges.map((_, i) => (i === 0 ? from : this.add()));
    // Nothing leads back into the state that the word begins in: others may share it.
    const start = this.add();
    states[0] = start;
    put(this.jumps, from, start);
    words.edges.forEach((edges, i) => {
      if (i === without) return;
      for (const { low, high, to: target } of edges) {
        const [at, next] = [states[i]!, states[target]!];
        if (spelling === 'text') this.#set([[low, high]], at, next);
        else {
          this.#set(JSON_PLAIN(low, high), at, next);
          const start = this.#escapes(low, high, next);
          if (start !== null) put(this.jumps, at, start);
        }
      }
      if (words.final[i]!) put(this.jumps, states[i]!, to);
    });
    return states;
  }
}
