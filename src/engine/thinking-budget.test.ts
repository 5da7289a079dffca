import { describe, expect, it } from 'vitest';
import { TOKEN_KNOWN, type TokenTable } from '../text/token-bytes.js';
import type { ConstraintAnswer, ConstraintRule } from './constraint.js';
import { withThinkingBudget } from './thinking-budget.js';

const TOKENS = [
  '<think>',
  '</think>',
  ' ',
  'a',
  '</',
  'think',
  '>',
  '<',
  Buffer.from([0xe2]),
  Buffer.from([0x82, 0xac]),
];
const [OPEN, CLOSE, SPACE, A] = [0, 1, 2, 3];
const bytes = TOKENS.map((token) => (typeof token === 'string' ? Buffer.from(token) : token));
const table: TokenTable = {
  data: new Uint8Array(Buffer.concat(bytes)),
  offsets: Uint32Array.from([0, ...bytes.map((_, i) => Buffer.concat(bytes.slice(0, i + 1)).length)]),
  flags: new Uint8Array(bytes.length).fill(TOKEN_KNOWN),
  size: bytes.length,
  leadingCount: 0,
  leadingByte: 0,
};
const marks = { open: '<think>', close: '</think>' };
const INNER = Uint32Array.from([8]);

/** What is said of the token after each. */
function rules(open: boolean, tokens: number, ids: readonly number[], inner = true): unknown[] {
  const heard: (number | null)[] = [];
  const constraint = withThinkingBudget({ tokens, open, marks, close: [SPACE, CLOSE] }, table, (choice) => {
    expect(choice).toBe(2);
    return {
      next: (last): ConstraintRule => {
        heard.push(last);
        return INNER;
      },
    };
  })(2);
  const free = withThinkingBudget({ tokens, open, marks, close: [SPACE, CLOSE] }, table, null)(2);
  const said = [null, ...ids].map((id) => {
    const rule = constraint.next(id);
    // Without anything inside there is no rule where the inner one held.
    expect(free.next(id)).toBe(rule === INNER ? null : rule);
    return rule === INNER ? 'inner' : rule;
  });
  if (inner) expect(heard).toEqual([null, ...ids]);
  return said;
}

describe('a budget of thoughts', () => {
  it('closes the block when it is used up, and lets the answer go on', () => {
    expect(rules(true, 2, [A, A, SPACE, CLOSE, A])).toEqual([
      'inner',
      'inner',
      SPACE,
      CLOSE,
      'inner',
      'inner',
    ]);
    expect(rules(true, 0, [SPACE, CLOSE, A])).toEqual([SPACE, CLOSE, 'inner', 'inner']);
    // The mark that opens it does not count.
    expect(rules(false, 1, [SPACE, OPEN, A, SPACE, CLOSE])).toEqual([
      'inner',
      'inner',
      'inner',
      SPACE,
      CLOSE,
      'inner',
    ]);
  });

  it('leaves alone what ends in time, or does not begin', () => {
    expect(rules(true, 5, [A, CLOSE, A, A, A, A])).not.toContain(CLOSE);
    // The mark in pieces.
    expect(rules(true, 4, [A, 4, 5, 6, A, A, A])).not.toContain(CLOSE);
    expect(rules(false, 1, [A, OPEN, A, A, A])).not.toContain(CLOSE);
    expect(rules(false, 1, [7, 5, 6, A])).toEqual(['inner', 'inner', 'inner', 'inner', SPACE]);
  });

  it('ends a block behind what is forced, and has nothing forced while it ends one', () => {
    const asked: boolean[] = [];
    const inner = {
      next: (last: number | null, mayRun = true): ConstraintAnswer => {
        asked.push(mayRun);
        return mayRun && last === A ? { run: [OPEN, A, A], behind: INNER } : INNER;
      },
    };
    const made = () =>
      withThinkingBudget({ tokens: 2, open: false, marks, close: [CLOSE] }, table, () => inner)(0);
    const constraint = made();
    // The run begins the block and fills it.
    expect(constraint.next(null)).toBe(INNER);
    expect(constraint.next(SPACE)).toBe(INNER);
    expect(constraint.next(OPEN)).toBe(INNER);
    expect(constraint.next(A)).toEqual({ run: [OPEN, A, A], behind: CLOSE });
    expect(asked).toEqual([true, true, true, true]);
    expect(constraint.next(CLOSE)).toBe(INNER);
    expect(constraint.next(A)).toEqual({ run: [OPEN, A, A], behind: INNER });
    const full = made();
    for (const id of [null, OPEN, SPACE]) full.next(id);
    expect(full.next(A)).toBe(CLOSE);
    expect(asked.at(-1)).toBe(false);
  });

  it('does not cut a character', () => {
    expect(rules(true, 1, [8, 9, SPACE, CLOSE, A])).toEqual([
      'inner',
      'inner',
      SPACE,
      CLOSE,
      'inner',
      'inner',
    ]);
  });
});
