import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { type ApiKey, ApiKeys } from './api-keys.js';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

describe('ApiKeys', () => {
  const keys = new ApiKeys([
    'alpha',
    { name: 'two', key: 'beta' },
    { name: 'three', sha256: sha256('gamma') },
  ]);

  it('tells whose request it is, and never says the key', () => {
    expect(keys.holderOf('Bearer alpha')).toMatchObject({ name: 'key 1', maxPriority: 0, admin: false });
    expect(keys.holderOf('bearer beta')!.name).toBe('two');
    expect(keys.holderOf('BEARER   gamma ')!.name).toBe('three');
    const told = JSON.stringify(['alpha', 'beta', 'gamma'].map((key) => keys.holderOf(`Bearer ${key}`)));
    for (const key of ['alpha', 'beta', 'gamma']) {
      expect(told).not.toContain(key);
      expect(told).not.toContain(sha256(key));
    }
  });

  for (const bad of [
    undefined,
    '',
    'alpha',
    'Bearer',
    'Bearer ',
    'Bearer delta',
    'Basic alpha',
    'Bearer alph',
    'Bearer alphaa',
    'Beareralpha',
    `Bearer ${sha256('gamma')}`,
  ])
    it(`refuses ${bad}`, () => {
      expect(keys.holderOf(bad)).toBeUndefined();
    });

  it('a tenant is its key: neither name nor place nor the way it is given matters', () => {
    const tenant = (list: (string | ApiKey)[], key: string): string =>
      new ApiKeys(list).holderOf(`Bearer ${key}`)!.tenant;
    const first = tenant(['a', 'b'], 'a');
    expect(tenant(['b', 'a'], 'a')).toBe(first);
    expect(tenant([{ name: 'renamed', key: 'a', priority: 3, admin: true }], 'a')).toBe(first);
    expect(tenant(['c', { sha256: sha256('a').toUpperCase() }], 'a')).toBe(first);
    expect(tenant(['a', 'b'], 'b')).not.toBe(first);
    expect(tenant(['b', { name: 'key 1', key: 'a' }], 'b')).not.toBe(first);
  });

  it('priorities: what a key says, else what holds for all; an admin has no limit', () => {
    const list = [
      'a',
      { key: 'b', priority: 7 },
      { key: 'c', admin: true },
      { key: 'd', admin: true, priority: 2 },
    ];
    const most = (maxPriority?: number): number[] => {
      const all = new ApiKeys(list, maxPriority === undefined ? {} : { maxPriority });
      return ['a', 'b', 'c', 'd'].map((key) => all.holderOf(`Bearer ${key}`)!.maxPriority);
    };
    expect(most()).toEqual([0, 7, 10, 2]);
    expect(most(-3)).toEqual([-3, 7, 10, 2]);
  });

  it('a key that is given twice is one', () => {
    const all = new ApiKeys([
      { name: 'web', sha256: sha256('a'), priority: 4 },
      'a',
      { key: 'a', admin: true },
    ]);
    expect(all.size).toBe(1);
    expect(all.holderOf('Bearer a')).toMatchObject({ name: 'web', maxPriority: 4, admin: true });
  });

  it('an empty key opens nothing', () => {
    for (const header of [undefined, '', 'Bearer', 'Bearer ', 'Bearer  '])
      expect(new ApiKeys(['']).holderOf(header)).toBeUndefined();
  });

  it('can be replaced, as a whole or not at all', () => {
    const all = new ApiKeys(['a', 'b']);
    const { tenant } = all.holderOf('Bearer b')!;
    all.replace(['b', 'c']);
    expect(all.holderOf('Bearer a')).toBeUndefined();
    expect(all.holderOf('Bearer b')!.tenant).toBe(tenant);
    expect(() => all.replace(['d', ' '])).toThrow(expect.objectContaining({ code: 'invalid-api-keys' }));
    expect(all.holderOf('Bearer d')).toBeUndefined();
    expect(all.holderOf('Bearer c')).toBeDefined();
    all.replace([]);
    expect(all.holderOf('Bearer c')).toBeUndefined();
  });

  it.each<[string | object, RegExp]>([
    [{ key: '' }, /empty/],
    ['  ', /empty/],
    [' a', /cannot be sent/],
    ['a\n', /cannot be sent/],
    ['schlüssel', /cannot be sent/],
    [{ key: 5 }, /cannot be sent/],
    [{}, /neither/],
    [{ key: 'a', sha256: sha256('a') }, /both/],
    [{ sha256: 'abc' }, /64/],
    [{ sha256: `${sha256('a')}0` }, /64/],
    [{ sha256: sha256('') }, /empty/],
    [{ key: 'a', name: '' }, /name/],
    [{ key: 'a', name: 'x\u001b[31m' }, /name/],
    [{ key: 'a', priority: 11 }, /priority/],
    [{ key: 'a', priority: '1' }, /priority/],
    [{ key: 'a', priority: 0.5 }, /priority/],
    [{ key: 'a', priority: null }, /priority/],
    [{ key: 'a', admin: 'yes' }, /admin/],
  ])('refuses %j', (entry, message) => {
    expect(() => new ApiKeys([entry as ApiKey])).toThrow(
      expect.objectContaining({ code: 'invalid-api-keys', message: expect.stringMatching(message) }),
    );
  });
});
