import { describe, expect, it } from 'vitest';
import {
  mayBeLossy,
  objectOf,
  orderedEntries,
  parseJson,
  parseLossless,
  wholeFloat,
  wholeFloatValue,
} from './lossless-json.js';

describe('parseLossless', () => {
  it('keeps integers exact, as numbers where those hold them', () => {
    expect(parseLossless('[0, -0, 1, -9007199254740991, 9007199254740991]')).toEqual([
      0, 0, 1, -9007199254740991, 9007199254740991,
    ]);
    expect(parseLossless('[9007199254740992, -9223372036854775809]')).toEqual([
      9007199254740992n,
      -9223372036854775809n,
    ]);
    const long = '7'.repeat(4300);
    expect(parseLossless(long)).toBe(BigInt(long));
    expect(() => parseLossless(`${long}7`)).toThrow('4300 digits');
    expect(parseLossless(`-${long}`)).toBe(-BigInt(long));
    expect(parseLossless(`${long}7.0`)).toBe(Number.POSITIVE_INFINITY);
  });

  it('tells floats from integers', () => {
    for (const [text, value] of [
      ['1.0', 1],
      ['1E5', 1e5],
      ['1e+2', 100],
      ['-0.0', -0],
      ['-0e0', -0],
      ['12345678901234567890.0', 12345678901234567000],
    ] as const) {
      expect(wholeFloatValue(parseLossless(text)), text).toBe(value);
    }
    expect(parseLossless('[0.5, 1e-7, 1e400, -1e400]')).toEqual([
      0.5,
      1e-7,
      Number.POSITIVE_INFINITY,
      Number.NEGATIVE_INFINITY,
    ]);
    expect(wholeFloatValue(1)).toBeUndefined();
    expect(JSON.stringify(structuredClone([wholeFloat(1)]))).toBe('[1]');
  });

  it('takes constants where they are wanted', () => {
    const text = '[NaN, Infinity, -Infinity]';
    expect(parseLossless(text, { constants: true })).toEqual([
      Number.NaN,
      Number.POSITIVE_INFINITY,
      Number.NEGATIVE_INFINITY,
    ]);
    expect(() => parseLossless(text)).toThrow(SyntaxError);
    for (const wrong of ['nan', 'Inf', '-NaN', '+Infinity', 'True', 'None', 'nul'])
      expect(() => parseLossless(wrong, { constants: true }), wrong).toThrow(SyntaxError);
  });

  it('keeps the order of keys, the last of equal ones, and __proto__', () => {
    const keys = (text: string): string[] =>
      orderedEntries(parseLossless(text) as Record<string, unknown>).map(([key]) => key);
    expect(keys('{"b": 1, "2": 1, "1": 1, "a": 1, "01": 1, "2": 3, "0": 1}')).toEqual([
      'b',
      '2',
      '1',
      'a',
      '01',
      '0',
    ]);
    expect(parseLossless('{"a": 1, "b": 2, "a": {"c": 3}}')).toEqual({ a: { c: 3 }, b: 2 });
    const proto = parseLossless('{"__proto__": {"x": 1}, "constructor": 2}') as Record<string, unknown>;
    expect(orderedEntries(proto)).toEqual([
      ['__proto__', { x: 1 }],
      ['constructor', 2],
    ]);
    expect(Object.getPrototypeOf(proto)).toBe(Object.prototype);
  });

  it('keeps the order in copies, and puts what came later behind', () => {
    const copy: Record<string, unknown> = {
      ...(parseLossless('{"a": 1, "9": 1, "3": 1}') as Record<string, unknown>),
      new: 1,
    };
    delete copy.a;
    expect(orderedEntries(copy).map(([key]) => key)).toEqual(['9', '3', 'new']);
    expect(orderedEntries(objectOf([['7', 1] as const, ['x', 2] as const, ['5', 3] as const]))).toEqual([
      ['7', 1],
      ['x', 2],
      ['5', 3],
    ]);
  });

  it('reads strings as JSON.parse does, half surrogates too', () => {
    for (const text of [
      '""',
      '"a\\"b\\\\"',
      '"\\\\\\""',
      '"\\ud83d\\ude00\\ud800\\u0041"',
      '"\u2028é"',
      '"\\/"',
    ])
      expect(parseLossless(text), text).toBe(JSON.parse(text));
  });

  it('agrees with JSON.parse on which texts are JSON, and on their values where nothing is lost', () => {
    const tokens = [
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"a"',
      '"b\\n"',
      '"',
      '1',
      '-',
      '.5',
      'e3',
      '01',
      'true',
      'nul',
      ' ',
      '\t',
      '\u00a0',
      '\\',
    ];
    let seed = 7;
    const random = (below: number): number => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return Math.floor((seed / 2147483648) * below);
    };
    const value = (depth: number): string => {
      const kind = random(depth > 3 ? 4 : 6);
      const list = (item: () => string): string => Array.from({ length: random(4) }, item).join(' , ');
      if (kind === 4) return `[${list(() => value(depth + 1))}]`;
      if (kind === 5) return `{ ${list(() => `"${'ab'[random(2)]}" :${value(depth + 1)}`)}}`;
      return ['"x\\u00e9"', '-12.5', 'false', 'null'][kind]!;
    };
    let valid = 0;
    for (let i = 0; i < 20_000; i++) {
      let text = value(0);
      if (i % 2 === 1) {
        const at = random(text.length + 1);
        text = text.slice(0, at) + tokens[random(tokens.length)]! + text.slice(at + random(2));
      }
      let expected: unknown;
      try {
        expected = JSON.parse(text);
      } catch {
        expect(() => parseLossless(text), text).toThrow(SyntaxError);
        continue;
      }
      valid++;
      expect(JSON.parse(JSON.stringify(parseLossless(text))), text).toEqual(expected);
    }
    expect(valid).toBeGreaterThan(10_000);
  });

  it('reads any depth, and long texts without trouble', () => {
    const depth = 200_000;
    let value = parseLossless(`${'[{"a":'.repeat(depth)}1${'}]'.repeat(depth)}`) as [{ a: unknown }];
    for (let i = 1; i < depth; i++) value = value[0].a as [{ a: unknown }];
    expect(value).toEqual([{ a: 1 }]);
    expect(() => parseLossless('['.repeat(depth))).toThrow(SyntaxError);
    const long = JSON.stringify({ text: 'a "word"\\\n'.repeat(100_000) });
    expect(parseLossless(long)).toEqual(JSON.parse(long));
  });
});

describe('parseJson', () => {
  it('reads losslessly, and says what is wrong', () => {
    expect(parseJson('{"a": 9007199254740993}')).toEqual({ a: 9007199254740993n });
    expect(() => parseJson('{"a": }')).toThrow(
      expect.objectContaining({
        code: 'invalid-json',
        status: 400,
        message: expect.stringContaining('position 6') as string,
      }),
    );
  });
});

describe('mayBeLossy', () => {
  it.each([
    ['{"a": ["x", true, null, {"b": "1"}]}', false],
    ['{"a": ["x", {"b": 1}]}', true],
    ['{"a": {"0": "x"}}', true],
    ['{"a": {"01": "x"}}', false],
    ['0', true],
    [`${'['.repeat(100_000)}${']'.repeat(100_000)}`, false],
  ])('%.30s: %s', (text, expected) => {
    expect(mayBeLossy(JSON.parse(text))).toBe(expected);
  });
});
