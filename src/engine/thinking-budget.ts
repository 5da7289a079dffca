/** Ends a block of thoughts that grows too long, and lets the answer go on: on the engine's thread, between a row and its grammar. */

import { type TokenTable, tokenBytes } from '../text/token-bytes.js';
import { type Constrain, type Constraint, type ConstraintAnswer, isRun } from './constraint.js';

/** What a request brings. Plain data. */
export interface ThinkingBudget {
  /** Tokens that the block may have, but for its end. */
  readonly tokens: number;
  /** The prompt has begun the block. */
  readonly open: boolean;
  /** What it stands in. */
  readonly marks: { readonly open: string; readonly close: string };
  /** Ids that end the block. */
  readonly close: readonly number[];
}

/** Bytes that are looked back at: longer than a mark that closes. */
const KEPT = 32;

/** `inner`: what holds besides, null for nothing. */
export function withThinkingBudget(
  budget: ThinkingBudget,
  table: TokenTable,
  inner: Constrain | null,
): Constrain {
  return (choice) => new BudgetConstraint(budget, table, inner?.(choice) ?? null);
}

class BudgetConstraint implements Constraint {
  readonly #budget: ThinkingBudget;
  readonly #table: TokenTable;
  readonly #inner: Constraint | null;
  #phase: 'start' | 'thinking' | 'closing' | 'over';
  #thought = 0;
  #closed = 0;
  /** The last bytes, one character each. */
  #tail = '';

  constructor(budget: ThinkingBudget, table: TokenTable, inner: Constraint | null) {
    this.#budget = budget;
    this.#table = table;
    this.#inner = inner;
    this.#phase = budget.open ? 'thinking' : 'start';
  }

  next(last: number | null, mayRun = true): ConstraintAnswer | Promise<ConstraintAnswer> {
    if (last !== null) this.#read(last);
    const ends = this.#ends();
    const inner = this.#inner?.next(last, mayRun && !ends) ?? null;
    if (ends) return this.#budget.close[this.#closed]!;
    return inner instanceof Promise ? inner.then((answer) => this.#within(answer)) : this.#within(inner);
  }

  /** A run may begin a block or go beyond the budget by what is forced: the block is ended behind it. */
  #within(answer: ConstraintAnswer): ConstraintAnswer {
    if (!isRun(answer)) return answer;
    for (let i = 0; i < answer.run.length; i++) this.#read(answer.run[i]!);
    return this.#ends() ? { run: answer.run, behind: this.#budget.close[this.#closed]! } : answer;
  }

  /** Whether the block is to end now. */
  #ends(): boolean {
    const due = this.#phase === 'thinking' && this.#thought >= this.#budget.tokens;
    if (due && !this.#inCharacter()) this.#phase = 'closing';
    return this.#phase === 'closing';
  }

  #read(id: number): void {
    if (this.#phase === 'over') return;
    if (this.#phase === 'closing') {
      if (++this.#closed === this.#budget.close.length) this.#phase = 'over';
      return;
    }
    const text = this.#tail + Buffer.from(tokenBytes(this.#table, id)).toString('latin1');
    const { open, close } = this.#budget.marks;
    if (this.#phase === 'start') {
      this.#tail = text.trimStart();
      if (this.#tail.startsWith(open)) {
        this.#phase = 'thinking';
        this.#tail = this.#tail.slice(open.length);
      } else if (!open.startsWith(this.#tail)) this.#phase = 'over';
      return;
    }
    this.#thought++;
    if (text.includes(close)) this.#phase = 'over';
    this.#tail = text.slice(-KEPT);
  }

  /** The bytes so far end within a character of UTF-8. */
  #inCharacter(): boolean {
    for (let back = 1; back <= 3; back++) {
      const byte = this.#tail.charCodeAt(this.#tail.length - back);
      if (Number.isNaN(byte) || byte < 0x80) return false;
      if (byte >= 0xc0) return back < (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2);
    }
    return false;
  }
}
