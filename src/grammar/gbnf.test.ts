/** GBNF against a reader that backtracks over the text of the grammar itself, by another way. */
import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { compileAsk } from './ask.js';
import { Matcher, type ParserState } from './matcher.js';

function accepts(matcher: Matcher, text: string): boolean {
  let state: ParserState | null = matcher.start;
  for (const byte of Buffer.from(text)) state = state === null ? null : matcher.step(state, byte);
  return state?.done ?? false;
}

type Parser = (text: string, from: number) => Set<number>;

/** Ends of all readings of a rule: parsers are put together by hand, nothing is shared with what is tested. */
const lit =
  (value: string): Parser =>
  (text, from) =>
    new Set(text.startsWith(value, from) ? [from + value.length] : []);
const one =
  (of: RegExp): Parser =>
  (text, from) => {
    const point = text.codePointAt(from);
    if (point === undefined) return new Set();
    const character = String.fromCodePoint(point);
    return new Set(of.test(character) ? [from + character.length] : []);
  };
const seq =
  (...parts: Parser[]): Parser =>
  (text, from) => {
    let ends = new Set([from]);
    for (const part of parts) ends = new Set([...ends].flatMap((end) => [...part(text, end)]));
    return ends;
  };
const alt =
  (...parts: Parser[]): Parser =>
  (text, from) =>
    new Set(parts.flatMap((part) => [...part(text, from)]));
const many =
  (part: Parser, min = 0, max = Number.POSITIVE_INFINITY): Parser =>
  (text, from) => {
    const ends = new Set<number>(min === 0 ? [from] : []);
    let now = new Set([from]);
    for (let n = 1; n <= max && now.size > 0 && n <= text.length + min + 1; n++) {
      now = new Set([...now].flatMap((end) => [...part(text, end)]));
      if (n >= min) for (const end of now) ends.add(end);
    }
    return ends;
  };
const late =
  (get: () => Parser): Parser =>
  (text, from) =>
    get()(text, from);

const ws = many(one(/[ \t\n]/u));
const ident = seq(one(/[a-z]/u), many(one(/[a-z0-9_]/u)), ws);
const num = seq(many(one(/[0-9]/u), 1), ws);
const term: Parser = alt(
  ident,
  num,
  seq(
    lit('('),
    ws,
    late(() => expr),
    lit(')'),
    ws,
  ),
);
const expr: Parser = seq(term, many(seq(one(/[-+*/]/u), term)));
const cases: [name: string, grammar: string, parser: Parser, alphabet: string[]][] = [
  [
    'arithmetic, as llama.cpp has it',
    `root  ::= (expr "=" ws term "\\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \\t\\n]*`,
    many(seq(expr, lit('='), ws, term, lit('\n')), 1),
    ['a', '1', '=', '+', '(', ')', ' ', '\n', '*'],
  ],
  [
    'counts, classes, escapes and comments',
    `# a comment
root ::= ( item{2,3} | "\\u00f6" . )  # another
  ("," [^a-c\\n\\]-]{1,})?
item ::=
  "x\\"y" | [\\x41-\\x43] | "" "日"`,
    seq(
      alt(many(alt(lit('x"y'), one(/[A-C]/u), lit('日')), 2, 3), seq(lit('ö'), one(/[\s\S]/u))),
      many(seq(lit(','), many(one(/[^a-c\n\]-]/u), 1)), 0, 1),
    ),
    ['x"y', 'A', 'C', '日', 'ö', ',', 'a', 'd', '😀', '-', ']'],
  ],
];

describe('grammars in GBNF', () => {
  it.each(cases)('%s', (_, grammar, parser, alphabet) => {
    const matcher = new Matcher(compileAsk({ kind: 'grammar', grammar }));
    let seed = 7;
    const below = (n: number): number => {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      return Math.floor((seed / 2 ** 32) * n);
    };
    let taken = 0;
    const check = (text: string): void => {
      const expected = parser(text, 0).has(text.length);
      if (expected) taken++;
      expect([text, accepts(matcher, text)]).toEqual([text, expected]);
    };
    const known = ['a=1\n', '(a+1)*b = 2 \n', 'AB', 'AAA,d', 'ö日', '日x"yA,😀d', 'ö', 'a=\n'];
    for (const text of known) {
      check(text);
      // And what is near to it.
      for (let i = 0; i < 60; i++) {
        const characters = [...text];
        const at = below(characters.length + 1);
        characters.splice(at, below(2), ...(below(3) > 0 ? [alphabet[below(alphabet.length)]!] : []));
        check(characters.join(''));
      }
    }
    for (let i = 0; i < 1500; i++)
      check(Array.from({ length: 1 + below(5) }, () => alphabet[below(alphabet.length)]!).join(''));
    expect(taken).toBeGreaterThan(20);
  });

  it.each([
    ['root ::= "a', 'line 1, column 10'],
    ['a ::= "b"', 'no rule "root"'],
    ['root ::= b', 'no rule "b"'],
    ['root ::= root "a" | "b"', 'begins with itself'],
    ['root ::= "a" root', 'Nothing can be written'],
    ['root ::= [b-a]', 'from the higher'],
    ['root ::= ("a"', 'not closed'],
    ['root ::= "a"{3,2}', 'less than'],
    ['root ::= "\\ud800"', 'no character'],
    ['root ::= "a"\nroot ::= "b"', 'twice'],
    ['root ::= "a" )', 'cannot have'],
    [`root ::= ${'('.repeat(10_000)}`, 'groups within groups'],
    ['', 'no rule "root"'],
  ])('refuses %j', (grammar, message) => {
    try {
      compileAsk({ kind: 'grammar', grammar });
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(KvantError);
      expect((error as KvantError).message).toContain(message);
      expect((error as KvantError).status).toBe(400);
    }
  });
});
