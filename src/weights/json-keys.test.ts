import { expect, it } from 'vitest';
import { findDuplicateKey } from './json-keys.js';

it.each([
  ['{}', undefined],
  ['{"a":1,"b":{"a":2},"c":[{"a":1},{"a":1}]}', undefined],
  ['{"a":"a","b":["a","a"]}', undefined],
  ['{"a":1,"a":2}', 'a'],
  ['{"a":1,"\\u0061":2}', 'a'],
  ['{"x":[1,{"k":"}","k":2}]}', 'k'],
  ['{"a\\"":1,"b":"\\\\","a\\"":2}', 'a"'],
  ['[{"a":1},{"b":1}]', undefined],
])('%s', (text, expected) => {
  expect(findDuplicateKey(text)).toBe(expected);
});
