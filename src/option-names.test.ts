import { describe, expect, it } from 'vitest';
import { KvantError } from './errors.js';
import { checkOptionNames } from './option-names.js';

const known = { maxRows: true, maxQueue: true } as const;
const refusal = (options: unknown): KvantError => {
  try {
    checkOptionNames(options, known, 'Engine.load');
  } catch (error) {
    if (error instanceof KvantError) return error;
  }
  throw new Error('not refused');
};

describe('names of options', () => {
  it('passes those that are known, and what says nothing', () => {
    for (const options of [{}, { maxRows: 1 }, { maxRow: undefined }, Object.create(null)])
      checkOptionNames(options, known, 'Engine.load');
  });

  it('refuses the others, naming them and what may have been meant', () => {
    expect(refusal({ maxRow: 1 })).toMatchObject({
      code: 'unknown-option',
      status: 400,
      where: 'maxRow',
      message: '`maxRow` is no option of Engine.load.',
      fix: 'Did you mean `maxRows`?',
    });
    expect(refusal({ max_rows: 1 }).fix).toBe('Did you mean `maxRows`?');
    expect(refusal({ colour: null }).fix).toBe('Check the spelling, or leave it out.');
    expect(refusal({ toString: 1 }).where).toBe('toString');
  });

  it('refuses what is no object', () => {
    for (const [options, got] of [
      [null, 'null'],
      [[], 'a list'],
      ['maxRows', 'a text'],
      [5, 'a number'],
    ] as const)
      expect(refusal(options)).toMatchObject({
        code: 'invalid-option',
        message: expect.stringContaining(got),
      });
  });
});
