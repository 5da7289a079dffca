/** Expressions as automata over bytes, calls of rules and tokens, which may be in several states at once. */

import { type CodePointRange, utf8Ranges } from './code-points.js';
import type { Expression } from './expression.js';
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

/** What may be counted instead of written out. */
export type Countable = Expression & { readonly kind: 'counted' | 'repeat' };

/** Repetitions of so many are counted. */
const MANY = 16;
const MAX_NFA = 200_000;
/** Front ends bound what users write; their own frames come on top. */
const DEEPEST = 32 * MAX_DEPTH;

export class ByteNfa {
  readonly bytes: ByteEdge[][] = [];
  readonly calls: NumberedEdge[][] = [];
  readonly tokens: NumberedEdge[][] = [];
  readonly jumps: number[][] = [];
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
    this.bytes.push([]);
    this.calls.push([]);
    this.tokens.push([]);
    this.jumps.push([]);
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
        const bytes = Buffer.from(expression.text, 'utf8');
        this.#path(
          [...bytes].map((byte) => [byte, byte] as const),
          from,
          to,
        );
        return;
      }
      case 'byte':
        this.bytes[from]!.push({ low: expression.low, high: expression.high, to });
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
        this.jumps[at]!.push(to);
        return;
      }
      case 'choice':
        for (const item of expression.items) {
          const start = this.add();
          this.jumps[from]!.push(start);
          this.build(item, start, to);
        }
        return;
      case 'repeat':
        this.#repeat(expression, from, to);
        return;
      case 'counted':
        this.calls[from]!.push({ number: this.#countedNumber(expression), to });
        return;
      case 'list':
        this.#list(expression, from, to);
        return;
      case 'rule':
        this.calls[from]!.push({ number: this.#ruleNumber(expression.rule), to });
        return;
      case 'token':
        this.tokens[from]!.push({ number: expression.id, to });
        return;
      case 'words':
        this.#words(expression, from, to);
        return;
    }
  }

  #path(bytes: readonly (readonly [number, number])[], from: number, to: number): void {
    let at = from;
    bytes.forEach(([low, high], i) => {
      const next = i === bytes.length - 1 ? to : this.add();
      this.bytes[at]!.push({ low, high, to: next });
      at = next;
    });
    if (bytes.length === 0) this.jumps[from]!.push(to);
  }

  #set(ranges: readonly CodePointRange[], from: number, to: number): void {
    for (const range of ranges) for (const path of utf8Ranges(range)) this.#path(path, from, to);
  }

  #repeat(expression: Expression & { readonly kind: 'repeat' }, from: number, to: number): void {
    const { item, min, max } = expression;
    if ((max ?? min) > MANY) {
      this.calls[from]!.push({ number: this.#countedNumber(expression), to });
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
      this.jumps[at]!.push(loop);
      this.build(item, loop, end);
      this.jumps[end]!.push(loop);
      this.jumps[loop]!.push(to);
      return;
    }
    for (let i = min; i < max; i++) {
      this.jumps[at]!.push(to);
      const next = this.add();
      this.build(item, at, next);
      at = next;
    }
    this.jumps[at]!.push(to);
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
      this.jumps[none]!.push(start);
      this.build(separator, some, inner);
      this.jumps[inner]!.push(start);
      this.build(item, start, end);
      this.jumps[end]!.push(nextSome);
      if (optional) {
        this.jumps[none]!.push(nextNone);
        this.jumps[some]!.push(nextSome);
      }
      none = nextNone;
      some = nextSome;
    }
    if (more !== null) {
      const start = this.add();
      const end = this.add();
      this.jumps[none]!.push(start);
      this.build(separator, some, start);
      this.build(more, start, end);
      this.jumps[end]!.push(some);
    }
    this.jumps[none]!.push(to);
    this.jumps[some]!.push(to);
  }

  #words({ words, spelling }: Expression & { readonly kind: 'words' }, from: number, to: number): void {
    const states = words.edges.map((_, i) => (i === 0 ? from : this.add()));
    // Nothing leads back into the state that the word begins in: others may share it.
    const start = this.add();
    states[0] = start;
    this.jumps[from]!.push(start);
    words.edges.forEach((edges, i) => {
      for (const { low, high, to: target } of edges) {
        const [at, next] = [states[i]!, states[target]!];
        if (spelling === 'text') this.#set([[low, high]], at, next);
        else {
          this.#set(JSON_PLAIN(low, high), at, next);
          for (const escaped of jsonEscapes(low, high)) this.build(escaped, at, next);
        }
      }
      if (words.final[i]!) this.jumps[states[i]!]!.push(to);
    });
  }
}
