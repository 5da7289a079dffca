import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { anyObject, listOf, prompts } from './first-fault.js';

describe('listOf', () => {
  const entry = z.looseObject({ kind: z.enum(['a', 'b']), parts: listOf(z.number()).optional() });
  const schema = z.object({ list: listOf(entry) });
  const issues = (list: unknown) =>
    schema.safeParse({ list }).error!.issues.map(({ path, message }) => [path.join('.'), message]);

  it('gives what the entries become, fields that are not named included', () => {
    const list = [
      { kind: 'a', more: 1 },
      { kind: 'b', parts: [1, 2] },
    ];
    expect(schema.parse({ list })).toEqual({ list });
    expect(schema.parse({ list: [] })).toEqual({ list: [] });
  });

  it('names the first entry that is wrong, and no other', () => {
    const zod = z.object({ list: z.array(entry) }).safeParse({ list: [{ kind: 'a' }, { kind: 'c' }] });
    const { path, message } = zod.error!.issues[0]!;
    expect(issues([{ kind: 'a' }, { kind: 'c' }, { kind: 'd' }, 7])).toEqual([[path.join('.'), message]]);
    expect(issues([{ kind: 'a', parts: [1, 'x', 'y'] }])[0]![0]).toBe('list.0.parts.1');
    expect(issues('none')[0]![0]).toBe('list');
  });
});

describe('prompts', () => {
  it.each<[unknown]>([['text'], [''], [[1, 2]], [['a', '']], [[[1], [2, 3]]], [Array(128).fill('a')]])(
    'takes %j',
    (value) => {
      expect(prompts.parse(value)).toBe(value);
    },
  );

  it.each<[unknown]>([
    [null],
    [7],
    [{}],
    [[]],
    [[-1]],
    [[1, 'a']],
    [['a', 1]],
    [[1.5]],
    [[[]]],
    [[[1], 'a']],
    [[[1], [-1]]],
    [Array(129).fill('a')],
  ])('refuses %j', (value) => {
    expect(prompts.safeParse(value).error!.issues).toHaveLength(1);
  });
});

it('anyObject takes objects only', () => {
  expect(anyObject.safeParse({ a: 1 }).success).toBe(true);
  for (const value of [null, [], 'a', 1]) expect(anyObject.safeParse(value).success).toBe(false);
});
