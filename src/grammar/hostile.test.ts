/** Schemas and patterns made to take all time or memory: refused, or right, within the limits of work. */
import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { compileAsk, type GrammarAsk, grammarOf } from './ask.js';
import { compileGrammar } from './compile.js';
import { Budget, MAX_WORK } from './limits.js';
import { Matcher, type ParserState } from './matcher.js';

const ofSchema = (schema: unknown): GrammarAsk => ({
  kind: 'schema',
  schema: typeof schema === 'string' ? schema : JSON.stringify(schema),
  strict: false,
});
const ofPattern = (pattern: string): GrammarAsk => ({ kind: 'regex', pattern });

const ofGrammar = (grammar: string): GrammarAsk => ({ kind: 'grammar', grammar });

function refusal(ask: GrammarAsk): KvantError {
  try {
    compileAsk(ask);
  } catch (error) {
    if (error instanceof KvantError) return error;
    throw error;
  }
  throw new Error(`was taken: ${JSON.stringify(ask).slice(0, 100)}`);
}

const numbered = <T>(count: number, make: (i: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i));
const named = (count: number, make: (i: number) => [string, unknown]): object =>
  Object.fromEntries(numbered(count, make));

/** What became of it: `taken` or the code of its error, and the steps of work until then. */
function outcome(ask: GrammarAsk): { became: string; work: number } {
  const budget = new Budget();
  let became = 'taken';
  try {
    compileGrammar(grammarOf(ask, budget), budget);
  } catch (error) {
    if (!(error instanceof KvantError)) throw error;
    became = error.code;
  }
  return { became, work: budget.work };
}

const matchers = new Map<GrammarAsk, Matcher>();

function allows(ask: GrammarAsk, text: string): boolean {
  const matcher = matchers.get(ask) ?? new Matcher(compileAsk(ask));
  matchers.set(ask, matcher);
  let state: ParserState | null = matcher.start;
  for (const byte of Buffer.from(text)) state = state === null ? null : matcher.step(state, byte);
  return state?.done ?? false;
}

const PLAIN = ofPattern('[[:][:&b]');

const nested = (depth: number): string => `${'{"items":'.repeat(depth)}{}${'}'.repeat(depth)}`;
/** Definitions each of which names the next one twice. */
const doubling = (count: number): object => ({
  $ref: '#/$defs/d0',
  $defs: Object.fromEntries(
    Array.from({ length: count }, (_, i) => [
      `d${i}`,
      i === count - 1
        ? { type: 'null' }
        : { anyOf: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }] },
    ]),
  ),
});

describe('hostile forms', () => {
  it.each<[string, GrammarAsk, string]>([
    ['deep nesting', ofSchema(nested(7000)), 'grammar-too-large'],
    ['nesting beyond the limit', ofSchema(nested(200)), 'grammar-too-large'],
    ['a long schema', ofSchema({ enum: ['x'.repeat(70_000)] }), 'grammar-too-large'],
    ['a pattern that has exponentially many states', ofPattern('(a|b)*a(a|b){20}'), 'grammar-too-large'],
    ['repetition of repetition', ofPattern('((a{1000}){1000}){1000}'), 'grammar-too-large'],
    ['a huge repetition', ofPattern('a{1000000000}'), 'grammar-too-large'],
    ['a pattern of nested groups', ofPattern(`${'('.repeat(5000)}a${')'.repeat(5000)}`), 'grammar-too-large'],
    [
      'a pattern with a huge length',
      ofSchema({ type: 'string', pattern: 'a+', maxLength: 1e9 }),
      'grammar-too-large',
    ],
    ['alternatives that multiply', ofSchema(doubling(30)), 'grammar-too-large'],
    [
      'allOf of anyOf',
      ofSchema({
        allOf: Array.from({ length: 20 }, (_, i) => ({ anyOf: [{ minLength: i }, { minItems: i }] })),
      }),
      'grammar-too-large',
    ],
    [
      'recursion without an end',
      ofSchema({ type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }),
      'invalid-grammar',
    ],
    ['a reference to itself', ofSchema({ $ref: '#' }), 'unsupported-schema'],
    [
      'references in a circle',
      ofSchema({
        $ref: '#/$defs/a',
        $defs: { a: { $ref: '#/$defs/b' }, b: { anyOf: [{ $ref: '#/$defs/a' }, {}] } },
      }),
      'unsupported-schema',
    ],
    ['a reference to nothing', ofSchema({ $ref: '#/$defs/__proto__' }), 'invalid-schema'],
    ['a reference to another document', ofSchema({ $ref: 'https://example.com/a' }), 'unsupported-schema'],
    [
      'conditions of forty properties',
      ofSchema({
        allOf: numbered(40, (i) => ({ if: { required: [`p${i}`] }, else: { required: [`q${i}`] } })),
      }),
      'grammar-too-large',
    ],
    [
      'none of very many objects',
      ofSchema({ not: { anyOf: numbered(2000, (i) => ({ required: [`p${i}`], minimum: i })) } }),
      'grammar-too-large',
    ],
    ['nothing at all', ofSchema(false), 'invalid-grammar'],
    ['contradictions', ofSchema({ type: 'string', minLength: 5, maxLength: 4 }), 'invalid-grammar'],
    ['half a surrogate pair', ofPattern('\\ud800'), 'invalid-pattern'],
    ['a choice of half a pair', { kind: 'choice', choices: ['a', 'b\ud800'] }, 'invalid-grammar'],
    [
      'a tag of half a pair',
      { kind: 'tags', tags: JSON.stringify({ format: { type: 'const_string', value: '\udc00' } }) },
      'invalid-grammar',
    ],
    ['a count of nothing', ofPattern('{3}a'), 'invalid-pattern'],
    ['classes of other languages', ofPattern('[[:alpha:]_]{2}'), 'invalid-pattern'],
    ['what classes have in common', ofPattern('[a-z&&[^b]]'), 'invalid-pattern'],
    ['not JSON', ofSchema('{"type":'), 'invalid-schema'],
    ['a list', ofSchema('[]'), 'invalid-schema'],
  ])('refuses %s', (_, ask, code) => {
    expect(refusal(ask)).toMatchObject({ code, status: 400 });
  });

  it.each<[string, GrammarAsk, string, number]>([
    ['subsets beyond all bounds', ofPattern('(a|b)*a(a|b){20}'), 'grammar-too-large', MAX_WORK],
    ['as many subsets as there may be', ofPattern('(a|b)*a(a|b){12}'), 'taken', 1_980_000],
    [
      'a pattern within a text',
      ofSchema({ type: 'string', pattern: 'a.{400}b' }),
      'grammar-too-large',
      MAX_WORK,
    ],
    [
      'what may all be left out',
      ofPattern(`${'a?'.repeat(3000)}${'a'.repeat(3000)}`),
      'grammar-too-large',
      MAX_WORK,
    ],
    ['letters of all scripts, again and again', ofPattern('\\p{L}{1000}'), 'grammar-too-large', MAX_WORK],
    ['a class of many classes', ofPattern(`[${'\\p{L}'.repeat(13_000)}]`), 'grammar-too-large', MAX_WORK],
    [
      'many words in a loop',
      ofPattern(`(${numbered(4000, (i) => `k${i}`).join('|')})*`),
      'grammar-too-large',
      MAX_WORK,
    ],
    [
      'patterns that all hold',
      ofSchema({ allOf: numbered(30, (i) => ({ pattern: `${String.fromCharCode(97 + (i % 26))}{2}` })) }),
      'grammar-too-large',
      MAX_WORK,
    ],
    [
      'long lists of values that both hold',
      ofSchema({ allOf: [{ enum: numbered(5000, (i) => i) }, { enum: numbered(5000, (i) => i + 5000) }] }),
      'invalid-grammar',
      80_000,
    ],
    [
      'cases that are told apart by a tag',
      ofSchema({
        oneOf: numbered(300, (i) => ({ type: 'object', properties: { t: { const: i } }, required: ['t'] })),
      }),
      'taken',
      1_900_000,
    ],
    [
      'references to what is large',
      ofSchema({
        type: 'object',
        properties: named(400, (i) => [`p${i}`, { $ref: '#/$defs/f', title: `${i}` }]),
        $defs: { f: { type: 'object', properties: named(900, (i) => [`q${i}`, {}]) } },
      }),
      'taken',
      1_300_000,
    ],
    [
      'definitions that say ever more',
      ofSchema({
        $ref: '#/$defs/d0',
        $defs: named(30, (i) => [
          `d${i}`,
          i === 29
            ? {}
            : { allOf: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }, { minLength: i }] },
        ]),
      }),
      'grammar-too-large',
      MAX_WORK,
    ],
    [
      'a value of a reference to itself',
      ofSchema({
        const: { a: 1 },
        properties: { a: { $ref: '#/$defs/x' } },
        $defs: { x: { $ref: '#/$defs/x' } },
      }),
      'unsupported-schema',
      3000,
    ],
    [
      'remainders of large steps',
      ofSchema({ type: 'integer', multipleOf: 997, maximum: 98765432109876 }),
      'grammar-too-large',
      MAX_WORK,
    ],
    [
      'names by pattern',
      ofSchema({ patternProperties: named(8, (i) => [String.fromCharCode(97 + i), { minLength: i }]) }),
      'grammar-too-large',
      MAX_WORK,
    ],
    [
      'counts within counts',
      ofGrammar('root ::= ((("a" | "b"){0,15}){0,15}){0,15}'),
      'grammar-too-large',
      MAX_WORK,
    ],
    ['many characters', ofGrammar(`root ::= ${'. '.repeat(20_000)}`), 'grammar-too-large', 900_000],
    [
      'rules in a row, the last one first',
      ofGrammar(
        `root ::= ${numbered(1000, (i) => `r${i} `).join('')}\nr0 ::= "z"\n${numbered(1000, (i) => `r${i + 1} ::= r${i} "a"`).join('\n')}`,
      ),
      'taken',
      1_000_000,
    ],
    [
      'rules that are all empty',
      ofGrammar(`root ::= r0\n${numbered(2000, (i) => `r${i} ::= r${i + 1}?`).join('\n')}\nr2000 ::= "z"?`),
      'taken',
      100_000,
    ],
    ['many choices', { kind: 'choice', choices: numbered(100_000, (i) => `v${i}`) }, 'grammar-too-large', 0],
  ])('ends with %s after so many steps', (_, ask, code, most) => {
    const { became, work } = outcome(ask);
    expect(became).toBe(code);
    // The step that is too much may be a large one.
    expect(work).toBeLessThanOrEqual(most === MAX_WORK ? 1.1 * MAX_WORK : most);
    // Refused for its work, and not before.
    if (most === MAX_WORK) expect(work).toBeGreaterThan(0.9 * MAX_WORK);
  });

  it('names the keyword and its place', () => {
    const { message, fix } = refusal(ofSchema({ properties: { 'a/b': { items: { $dynamicRef: '#a' } } } }));
    expect(message).toContain('`$dynamicRef` at #/properties/a~1b/items');
    expect(fix).toContain('`$ref`');
    for (const [schema, keyword] of [
      [{ uniqueItems: true }, 'uniqueItems'],
      [{ not: { format: 'date' } }, 'format'],
      [{ contains: {}, maxItems: 3000 }, 'contains'],
      [{ format: 'Regex' }, 'format'],
      [{ multipleOf: 0.1234567, type: 'number' }, 'multipleOf'],
      [{ minProperties: 2 }, 'minProperties'],
      [{ minimun: 1 }, 'minimun'],
      [{ oneOf: [{ multipleOf: 2 }, { multipleOf: 3 }] }, 'oneOf'],
    ] as const)
      expect(refusal(ofSchema(schema))).toMatchObject({
        code: 'unsupported-schema',
        message: expect.stringContaining(`\`${keyword}\``),
      });
    expect(refusal(ofSchema({ minimun: 1 })).fix).toBe('Did you mean `minimum`?');
    expect(refusal(ofSchema({ type: 'object', maxLength: -1 })).message).toContain('#/maxLength');
  });

  it('counts as far as numbers go', () => {
    const many = '9'.repeat(400);
    for (const pattern of [`a{${many}}`, `a{3,${many}}`, `^a{${many},}$`])
      expect(refusal(ofPattern(pattern)).code, pattern).toBe('grammar-too-large');
    expect(refusal(ofPattern(`a{${many},2}`)).code).toBe('invalid-pattern');
    expect(refusal(ofPattern('a{5}{2}')).code).toBe('invalid-pattern');
    // A brace that is no count stands for itself, as JavaScript has it.
    for (const text of ['a{', 'a{,3}', 'a{1', 'a{x}', 'a{1,2'])
      expect([allows(ofPattern(text), text), new RegExp(`^(?:${text})$`).test(text)], text).toEqual([
        true,
        true,
      ]);
  });

  it('takes what is large and can be done', () => {
    const ask = ofSchema({ type: 'string', maxLength: 1e9, minLength: 3 });
    expect([allows(ask, '"abc"'), allows(ask, '"ab"'), allows(ask, `"${'x'.repeat(5000)}"`)]).toEqual([
      true,
      false,
      true,
    ]);
    const items = ofSchema({ type: 'array', items: { type: 'null' }, minItems: 2, maxItems: 1e9 });
    expect([allows(items, '[null,null]'), allows(items, '[null]')]).toEqual([true, false]);
    const values = Array.from({ length: 5000 }, (_, i) => `v${i * 7}`);
    const list = ofSchema({ enum: values });
    expect([allows(list, '"v34993"'), allows(list, '"v34994"')]).toEqual([true, false]);
    const names = ofSchema({
      type: 'object',
      properties: Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`n${i}`, { type: 'string' }])),
      additionalProperties: false,
    });
    expect([allows(names, '{"n0":"","n299":"x"}'), allows(names, '{"n300":""}')]).toEqual([true, false]);
    const own = ofSchema(
      '{"type":"object","properties":{"__proto__":{"type":"null"}},"required":["__proto__","constructor"]}',
    );
    expect([
      allows(own, '{"__proto__":null,"constructor":1}'),
      allows(own, '{"__proto__":1,"constructor":1}'),
    ]).toEqual([true, false]);
  });

  it('refuses to read on where a grammar has too many ways to read a text', () => {
    const matcher = new Matcher(compileAsk(ofGrammar('root ::= ([a-z] | [a-z] [a-z] | [a-z]{3,17}){1,40}')));
    // As a walk over all tokens would, without a mask in between.
    const read = (): void => {
      for (let state = matcher.start, i = 0; i < 26 * 60; i++) {
        matcher.step(state, 97 + (i % 26));
        if (i % 26 === 25) state = matcher.step(state, 97)!;
      }
    };
    expect(read).toThrow('too many ways');
  });

  it('keeps nothing of a long answer', () => {
    const matcher = new Matcher(compileAsk({ kind: 'json' }));
    let state: ParserState = matcher.start;
    const read = (text: string): void => {
      for (const byte of Buffer.from(text)) {
        state = matcher.step(state, byte)!;
        matcher.makeRoom();
      }
    };
    read('{"a":');
    read('['.repeat(3000));
    read(`${']'.repeat(3000)}}`);
    expect(state.done).toBe(true);
    expect(matcher.states.length).toBeLessThan(5000);
  });

  it('allows no bytes that are not UTF-8', () => {
    const matcher = new Matcher(compileAsk(ofSchema({ type: 'string' })));
    for (const bytes of [[0x80], [0xc0, 0x80], [0xed, 0xa0], [0xf5], [0xf4, 0x90], [0xe0, 0x80], [0x0a]]) {
      let state: ParserState | null = matcher.step(matcher.start, 0x22);
      for (const byte of bytes) state = state === null ? null : matcher.step(state, byte);
      expect(state, String(bytes)).toBeNull();
    }
  });
});

it('reads what only looks like those as JavaScript does', () => {
  expect(['[:', ':b', 'a['].map((text) => allows(PLAIN, text))).toEqual([true, true, false]);
  expect(allows({ kind: 'choice', choices: ['😀'] }, '😀')).toBe(true);
});
