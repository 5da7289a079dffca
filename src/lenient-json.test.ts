import { describe, expect, it } from 'vitest';
import { parseLenientJson } from './lenient-json.js';

describe('parseLenientJson', () => {
  it('reads the words that Python writes', () => {
    expect(parseLenientJson('{"a": NaN, "b": [Infinity, -Infinity, {"c": NaN}], "d": 1}')).toEqual({
      a: Number.NaN,
      b: [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, { c: Number.NaN }],
      d: 1,
    });
    expect(parseLenientJson('NaN')).toBeNaN();
  });

  it('leaves strings and keys alone', () => {
    const text = '{"NaN": "Infinity", "say \\"NaN\\"": "\\\\", "-Infinity": NaN}';
    expect(parseLenientJson(text)).toEqual({
      NaN: 'Infinity',
      'say "NaN"': '\\',
      '-Infinity': Number.NaN,
    });
  });

  it('passes over a byte-order mark', () => {
    expect(parseLenientJson('\ufeff{"a": 1}')).toEqual({ a: 1 });
    expect(parseLenientJson('\ufeff[NaN]')).toEqual([Number.NaN]);
  });

  it.each(['{"a": nan}', '{"a": NaNs}', '{"a": +Infinity}', '{"a": NaN', '[--Infinity]', '', '{"a": "NaN}'])(
    'refuses %s',
    (text) => {
      expect(() => parseLenientJson(text)).toThrow(SyntaxError);
    },
  );

  it('tells the place in the text as it was given', () => {
    expect(() => parseLenientJson('{"a": NaN, "b": oops}')).toThrow(/position 6\b|NaN/);
  });
});
