/** Masks and schemas against other ways to the same: expressions read byte by byte, and a validator of another project. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { describe, expect, it } from 'vitest';
import { SlowGrammar, type SlowState } from '../../test/setup/slow-grammar.js';
import { type GrammarAsk, grammarOf } from './ask.js';
import { compileGrammar } from './compile.js';
import { Budget } from './limits.js';
import { GrammarMasks } from './masks.js';
import { Matcher, type ParserState } from './matcher.js';
import { prepareTokens, type TokenSet } from './token-set.js';

const SEED = 20_261_125;

/** mulberry32 */
function randomFrom(seed: number): () => number {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

class Draw {
  readonly #random: () => number;
  constructor(seed: number) {
    this.#random = randomFrom(seed);
  }
  below(n: number): number {
    return Math.floor(this.#random() * n);
  }
  chance(p: number): boolean {
    return this.#random() < p;
  }
  one<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!;
  }
}

type Json = Record<string, unknown>;
const NAMES = ['a', 'b', 'größe', 'x"y', 'c c', '日'];
const PIECES = [
  'a',
  'b',
  'ö',
  '日',
  '"',
  '\\',
  '\n',
  ' ',
  '😀',
  '0',
  '7',
  '-',
  '.',
  '{',
  '}',
  ',',
  ':',
  'true',
  '\u0001',
];

function randomSchema(draw: Draw, depth: number): Json {
  const kind = draw.below(depth > 0 ? 10 : 6);
  const bounds = (low: string, high: string, top: number): Json => {
    const min = draw.below(top);
    return {
      ...(draw.chance(0.5) ? { [low]: min } : {}),
      ...(draw.chance(0.5) ? { [high]: min + draw.below(top) } : {}),
    };
  };
  switch (kind) {
    case 0:
      return { type: 'string', ...bounds('minLength', 'maxLength', 4) };
    case 1:
      return {
        type: 'integer',
        ...bounds('minimum', 'maximum', 40),
        ...(draw.chance(0.2) ? { multipleOf: 1 + draw.below(7) } : {}),
      };
    case 2:
      return { type: 'number', ...bounds('exclusiveMinimum', 'maximum', 12) };
    case 3:
      return { enum: Array.from({ length: 1 + draw.below(4) }, () => randomValue(draw, 1)) };
    case 4:
      return { type: draw.one(['boolean', 'null', ['integer', 'null'], ['string', 'boolean']]) };
    case 5:
      return {
        type: 'string',
        pattern: draw.one(['^[ab]+$', 'ö', '^(a|日)?b{1,3}$', '[^"]$', '^\\d{2,3}-', '.']),
      };
    case 6: {
      const names = NAMES.filter(() => draw.chance(0.5));
      const properties = Object.fromEntries(names.map((name) => [name, randomSchema(draw, depth - 1)]));
      const required = names.filter(() => draw.chance(0.5));
      const more = draw.one<Json>([
        {},
        { additionalProperties: false },
        { additionalProperties: { type: 'integer' } },
        { patternProperties: { '^b': { type: 'null' } } },
      ]);
      return { type: 'object', properties, required, ...more };
    }
    case 7:
      return { type: 'array', items: randomSchema(draw, depth - 1), ...bounds('minItems', 'maxItems', 4) };
    case 8:
      return {
        type: 'array',
        prefixItems: Array.from({ length: 1 + draw.below(2) }, () => randomSchema(draw, depth - 1)),
        ...(draw.chance(0.5) ? { items: draw.one<unknown>([false, { type: 'integer' }]) } : {}),
        ...bounds('minItems', 'maxItems', 3),
      };
    default:
      return draw.chance(0.7)
        ? { anyOf: [randomSchema(draw, depth - 1), randomSchema(draw, depth - 1)] }
        : { allOf: [randomSchema(draw, depth - 1), { type: ['object', 'array', 'string', 'number'] }] };
  }
}

function randomText(draw: Draw): string {
  return Array.from({ length: draw.below(5) }, () => draw.one(PIECES)).join('');
}

function randomValue(draw: Draw, depth: number): unknown {
  switch (draw.below(depth > 0 ? 7 : 5)) {
    case 0:
      return draw.below(50) - 10;
    case 1:
      return (draw.below(500) - 100) / 8;
    case 2:
      return draw.one([true, false, null]);
    case 3:
    case 4:
      return randomText(draw);
    case 5:
      return Array.from({ length: draw.below(4) }, () => randomValue(draw, depth - 1));
    default:
      return Object.fromEntries(
        NAMES.filter(() => draw.chance(0.3)).map((name) => [name, randomValue(draw, depth - 1)]),
      );
  }
}

/** All single bytes, and strings of bytes at random: ends of characters, and pieces of JSON. */
function randomTokens(draw: Draw): Uint8Array[] {
  const tokens = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));
  const material = [
    ...PIECES,
    '": ',
    '", "',
    '"}',
    '}]',
    '[{"',
    'null',
    '":',
    '",',
    '12',
    '\n  ',
    'false',
    'a":',
    '"a"',
  ];
  for (let i = 0; i < 150; i++) {
    const text = Array.from({ length: 1 + draw.below(3) }, () => draw.one(material)).join('');
    const bytes = new TextEncoder().encode(text);
    const from = draw.chance(0.3) ? draw.below(bytes.length) : 0;
    const to = draw.chance(0.3) ? from + 1 + draw.below(bytes.length - from) : bytes.length;
    tokens.push(bytes.subarray(from, to));
  }
  return tokens;
}

function trieOf(tokens: readonly Uint8Array[]): TokenSet {
  const offsets = new Uint32Array(tokens.length + 1);
  tokens.forEach((token, id) => {
    offsets[id + 1] = offsets[id]! + token.length;
  });
  const data = Uint8Array.from(tokens.flatMap((token) => [...token]));
  return prepareTokens({ data, offsets, usable: () => true, size: tokens.length });
}

interface Both {
  readonly matcher: Matcher;
  readonly slow: SlowGrammar;
}

function bothOf(ask: GrammarAsk): Both {
  const budget = new Budget();
  const grammar = grammarOf(ask, budget);
  return { matcher: new Matcher(compileGrammar(grammar, budget)), slow: new SlowGrammar(grammar) };
}

const EOS = 406;

/** Writes an answer token by token, at each of which the mask is what the slow reader says. */
function writeAnswer(
  { matcher, slow }: Both,
  masks: GrammarMasks,
  tokens: readonly Uint8Array[],
  draw: Draw,
): string {
  let state: ParserState = matcher.start;
  let reading: SlowState = slow.start();
  const bytes: number[] = [];
  // What drafts go back to.
  const before: { readonly state: ParserState; readonly mask: Uint32Array }[] = [];
  const goBack = (): void => {
    const { state: earlier, mask } = draw.one(before);
    expect(masks.mask(matcher, earlier)).toEqual(mask);
    expect(new GrammarMasks(trieOf(tokens), [EOS], EOS + 1).mask(matcher, earlier)).toEqual(mask);
  };
  for (let i = 0; i < 40; i++) {
    const mask = masks.mask(matcher, state);
    before.push({ state, mask: mask.slice() });
    const isSet = (id: number): boolean => (mask[id >> 5]! & (1 << (id & 31))) !== 0;
    const allowed: number[] = [];
    // Reading all tokens slowly takes its time: the first and some of the others.
    const look = i === 0 || draw.chance(0.25);
    tokens.forEach((token, id) => {
      const may = look ? slow.read(token, reading).size > 0 : isSet(id);
      if (may) allowed.push(id);
      if (may !== isSet(id))
        throw new Error(
          `token ${id} ${JSON.stringify(Buffer.from(token).toString())} after ${Buffer.from(bytes).toString()}: ${may}`,
        );
    });
    expect(isSet(EOS)).toBe(slow.done(reading));
    if (i % 8 === 7) goBack();
    if (slow.done(reading) && (allowed.length === 0 || draw.chance(0.5)))
      return Buffer.from(bytes).toString();
    // Towards an end: of what closes something, if it may come.
    const closing = allowed.filter((id) => id < 256 && '"}],'.includes(String.fromCharCode(id)));
    const id = i > 15 && closing.length > 0 && draw.chance(0.7) ? draw.one(closing) : draw.one(allowed);
    for (const byte of tokens[id]!) {
      bytes.push(byte);
      state = matcher.step(state, byte)!;
    }
    reading = slow.read(tokens[id]!, reading);
  }
  return '';
}

describe('grammars of random schemas', () => {
  const ajv = addFormats.default(new Ajv2020({ strict: false }));

  it('allow what a validator accepts, and only that, with masks as a slow reader has them', () => {
    const draw = new Draw(SEED);
    let accepted = 0;
    let refused = 0;
    let written = 0;
    let grammars = 0;
    for (let i = 0; i < 60; i++) {
      const schema = randomSchema(draw, 2);
      const validate = ajv.compile(schema);
      let both: Both;
      try {
        both = bothOf({ kind: 'schema', schema: JSON.stringify(schema), strict: false });
      } catch (error) {
        // Nothing is what it asks for: no value of many is.
        expect((error as Error).message, JSON.stringify(schema)).toMatch(/Nothing can be written/);
        continue;
      }
      grammars++;
      const { matcher, slow } = both;
      for (let j = 0; j < 12; j++) {
        const value = ordered(schema, randomValue(draw, 2));
        const text = JSON.stringify(value);
        let state: ParserState | null = matcher.start;
        for (const byte of Buffer.from(text)) state = state === null ? null : matcher.step(state, byte);
        const allowed = state?.done ?? false;
        expect([allowed, text, JSON.stringify(schema)]).toEqual([
          validate(value),
          text,
          JSON.stringify(schema),
        ]);
        expect(slow.done(slow.read(Buffer.from(text)))).toBe(allowed);
        if (allowed) accepted++;
        else refused++;
      }
      if (i % 2 === 1) continue;
      const tokens = randomTokens(draw);
      expect(tokens).toHaveLength(EOS);
      const masks = new GrammarMasks(trieOf(tokens), [EOS], EOS + 1);
      const text = writeAnswer(both, masks, tokens, draw);
      if (text === '') continue;
      written++;
      expect([validate(JSON.parse(text)), text, JSON.stringify(schema)]).toEqual([
        true,
        text,
        JSON.stringify(schema),
      ]);
    }
    // The test has seen enough of each.
    expect([accepted > 30, refused > 100, written > 12, grammars > 40]).toEqual([true, true, true, true]);
  });

  it('of patterns and choices are those of JavaScript', () => {
    const draw = new Draw(SEED + 1);
    for (const pattern of [
      'a*b|ö+',
      '(ab|a)(bc|c)?',
      '[^a-c]{2,4}',
      '\\d+(\\.\\d{1,2})?',
      '.?日',
      'x{0,2}(y|z{3})',
      '\\p{Lu}\\w*',
      '(?:a|b)+?c',
    ]) {
      const both = bothOf({ kind: 'regex', pattern });
      const whole = new RegExp(`^(?:${pattern})$`, 'u');
      for (let i = 0; i < 60; i++) {
        const text = Array.from({ length: draw.below(5) }, () => draw.one([...'abcxyzöÄ日1.2 _'])).join('');
        let state: ParserState | null = both.matcher.start;
        for (const byte of Buffer.from(text)) state = state === null ? null : both.matcher.step(state, byte);
        expect([pattern, text, state?.done ?? false]).toEqual([pattern, text, whole.test(text)]);
      }
      const tokens = randomTokens(draw);
      writeAnswer(both, new GrammarMasks(trieOf(tokens), [EOS], EOS + 1), tokens, draw);
    }
    const both = bothOf({ kind: 'choice', choices: ['ja', 'jaja', 'nö'] });
    const tokens = randomTokens(draw);
    const masks = new GrammarMasks(trieOf(tokens), [EOS], EOS + 1);
    for (let i = 0; i < 5; i++)
      expect(['ja', 'jaja', 'nö']).toContain(writeAnswer(both, masks, tokens, draw));
  });
});

/** Keys as the grammar has them: those of the schema first, in its order. */
function ordered(schema: unknown, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => ordered(schema, item));
  if (typeof value !== 'object' || value === null) return value;
  const names = namesIn(schema);
  const own = Object.keys(value);
  const sorted = [
    ...names.filter((name) => own.includes(name)),
    ...own.filter((name) => !names.includes(name)),
  ];
  return Object.fromEntries(sorted.map((name) => [name, ordered(schema, (value as Json)[name])]));
}

/** All names of properties, which stand in one order in all these schemas. */
function namesIn(schema: unknown): string[] {
  const text = JSON.stringify(schema);
  return NAMES.filter((name) => text.includes(JSON.stringify(name)));
}
