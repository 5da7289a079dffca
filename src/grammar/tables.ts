/**
 * A compiled grammar: one automaton a rule, over bytes, calls of other rules and tokens, in typed arrays over shared memory. Posting
 * it to another thread copies nothing.
 *
 * States are numbered across all rules. A state's edges of one kind are those from `at[state]` to `at[state + 1]`. A rule that counts
 * has three automata in one: `head` leads to the loop, `item` goes round it, `tail` leaves it; a run of it has a count.
 */
export interface GrammarTables {
  /** Which grammar it is: the same for the same rules. */
  readonly key: string;
  /** Formats of schemas that nobody knows: they are annotations, and say nothing of a value. */
  readonly left: readonly string[];
  /** By rule: its first state; that of a rule that counts is of its head. Rule 0 is a whole answer. */
  readonly start: Int32Array;
  /** By rule: fewest and most items; `max` is −1 in a rule that does not count, and NO_END without an end. */
  readonly min: Int32Array;
  readonly max: Int32Array;
  /** By rule that counts: where item and tail begin. */
  readonly item: Int32Array;
  readonly tail: Int32Array;
  /**
   * By rule: the same for rules that go the same ways, counts aside, in whatever grammar; empty for one that calls others. Masks
   * of such a rule are shared.
   */
  readonly ruleKeys: readonly string[];
  /** The same by item and tail alone; empty for a rule that does not count. */
  readonly loopKeys: readonly string[];
  /** By state. */
  readonly ruleOf: Int32Array;
  readonly flags: Uint8Array;
  /** How many plain characters the state takes, whatever they are: see plain-text.ts. */
  readonly plain: Uint8Array;
  readonly byteAt: Int32Array;
  readonly byteLow: Uint8Array;
  readonly byteHigh: Uint8Array;
  readonly byteTo: Int32Array;
  readonly callAt: Int32Array;
  readonly callRule: Int32Array;
  readonly callTo: Int32Array;
  readonly tokenAt: Int32Array;
  readonly tokenId: Int32Array;
  readonly tokenTo: Int32Array;
}

export const NO_END = 2 ** 31 - 1;

/** What a state is. */
export const STATE = {
  /** The rule may be over here. */
  FINAL: 1,
  /** An item may be over here: one more is counted. */
  ITEM_END: 2,
  /** The head may be over here: items or the tail come next. */
  HEAD_END: 4,
  /** The rule is over here, and nothing else can be. */
  LAST: 8,
} as const;
