import { describe, expect, it } from 'vitest';
import { ApiKeys, readPriority } from './caller.js';

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

describe('ApiKeys', () => {
  const keys = new ApiKeys(['alpha', 'beta']);

  it('tells whose request it is, and never says the key', () => {
    expect(keys.shareOf('Bearer alpha')).toBe('key 1');
    expect(keys.shareOf('bearer beta')).toBe('key 2');
  });

  for (const bad of [undefined, '', 'alpha', 'Bearer ', 'Bearer gamma', 'Basic alpha'])
    it(`refuses ${bad}`, () => {
      expect(() => keys.shareOf(bad)).toThrow(expect.objectContaining({ code: 'invalid-api-key' }));
    });

  it('an empty key opens nothing', () => {
    expect(() => new ApiKeys(['']).shareOf(undefined)).toThrow();
  });
});
