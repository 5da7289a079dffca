import { describe, expect, it } from 'vitest';
import { readPackedText } from '../../../test/fixtures/read-packed.js';
import { parseLossless } from '../lossless-json.js';
import { pythonJson } from './json.js';
import { equals } from './operators.js';
import { repr, str } from './repr.js';
import { splitLines, strip } from './text.js';
import { fromPlain } from './values.js';

interface Sample {
  readonly value: unknown;
  readonly repr: string;
  readonly str: string;
  readonly json: string;
  readonly ascii: string;
}
// Read losslessly: 1e16 is a float.
const { values } = parseLossless(readPackedText('test/fixtures/text/chat-templates.json.gz')) as {
  values: readonly Sample[];
};

describe('Python values', () => {
  it.each(values)('writes $json as Python does', (sample) => {
    const value = fromPlain(sample.value);
    expect(repr(value)).toBe(sample.repr);
    expect(str(value)).toBe(sample.str);
    expect(pythonJson(value)).toBe(sample.json);
    expect(pythonJson(value, { indent: 1, ensureAscii: true, sortKeys: true })).toBe(sample.ascii);
  });

  it('are equal as in Python', () => {
    for (const [i, a] of values.entries()) {
      for (const [j, b] of values.entries()) {
        expect(equals(fromPlain(a.value), fromPlain(structuredClone(b.value)))).toBe(
          i === j || falseIsZero(a, b),
        );
      }
    }
    expect(equals(fromPlain(true), fromPlain(1))).toBe(true);
    expect(equals(fromPlain('1'), fromPlain(1))).toBe(false);
    expect(equals(fromPlain(undefined), fromPlain(null))).toBe(false);
    expect(equals(fromPlain({ a: 1, b: 2 }), fromPlain({ b: 2, a: 1 }))).toBe(true);
    expect(equals(fromPlain({ a: 1 }), fromPlain({ a: 1, b: 2 }))).toBe(false);
  });

  it('refuses undefined in JSON', () => {
    expect(() => pythonJson(fromPlain([undefined]))).toThrow('Undefined');
  });

  it('strips and splits by Unicode characters', () => {
    expect(strip('\u{1F600}x\u{1F600}', '\u{1F600}')).toBe('x');
    expect(strip('--x-', '-', 'left')).toBe('x-');
    expect(strip('\ufeff x')).toBe('\ufeff x');
    expect(splitLines('a\r\nb\n\nc\n')).toEqual(['a', 'b', '', 'c']);
    expect(splitLines('')).toEqual([]);
  });
});

function falseIsZero(a: Sample, b: Sample): boolean {
  return (a.value === false && b.value === 0) || (a.value === 0 && b.value === false);
}
