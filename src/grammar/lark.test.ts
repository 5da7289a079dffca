/** Grammars in Lark's notation against what Lark itself reads: of all texts of a few parts, exactly those. */
import { describe, expect, it } from 'vitest';
import { readPacked } from '../../test/fixtures/read-packed.js';
import { KvantError } from '../errors.js';
import { compileAsk } from './ask.js';
import { isLark } from './lark.js';
import { Matcher, type ParserState } from './matcher.js';
import type { TokenNames } from './token-names.js';

interface Case {
  readonly name: string;
  readonly grammar: string;
  readonly parts: readonly string[];
  readonly most: number;
  /** Each as the numbers of its parts. */
  readonly taken: string;
}

const cases = readPacked(new URL('../../test/fixtures/grammar/lark.json.gz', import.meta.url)) as Case[];
const matcherOf = (grammar: string): Matcher => new Matcher(compileAsk({ kind: 'grammar', grammar }));

function accepts(matcher: Matcher, text: string): boolean {
  let state: ParserState | null = matcher.start;
  for (const byte of Buffer.from(text)) state = state === null ? null : matcher.step(state, byte);
  return state?.done ?? false;
}

/** Texts that the grammar takes of all that begin so, as numbers of parts. */
function taken(matcher: Matcher, parts: readonly string[], most: number): string[] {
  const found: string[] = [];
  const walk = (state: ParserState, numbers: string): void => {
    if (state.done) found.push(numbers);
    if (numbers.length === most) return;
    parts.forEach((part, i) => {
      let next: ParserState | null = state;
      for (const byte of Buffer.from(part)) next = next === null ? null : matcher.step(next, byte);
      if (next !== null) walk(next, `${numbers}${i}`);
    });
  };
  walk(matcher.start, '');
  return found.sort();
}

function refused(grammar: string): KvantError {
  try {
    compileAsk({ kind: 'grammar', grammar });
  } catch (error) {
    if (error instanceof KvantError) return error;
    throw error;
  }
  throw new Error('it was taken');
}

describe('grammars in the notation of Lark', () => {
  it.each(cases.map((one) => [one.name, one] as const))(
    '%s',
    (_name, { grammar, parts, most, taken: all }) => {
      expect(isLark(grammar)).toBe(true);
      expect(taken(matcherOf(grammar), parts, most)).toEqual(all.split(' ').sort());
    },
  );

  it('ends texts and comments of the library at their first end mark', () => {
    const grammar = (name: string): string => `start: X\n%import common.${name} -> X`;
    const text = matcherOf(grammar('ESCAPED_STRING'));
    expect(['""', '"a\\"b"', '"é\\\\"'].every((one) => accepts(text, one))).toBe(true);
    expect(['"a"b"', '"a\nb"', '"\\"', 'a'].some((one) => accepts(text, one))).toBe(false);
    const comment = matcherOf(grammar('C_COMMENT'));
    expect(['/**/', '/* a\n* b **/'].every((one) => accepts(comment, one))).toBe(true);
    expect(['/* a */ */', '/*/', '/* a'].some((one) => accepts(comment, one))).toBe(false);
  });

  it('takes schemas and single tokens, as llguidance does', () => {
    const ids = new Map([['<|call|>', 7]]);
    const names: TokenNames = { size: 10, idOf: (text) => ids.get(text), isSpecial: (id) => id === 7 };
    const grammar =
      'start: "a" %json {"type": "object", "properties": {"b": {"const": "}"}}, "required": ["b"], "additionalProperties": false} "c"';
    expect(accepts(matcherOf(grammar), 'a{"b":"}"}c')).toBe(true);
    expect(accepts(matcherOf(grammar), 'a{"b":"x"}c')).toBe(false);
    expect(() => compileAsk({ kind: 'grammar', grammar: 'start: "a" <|call|> <[3]>' }, names)).not.toThrow();
    expect(refused('start: "a" <|call|>').message).toContain('no token <|call|>');
  });

  it.each([
    ['root: "a"', 'no rule "start"'],
    ['start: "a" b', 'no rule "b" (line 1, column 12'],
    ['start: A', 'no terminal "A"'],
    ['start: "a"\nstart: "b"', '"start" is there twice (line 2'],
    ['start: ("a" | "b"', 'A group is not closed'],
    ['start: "a', 'A text is not closed'],
    ['start: ""', 'A text is empty'],
    ['start: /a', 'A pattern is not closed'],
    ['start: /a/x', 'no flag "x"'],
    ['start: "a"\n  "b"', 'A rule begins with its name'],
    ['start: "a" )', 'Something stands here'],
    ['start: sep{"a", ","}', 'Rules with parameters'],
    ['sep{x}: x\nstart: "a"', 'Rules with parameters'],
    ['start[max_tokens=3]: "a"', 'Attributes of rules'],
    ['start: A\nA: b\nb: "c"', 'A terminal is made of'],
    ['start: "ab".."c"', 'A range is between two characters'],
    ['start: "b".."a"', 'from the higher to the lower'],
    ['start: "a"~3..2', 'The most is less'],
    ['%import python.NAME\nstart: NAME', 'comes from "common"'],
    ['%import common.NAMES\nstart: NAMES', 'no terminal "NAMES"; it has DIGIT'],
    ['%declare A\nstart: A', '%ignore and %import'],
    ['start: %json {"type"', 'stands a schema'],
    ['start: %regex {}', '%json'],
    ['start: "\\x4"', 'no such escape'],
    ['start: "\\ud800"', 'no character'],
    ['start: <\u001b[31mx>', 'no token <\\u001b[31mx>'],
    ['%import common (W\u0007)\nstart: "a"', 'no terminal "W\\u0007"'],
  ])('refuses %j', (grammar, what) => {
    const error = refused(grammar);
    expect(error).toMatchObject({ code: 'invalid-grammar', where: 'grammar' });
    expect(error.message).toContain(what);
    expect(error.fix).toBeTruthy();
  });

  it.each([
    ['start: /a*?b/', 'lazy'],
    ['start: /^a/', 'anchors'],
    ['start: /(?=a)/', 'look-ahead'],
    ['start: a\na: b "x" | "y"\nb: a "z" | "w"', 'begins with itself'],
    [`start: ${'('.repeat(80)}"a"${')'.repeat(80)}`, 'groups within groups'],
    ['start: %json {"type": "strin"}', '#/type'],
  ])('refuses %j by what it means', (grammar, what) => {
    expect(refused(grammar).message).toContain(what);
  });

  it('tells GBNF and Lark apart', () => {
    expect(isLark('root ::= "a: b"')).toBe(false);
    expect(isLark('# start: x\nroot   ::=\n "a"')).toBe(false);
    expect(isLark('start: "::="')).toBe(true);
    expect(isLark('%import common.WS\n?start.2: WS')).toBe(true);
    expect(isLark('root = "a"')).toBe(false);
  });
});
