import { describe, expect, it } from 'vitest';
import type { GenerateRequest } from '../engine/types.js';
import { ApiKeys, type KeyHolder } from './api-keys.js';
import { fromCaller, readPriority } from './caller.js';

describe('readPriority', () => {
  it('takes words and numbers', () => {
    expect(['high', ' Normal', 'LOW', '3', '-10', '0'].map(readPriority)).toEqual([5, 0, -5, 3, -10, 0]);
    expect(readPriority(undefined)).toBeUndefined();
  });

  for (const bad of ['', 'urgent', '11', '-11', '1.5', '1e9', 'constructor'])
    it(`refuses "${bad}"`, () => {
      expect(() => readPriority(bad)).toThrow(expect.objectContaining({ code: 'invalid-parameter' }));
    });
});

const holder = (maxPriority: number, key = 'alpha'): KeyHolder =>
  new ApiKeys([{ key, priority: maxPriority }]).holderOf(`Bearer ${key}`)!;
const rules = { maxPriority: 10, prefixCacheShared: false };

describe('fromCaller', () => {
  it('leaves a request without a key as it is', () => {
    const request = { prompt: 'a', cacheSalt: 's', priority: 10 };
    expect(fromCaller(request, {}, rules)).toEqual(request);
    expect(fromCaller({ prompt: 'a' }, {}, rules)).toEqual({ prompt: 'a' });
  });

  it.each([
    [0, undefined, undefined, undefined],
    [0, 0, undefined, 0],
    [0, -10, 'high', -10],
    [0, undefined, 'low', -5],
    [5, undefined, 'high', 5],
    [5, 3, 'high', 3],
    [10, 10, undefined, 10],
    [-5, undefined, undefined, -5],
    [-5, undefined, '-7', -7],
  ])('a key with at most %i, body %s, header %s: %s', (most, priority, header, expected) => {
    const request = { prompt: 'a', ...(priority === undefined ? {} : { priority }) };
    const caller = { key: holder(most), ...(header === undefined ? {} : { priority: header }) };
    expect(fromCaller(request, caller, rules).priority).toBe(expected);
  });

  it.each([
    [0, 1, undefined, 'priority'],
    [0, 10, 'low', 'priority'],
    [0, undefined, 'high', 'X-Priority'],
    [0, undefined, '1', 'X-Priority'],
    [-5, 0, undefined, 'priority'],
    [-5, undefined, 'normal', 'X-Priority'],
  ])('a key with at most %i is refused body %s, header %s, naming %s', (most, priority, header, where) => {
    const request = { prompt: 'a', ...(priority === undefined ? {} : { priority }) };
    const caller = { key: holder(most), ...(header === undefined ? {} : { priority: header }) };
    const refused = {
      code: 'priority-not-allowed',
      status: 400,
      where,
      fix: expect.stringContaining(`${most}`),
    };
    expect(() => fromCaller(request, caller, rules)).toThrow(expect.objectContaining(refused));
    expect(() =>
      fromCaller(request, { ...caller, key: undefined } as never, { ...rules, maxPriority: most }),
    ).toThrow(expect.objectContaining(refused));
  });

  it('salts with the key, and with the client’s salt beneath it', () => {
    const salt = (key: string, cacheSalt?: string): string | undefined =>
      fromCaller(
        { prompt: 'a', ...(cacheSalt === undefined ? {} : { cacheSalt }) },
        { key: holder(0, key) },
        rules,
      ).cacheSalt;
    const salts = [salt('a'), salt('b'), salt('a', 'x'), salt('b', 'x'), salt('a', 'y'), salt('a', 'null')];
    expect(new Set(salts).size).toBe(salts.length);
    for (const one of salts) expect(one).toMatch(/^[0-9a-f]{64}$/);
    expect(salt('a', 'x')).toBe(salts[2]);
    // Nobody without the key gets there.
    expect(fromCaller({ prompt: 'a', cacheSalt: 'x' }, {}, rules).cacheSalt).toBe('x');
  });

  it('leaves salts alone where keys share', () => {
    const shared = { ...rules, prefixCacheShared: true };
    const caller = { key: holder(0) };
    expect(fromCaller({ prompt: 'a' }, caller, shared)).not.toHaveProperty('cacheSalt');
    expect(fromCaller({ prompt: 'a', cacheSalt: 'x' }, caller, shared).cacheSalt).toBe('x');
    const request: GenerateRequest = { prompt: 'a' };
    expect(fromCaller(request, caller, shared).share).toBe(fromCaller(request, caller, rules).share);
  });
});
