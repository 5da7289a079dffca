/** Structural tags against a reader that looks for triggers in whole texts; tokens that are named. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { compileAsk } from './ask.js';
import { GrammarMasks } from './masks.js';
import { Matcher, type ParserState } from './matcher.js';
import type { TokenNames } from './token-names.js';
import { prepareTokens } from './token-set.js';

/** Ids 0 to 255 are bytes; these follow, of which the last two are special. */
const NAMED = ['ab', '<b>', '<|call|>', '<|end|>'];
const FIRST_SPECIAL = 258;
const EOS = 260;
const names: TokenNames = {
  size: 260,
  idOf: (text) => (NAMED.includes(text) ? 256 + NAMED.indexOf(text) : undefined),
  isSpecial: (id) => id >= FIRST_SPECIAL,
};

/** Reads texts, and special tokens where a number stands. */
function read(matcher: Matcher, ...parts: readonly (string | number)[]): ParserState | null {
  let state: ParserState | null = matcher.start;
  for (const part of parts)
    if (typeof part === 'number') state = state && matcher.advance(state, part, null);
    else for (const byte of Buffer.from(part)) state = state && matcher.step(state, byte);
  return state;
}
const matcherOf = (tags: unknown): Matcher =>
  new Matcher(compileAsk({ kind: 'tags', tags: JSON.stringify(tags) }, names));

const number = {
  type: 'object',
  properties: { n: { type: 'integer' } },
  required: ['n'],
  additionalProperties: false,
};
const older = {
  type: 'structural_tag',
  triggers: ['<f='],
  structures: [
    { begin: '<f=a>', schema: number, end: '</f>' },
    { begin: '<f=b>', schema: { type: 'array', items: { enum: ['x'] } }, end: '</f>' },
  ],
};

/** What such a text is, found by searching it as a whole. */
function isTagged(text: string): boolean {
  const ajv = new Ajv2020();
  let rest = text;
  for (;;) {
    const at = rest.indexOf('<f=');
    if (at < 0) return true;
    rest = rest.slice(at);
    const tag = older.structures.find(({ begin }) => rest.startsWith(begin));
    const end = rest.indexOf('</f>');
    if (tag === undefined || end < 0) return false;
    try {
      if (!ajv.validate(tag.schema, JSON.parse(rest.slice(tag.begin.length, end)))) return false;
    } catch {
      return false;
    }
    rest = rest.slice(end + 4);
  }
}

describe('structural tags', () => {
  it('hold what is in tags to its form, and leave the rest free', () => {
    const matcher = matcherOf(older);
    const pieces = [
      '<f=a>',
      '<f=b>',
      '{"n":1}',
      '["x"]',
      '[]',
      '</f>',
      'text',
      '<',
      '<f',
      '=',
      '<f=',
      '{"n":"x"}',
    ];
    let seed = 5;
    const below = (n: number): number => {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      return Math.floor((seed / 2 ** 32) * n);
    };
    const seen = { true: 0, false: 0 };
    const check = (text: string): void => {
      const expected = isTagged(text);
      seen[`${expected}`]++;
      expect([text, read(matcher, text)?.done ?? false]).toEqual([text, expected]);
    };
    for (const text of ['', 'a <f=a>{"n":1}</f> b <f=b>["x"]</f>', '<<f=b>[]</f><f=a>{"n":-2}</f>', '</f>{'])
      check(text);
    for (let i = 0; i < 1200; i++)
      check(Array.from({ length: 1 + below(7) }, () => pieces[below(pieces.length)]!).join(''));
    expect([seen.true > 100, seen.false > 100]).toEqual([true, true]);
  });

  it.each<[name: string, format: unknown, good: (string | number)[][], bad: (string | number)[][]]>([
    ['a text', { type: 'const_string', value: 'yes' }, [['yes']], [['ye'], ['yess']]],
    ['a pattern', { type: 'regex', pattern: '[ab]{2}' }, [['ab']], [['a']]],
    ['a grammar', { type: 'grammar', grammar: 'root ::= "a"+' }, [['aa']], [['']]],
    ['any text', { type: 'any_text' }, [[''], ['x\n{']], [[258]]],
    [
      'a sequence with free text at its end',
      { type: 'sequence', elements: [{ type: 'regex', pattern: '\\d' }, { type: 'any_text' }] },
      [['1'], ['1 x']],
      [['x']],
    ],
    [
      'one of several',
      {
        type: 'or',
        elements: [
          { type: 'const_string', value: 'a' },
          { type: 'json_schema', json_schema: number },
        ],
      },
      [['a'], ['{"n":3}']],
      [['b'], ['{"n":"3"}']],
    ],
    [
      'a tag with thoughts, whose end is one of two',
      { type: 'tag', begin: '<t>', content: { type: 'any_text' }, end: ['</t>', '</u>'] },
      [['<t>a < b</t>'], ['<t></u>']],
      [['<t>a'], ['<t>a</t>b'], ['<t></t></t>']],
    ],
    [
      'tags with special tokens, which bytes never spell',
      {
        type: 'triggered_tags',
        triggers: ['<|call|>'],
        tags: [
          { begin: '<|call|>f ', content: { type: 'json_schema', json_schema: number }, end: '<|end|>' },
        ],
      },
      [['a'], [258, 'f {"n":1}', 259], ['a', 258, 'f {"n":1}', 259, 'b'], ['<|call|>']],
      [[258, 'f {}', 259], [258, 'f {"n":1}<|end|>'], [259]],
    ],
    [
      'at least one tag, and nothing behind the first',
      {
        type: 'triggered_tags',
        triggers: ['<'],
        tags: [{ begin: '<a>', content: { type: 'const_string', value: '' }, end: '.' }],
        at_least_one: true,
        stop_after_first: true,
      },
      [['<a>.']],
      [[''], ['x<a>.'], ['<a>.<a>.'], ['<a>.x']],
    ],
    [
      'tags with a separator',
      {
        type: 'tags_with_separator',
        tags: [{ begin: '[', content: { type: 'regex', pattern: '\\d+' }, end: ']' }],
        separator: ', ',
        at_least_one: true,
      },
      [['[1]'], ['[1], [22]']],
      [[''], ['[1][2]'], ['[1], ']],
    ],
  ])('take %s', (_, format, good, bad) => {
    const matcher = matcherOf({ type: 'structural_tag', format });
    for (const parts of good) expect([parts, read(matcher, ...parts)?.done]).toEqual([parts, true]);
    for (const parts of bad) expect([parts, read(matcher, ...parts)?.done ?? false]).toEqual([parts, false]);
  });

  it.each<[tags: unknown, message: string]>([
    [{ type: 'structural_tag' }, '`/format`'],
    [{ format: { type: 'zzz' } }, '`/format/type`'],
    [{ format: { type: 'any_text', stop: 1 } }, '`/format/stop`'],
    [{ ...older, triggers: ['<g='] }, '`/structures/0/begin`'],
    [{ ...older, triggers: [''] }, '`/triggers`'],
    [{ ...older, triggers: ['<f=', '=a'] }, 'begins within'],
    [
      { format: { type: 'sequence', elements: [{ type: 'any_text' }, { type: 'any_text' }] } },
      '`/format/elements/0`',
    ],
    [{ format: { type: 'json_schema', json_schema: { $dynamicRef: '#a' } } }, '$dynamicRef'],
    [{ format: { type: 'json_schema', style: 'qwen_xml', json_schema: {} } }, '`/format/style`'],
  ])('refuse %j', (tags, message) => {
    try {
      matcherOf(tags);
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(KvantError);
      expect([(error as KvantError).message, (error as KvantError).status]).toEqual([
        expect.stringContaining(message),
        400,
      ]);
    }
  });
});

describe('tokens in grammars', () => {
  const grammarOf = (grammar: string): Matcher =>
    new Matcher(compileAsk({ kind: 'grammar', grammar }, names));
  const offsets = Uint32Array.from({ length: EOS + 1 }, (_, id) => (id <= 256 ? id : id === 257 ? 258 : 261));
  const data = Uint8Array.from([...Array(256).keys(), ...Buffer.from('ab<b>')]);
  const tokens = prepareTokens({ data, offsets, usable: (id) => id < FIRST_SPECIAL, size: EOS });
  const allowed = (matcher: Matcher, state: ParserState | null): number[] => {
    const mask = new GrammarMasks(tokens, [EOS], EOS + 1).mask(matcher, state!);
    return Array.from({ length: EOS + 1 }, (_, id) => id).filter(
      (id) => (mask[id >> 5]! & (1 << (id & 31))) !== 0,
    );
  };

  it('are named by text and by id', () => {
    const matcher = grammarOf('root ::= <|call|> "x" <[259]>');
    expect(allowed(matcher, matcher.start)).toEqual([258]);
    expect(allowed(matcher, read(matcher, 258))).toEqual([0x78]);
    expect(allowed(matcher, read(matcher, 258, 'x'))).toEqual([259]);
    expect(allowed(matcher, read(matcher, 258, 'x', 259))).toEqual([EOS]);
    expect(read(matcher, '<|call|>')).toBeNull();
  });

  it('are left out of text', () => {
    const matcher = grammarOf('root ::= !<|end|>* <|end|>');
    expect(allowed(matcher, matcher.start)).toContain(256);
    expect(allowed(matcher, matcher.start)).not.toContain(258);
    expect(read(matcher, 'any text', 259)?.done).toBe(true);
  });

  it('may be text as well: both ways go on', () => {
    const matcher = grammarOf('root ::= <b> "1" | "<b" [>] "2"');
    const state = matcher.advance(matcher.start, 257, Buffer.from('<b>'));
    expect(allowed(matcher, state)).toEqual([0x31, 0x32]);
    expect(allowed(matcher, matcher.start)).toEqual([0x3c, 257]);
    const rest = matcher.advance(matcher.start, 0x3c, Buffer.from('<'))!;
    expect(allowed(matcher, matcher.step(rest, 0x62))).toEqual([0x3e]);
  });

  it.each([
    ['root ::= <nope>', 'has no token <nope> (line 1, column 10'],
    ['root ::= <[260]>', 'has no token <[260]>'],
    ['root ::= <|call', '<text> or <[id]>'],
    ['root ::= !<|end|>', 'one special token'],
    ['root ::= !<b>*', 'one special token'],
    ['root ::= !"a"', 'one special token'],
  ])('are refused in %j', (grammar, message) => {
    expect(() => grammarOf(grammar)).toThrow(message);
  });
});
