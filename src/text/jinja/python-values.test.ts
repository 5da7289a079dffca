import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { parseLossless } from '../lossless-json.js';
import {
  pythonEquals,
  pythonJson,
  pythonRepr,
  pythonSplitLines,
  pythonStr,
  pythonStrip,
} from './python-values.js';
import { toValue } from './values.js';

interface Sample {
  readonly value: unknown;
  readonly repr: string;
  readonly str: string;
  readonly json: string;
  readonly ascii: string;
}
// Read losslessly: 1e16 is a float.
const { values } = parseLossless(await readFile('test/fixtures/text/chat-templates.json', 'utf8')) as {
  values: readonly Sample[];
};

describe('Python values', () => {
  it.each(values)('writes $json as Python does', (sample) => {
    const value = toValue(sample.value);
    expect(pythonRepr(value)).toBe(sample.repr);
    expect(pythonStr(value)).toBe(sample.str);
    expect(pythonJson(value)).toBe(sample.json);
    expect(pythonJson(value, { indent: 1, ensureAscii: true, sortKeys: true })).toBe(sample.ascii);
  });

  it('are equal as in Python', () => {
    for (const [i, a] of values.entries()) {
      for (const [j, b] of values.entries()) {
        expect(pythonEquals(toValue(a.value), toValue(structuredClone(b.value)))).toBe(
          i === j || falseIsZero(a, b),
        );
      }
    }
    expect(pythonEquals(toValue(true), toValue(1))).toBe(true);
    expect(pythonEquals(toValue('1'), toValue(1))).toBe(false);
    expect(pythonEquals(toValue(undefined), toValue(null))).toBe(false);
    expect(pythonEquals(toValue({ a: 1, b: 2 }), toValue({ b: 2, a: 1 }))).toBe(true);
    expect(pythonEquals(toValue({ a: 1 }), toValue({ a: 1, b: 2 }))).toBe(false);
  });

  it('refuses undefined in JSON', () => {
    expect(() => pythonJson(toValue([undefined]))).toThrow('undefined');
  });

  it('strips and splits by Unicode characters', () => {
    expect(pythonStrip('\u{1F600}x\u{1F600}', '\u{1F600}')).toBe('x');
    expect(pythonStrip('--x-', '-', 'left')).toBe('x-');
    expect(pythonStrip('\ufeff x')).toBe('\ufeff x');
    expect(pythonSplitLines('a\r\nb\n\nc\n')).toEqual(['a', 'b', '', 'c']);
    expect(pythonSplitLines('')).toEqual([]);
  });
});

function falseIsZero(a: Sample, b: Sample): boolean {
  return (a.value === false && b.value === 0) || (a.value === 0 && b.value === false);
}
