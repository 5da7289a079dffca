import { describe, expect, it } from 'vitest';
import { textField, withTextField } from './text-config.js';

describe('a field of the decoder', () => {
  it.each([
    [{ tie: true }, true],
    [{ text_config: { tie: true } }, true],
    [{ tie: true, text_config: { tie: false } }, false],
    [{ tie: true, text_config: { tie: null } }, true],
    [{ tie: true, text_config: null }, true],
    [{ text_config: {} }, undefined],
  ])('of %j is %s', (config, value) => {
    expect(textField(config, 'tie')).toBe(value);
  });

  it('is written to where it is looked for', () => {
    expect(withTextField({ a: 1, tie: true }, 'tie', false)).toEqual({ a: 1, tie: false });
    expect(withTextField({ text_config: { a: 1, tie: true } }, 'tie', false)).toEqual({
      tie: false,
      text_config: { a: 1, tie: false },
    });
  });
});
