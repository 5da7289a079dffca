import { describe, expect, it } from 'vitest';
import { compileAsk } from './ask.js';
import { Matcher } from './matcher.js';

/** Whether a text is of a schema's pattern, or of a pattern as a whole. */
function accepts(pattern: string, search: boolean): (text: string) => boolean {
  const matcher = new Matcher(
    compileAsk(
      search
        ? { kind: 'schema', schema: JSON.stringify({ type: 'string', pattern }), strict: false }
        : { kind: 'regex', pattern },
    ),
  );
  return (text) => {
    const bytes = new TextEncoder().encode(search ? JSON.stringify(text) : text);
    return matcher.advance(matcher.start, 0, bytes)?.done === true;
  };
}

describe('look-ahead at the beginning of a pattern', () => {
  // Of pydantic's decimals, of zod's mail addresses up to 4.3, names of hosts and pictures; and what others write.
  it.each([
    '^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$',
    "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
    '^(?=.{1,5}\\.?$)[ab0-9](?:[ab0-9-]{0,3}[ab0-9])?$',
    '^(?=.*[a-z])(?=.*\\d)[a-z\\d@.-]{2,4}$',
    '^(?!a|b)[ab0.]',
    '^(?![)|]|\\)a)[ab0)|]+$',
    '^(?=a$)',
  ])('is as JavaScript has it: %s', (pattern) => {
    const expected = new RegExp(pattern);
    const takes = accepts(pattern, true);
    const letters = [...'ab09.-+@)|', 'co'];
    let state = 7;
    const draw = (below: number): number => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    const texts = ['', 'a@b.co', 'ab@ab.ab', 'a..b@b.co', '.5', '-.', '0.0', ...letters];
    for (let i = 0; i < 800; i++)
      texts.push(Array.from({ length: 1 + draw(6) }, () => letters[draw(letters.length)]!).join(''));
    for (const text of texts) expect(takes(text), text).toBe(expected.test(text));
  });

  it('holds for whole answers too', () => {
    const takes = accepts('(?!no)(?=.{1,3}$)[a-z]+', false);
    expect(['ab', 'not', 'no', 'nn', 'abcd', ''].map(takes)).toEqual([
      true,
      false,
      false,
      true,
      false,
      false,
    ]);
  });

  it.each(['(?!a)b', '^(?!a)b|c', '^b(?!a)', '^P(?:(?=a)b)', '^(?!a(?=b))c'])(
    'is refused anywhere else: %s',
    (pattern) => {
      expect(() => accepts(pattern, true)).toThrow(/look-ahead but at the beginning/);
    },
  );
});
