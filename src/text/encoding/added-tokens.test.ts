import { expect, it } from 'vitest';
import { AddedTokenMatcher } from './added-tokens.js';

/** @param flags w single word, l takes spaces before it, r after it */
function split(text: string, patterns: Record<string, string>): (string | number)[] {
  const matcher = new AddedTokenMatcher(
    Object.entries(patterns).map(([pattern, flags], id) => [
      pattern,
      { id, singleWord: flags.includes('w'), lstrip: flags.includes('l'), rstrip: flags.includes('r') },
    ]),
  );
  const parts: (string | number)[] = [];
  matcher.split(
    text,
    (start, end) => parts.push(text.slice(start, end)),
    ({ id }) => parts.push(id),
  );
  return parts;
}

it('finds the longest at each place', () => {
  expect(split('x<a><ab><', { '<a>': '', '<ab>': '', '<': '' })).toEqual(['x', 0, 1, 2]);
  expect(split('', { a: '' })).toEqual([]);
  expect(split('aa', {})).toEqual(['aa']);
});

it('keeps a single word from lying in another one', () => {
  const the = { the: 'w' };
  expect(split('the then bathe _the the_ 1the \u0301the', the)).toEqual([
    0,
    ' then bathe _the the_ 1the \u0301the',
  ]);
  expect(split('(the)-the\u{1f600}the', the)).toEqual(['(', 0, ')-', 0, '\u{1f600}', 0]);
  expect(split('\u{1d4b3}the', the)).toEqual(['\u{1d4b3}the']);
  // What is passed over hides what lies in it.
  expect(split('xthe', { the: 'w', he: '' })).toEqual(['xthe']);
});

it('takes white space along, but not what a token before has taken', () => {
  expect(split('a \u3000\n<m> \u0085b', { '<m>': 'lr' })).toEqual(['a', 0, 'b']);
  expect(split('a \ufeff<m>', { '<m>': 'l' })).toEqual(['a \ufeff', 0]);
  expect(split('<m>  <m>', { '<m>': 'lr' })).toEqual([0, 0]);
  expect(split(' <l> <r> ', { '<l>': 'l', '<r>': 'r' })).toEqual([0, ' ', 1]);
});
