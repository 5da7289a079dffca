/**
 * Grammars of calls against what reads them: whatever a grammar allows, the format's parser takes for calls whose arguments are what the
 * schema allows (Ajv says so), and what models write, as their templates show it, is allowed.
 */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { compileGrammar } from '../../grammar/compile.js';
import type { Expression, Grammar } from '../../grammar/expression.js';
import { Budget } from '../../grammar/limits.js';
import { Matcher, type ParserState } from '../../grammar/matcher.js';
import type { Words } from '../../grammar/words.js';
import { AnswerParser } from '../answer-parser.js';
import { TOOL_FORMATS, toolFormatNamed } from './formats.js';
import { type ToolsAsk, toolGrammar } from './tool-grammar.js';

const PARAMETERS = {
  weather: {
    type: 'object',
    properties: {
      city: { type: 'string', maxLength: 12 },
      unit: { enum: ['celsius', 'fahrenheit'] },
      days: { type: 'integer', minimum: 1, maximum: 14 },
      note: { anyOf: [{ type: 'string', pattern: '^[a-z ]{2,8}$' }, { type: 'null' }] },
    },
    required: ['city', 'days'],
    additionalProperties: false,
  },
  set: {
    type: 'object',
    properties: {
      on: { type: 'boolean' },
      tags: { type: 'array', items: { $ref: '#/$defs/tag' }, maxItems: 3 },
      place: {
        type: 'object',
        properties: { x: { type: 'number' } },
        required: ['x'],
        additionalProperties: false,
      },
    },
    required: ['on', 'tags', 'place'],
    additionalProperties: false,
    $defs: { tag: { type: ['string', 'null'], maxLength: 5 } },
  },
  ping: { type: 'object', properties: {}, additionalProperties: false },
} as const;
const NAMES = Object.keys(PARAMETERS) as (keyof typeof PARAMETERS)[];
const TOOLS = NAMES.map((name) => ({ type: 'function', function: { name, parameters: PARAMETERS[name] } }));

const askOf = (format: string, more: Partial<ToolsAsk> = {}): ToolsAsk => ({
  format,
  tools: NAMES.map((name, i) => ({
    name,
    schema: JSON.stringify(PARAMETERS[name]),
    strict: false,
    where: `tools[${i}].function.parameters`,
  })),
  required: true,
  several: true,
  ...more,
});

/** Tokens of a made-up tokenizer, by the texts that a format marks calls with. */
function cluesOf(format: string, template: string, withTokens: boolean) {
  const tokens = withTokens ? [...(toolFormatNamed(format).tokens ?? [])] : [];
  const idOf = (text: string): number | undefined => {
    const at = tokens.indexOf(text);
    return at < 0 ? undefined : 1000 + at;
  };
  return {
    template,
    idOf,
    hasToken: (text: string) => idOf(text) !== undefined,
    textOf: (id: number) => tokens[id - 1000]!,
  };
}

/** Mulberry32. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A random text that a grammar allows. */
class Writer {
  readonly #grammar: Grammar;
  readonly #random: () => number;
  readonly #tokenText: (id: number) => string;

  constructor(grammar: Grammar, random: () => number, tokenText: (id: number) => string) {
    this.#grammar = grammar;
    this.#random = random;
    this.#tokenText = tokenText;
  }

  write(): string {
    return this.#write({ kind: 'rule', rule: this.#grammar.root }, 0);
  }

  #below = (n: number): number => Math.floor(this.#random() * n);

  #write(expression: Expression, depth: number): string {
    switch (expression.kind) {
      case 'text':
        return expression.text;
      case 'token':
        return this.#tokenText(expression.id);
      case 'byte':
        return String.fromCharCode(expression.low);
      case 'set': {
        const [low, high] = expression.ranges[this.#below(expression.ranges.length)]!;
        return String.fromCodePoint(low + this.#below(Math.min(high - low + 1, 90)));
      }
      case 'sequence':
        return expression.items.map((item) => this.#write(item, depth)).join('');
      case 'choice':
        return this.#write(expression.items[this.#below(expression.items.length)]!, depth);
      case 'repeat':
        return this.#times(expression.item, expression.min, expression.max, depth);
      case 'counted':
        return (
          this.#write(expression.head, depth) +
          this.#times(expression.item, expression.min, expression.max, depth) +
          this.#write(expression.tail, depth)
        );
      case 'list': {
        const items = expression.items
          .filter(({ optional }) => !optional || this.#below(2) === 0)
          .map(({ item }) => this.#write(item, depth));
        if (expression.more !== null && depth < 12)
          for (let i = this.#below(3); i > 0; i--) items.push(this.#write(expression.more, depth));
        return items.reduce(
          (all, item, i) => all + (i > 0 ? this.#write(expression.separator, depth) : '') + item,
          '',
        );
      }
      case 'rule':
        return this.#write(this.#grammar.rules.get(expression.rule)!, depth + 1);
      case 'words':
        return this.#word(expression.words, expression.spelling === 'json');
      case 'string-rest':
        return `${this.#word(expression.words, true)}"`;
    }
  }

  #times(item: Expression, min: number, max: number | null, depth: number): string {
    let text = '';
    const most = Math.min(max ?? min + 3, min + 3);
    for (let i = min + this.#below(most - min + 1); i > 0; i--) text += this.#write(item, depth);
    return text;
  }

  #word({ edges, final }: Words, json: boolean): string {
    let text = '';
    for (let state = 0; ; ) {
      const from = edges[state]!;
      if (final[state]! && (from.length === 0 || this.#below(4) === 0)) break;
      const { low, high, to } = from[this.#below(from.length)]!;
      let point = low + this.#below(Math.min(high - low + 1, 90));
      if (low <= 0x61 && high >= 0x7a) point = 0x61 + this.#below(26);
      text += String.fromCodePoint(point);
      state = to;
    }
    return json ? JSON.stringify(text).slice(1, -1) : text;
  }
}

function callsIn(format: string, text: string) {
  const parser = new AnswerParser({ reasoning: 'off', toolFormat: toolFormatNamed(format), tools: TOOLS });
  const calls: { name: string; arguments: string }[] = [];
  let rest = '';
  for (const { text: more, toolCalls } of [parser.push(text), parser.end()]) {
    rest += more;
    for (const { index, function: fn } of toolCalls) {
      calls[index] ??= { name: fn.name!, arguments: '' };
      calls[index].arguments += fn.arguments;
    }
  }
  return { calls, rest };
}

/** Formats whose form depends on the template or the tokenizer, in all of their forms. */
const FORMS: readonly (readonly [format: string, template: string, tokens: boolean])[] = [
  ...TOOL_FORMATS.filter(({ grammar }) => grammar !== undefined).flatMap(({ name }) =>
    [true, false].map((tokens) => [name, '', tokens] as const),
  ),
  ['deepseek_v3', '```json', true],
  ['deepseek_v32', '<｜DSML｜tool_calls>', true],
  ['hunyuan', '```json', true],
  ['pythonic', '<function_calls>', false],
  ['phi4_mini_json', 'functools[', false],
];

const validators = new Map(
  NAMES.map((name) => [name as string, new Ajv2020({ strict: false }).compile(PARAMETERS[name])]),
);

describe.each(FORMS)('%s %s tokens %s', (format, template, tokens) => {
  const clues = cluesOf(format, template, tokens);

  it('allows calls that its parser reads, and that fit', () => {
    const grammar = toolGrammar(toolFormatNamed(format), askOf(format), null, clues, new Budget());
    const random = randomOf(7);
    const called = new Set<string>();
    for (let i = 0; i < 60; i++) {
      const text = new Writer(grammar, random, clues.textOf).write();
      const { calls, rest } = callsIn(format, text);
      expect([rest, calls.length > 0, text]).toEqual(['', true, text]);
      for (const call of calls) {
        called.add(call.name);
        const validate = validators.get(call.name)!;
        let value: unknown;
        expect(() => {
          value = JSON.parse(call.arguments);
        }, text).not.toThrow();
        expect([validate(value), text, call]).toEqual([true, text, call]);
      }
    }
    expect(called.size).toBe(NAMES.length);
  });

  it('allows one call where there may be no more', () => {
    const grammar = toolGrammar(
      toolFormatNamed(format),
      askOf(format, { several: false }),
      null,
      clues,
      new Budget(),
    );
    const random = randomOf(11);
    for (let i = 0; i < 20; i++)
      expect(callsIn(format, new Writer(grammar, random, clues.textOf).write()).calls).toHaveLength(1);
  });
});

/** What models write, after their templates: token texts are written in full. */
const WRITTEN: readonly (readonly [format: string, template: string, text: string])[] = [
  ['hermes', '', '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'],
  [
    'hermes',
    '',
    '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>',
  ],
  ['llama3_json', '', '{"name": "weather", "parameters": {"city": "Rome", "days": 2}}'],
  ['llama3_json', '', '<|python_tag|>{"name": "ping", "parameters": {}}; {"name": "ping", "parameters": {}}'],
  ['mistral', '', '[TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 2}'],
  ['mistral', '', '[TOOL_CALLS]ping[CALL_ID]aB3dE6gH9[ARGS]{}[TOOL_CALLS]ping[ARGS]{}'],
  [
    'qwen3_coder',
    '',
    '<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>',
  ],
  [
    'seed_oss',
    '',
    '<seed:tool_call>\n<function=weather>\n<parameter=city>Rome</parameter>\n<parameter=days>2</parameter>\n</function>\n</seed:tool_call>',
  ],
  [
    'glm45',
    '',
    '<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>',
  ],
  [
    'glm45',
    '',
    '<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call>',
  ],
  [
    'minimax_m2',
    '',
    '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Rome</parameter>\n<parameter name="days">2</parameter>\n</invoke>\n</minimax:tool_call>',
  ],
  [
    'deepseek_v3',
    '```json',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"city": "Rome", "days": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
  ],
  [
    'deepseek_v3',
    '',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Rome", "days": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
  ],
  [
    'deepseek_v32',
    '',
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
  ],
  [
    'kimi_k2',
    '',
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{"city": "Rome", "days": 2}<|tool_call_end|><|tool_calls_section_end|>',
  ],
  ['lfm2', '', '<|tool_call_start|>[weather(city="Rome", days=2), ping()]<|tool_call_end|>'],
  ['pythonic', '', '[set(on=True, tags=[None], place={"x": 1.5})]'],
  ['pythonic', '<function_calls>', '<function_calls>\nweather(city="Rome", days=2)\n</function_calls>'],
  ['granite', '', '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome", "days": 2}}]'],
  ['apertus', '', '<|tools_prefix|>[{"weather": {"city": "Rome", "days": 2}}, {"ping": {}}]<|tools_suffix|>'],
  [
    'hunyuan',
    '```json',
    '<tool_calls>\n<tool_call>weather\n```json\n{"city": "Rome", "days": 2}\n```</tool_call>\n<tool_call>ping\n```json\n{}\n```</tool_call>\n</tool_calls>',
  ],
  ['hunyuan', '', '<tool_calls>[{"name": "weather", "arguments": {"city": "Rome", "days": 2}}]</tool_calls>'],
  [
    'cohere2',
    '',
    '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Rome", "days": 2}},\n    {"tool_call_id": "1", "tool_name": "ping", "parameters": {}}\n]<|END_ACTION|>',
  ],
  [
    'harmony',
    '',
    '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Rome", "days": 2}',
  ],
  ['harmony', '', ' to=functions.ping<|channel|>commentary json<|message|>{}'],
  [
    'gemma4',
    '',
    '<|tool_call>call:weather{city:<|"|>Rome<|"|>,days:2,note:null}<tool_call|><|tool_call>call:set{on:true,tags:[<|"|>a"b<|"|>,null],place:{x:1.5}}<tool_call|>',
  ],
  [
    'functiongemma',
    '',
    '<start_function_call>call:weather{city:<escape>Rome<escape>,unit:<escape>celsius<escape>,days:2}<end_function_call>',
  ],
  ['glm4_0414', '', 'weather\n{"city": "Rome", "days": 2}\nping\n{}'],
  ['phi4_mini_json', 'functools[', 'functools[{"name": "ping", "arguments": {}}]'],
  ['phi4_mini_json', '', '<|tool_call|>[{"name": "ping", "arguments": {}}]<|/tool_call|>'],
];

/** Where a text leads, marks taken as their tokens; null if it is not allowed. */
function reads(matcher: Matcher, clues: ReturnType<typeof cluesOf>, tokens: readonly string[], text: string) {
  let state: ParserState | null = matcher.start;
  for (let at = 0; at < text.length && state !== null; ) {
    const mark = tokens.find((token) => text.startsWith(token, at));
    if (mark !== undefined) {
      state = matcher.stepToken(state, clues.idOf(mark)!);
      at += mark.length;
      continue;
    }
    const character = String.fromCodePoint(text.codePointAt(at)!);
    for (const byte of Buffer.from(character)) state = state === null ? null : matcher.step(state, byte);
    at += character.length;
  }
  return state;
}

describe('what models write', () => {
  it.each(WRITTEN)('%s %s: %s', (format, template, text) => {
    const clues = cluesOf(format, template, true);
    const grammar = toolGrammar(toolFormatNamed(format), askOf(format), null, clues, new Budget());
    const matcher = new Matcher(compileGrammar(grammar));
    const tokens = toolFormatNamed(format).tokens ?? [];
    expect(reads(matcher, clues, tokens, text)?.done).toBe(true);
    expect(reads(matcher, clues, tokens, text.slice(0, -2))?.done ?? false).toBe(false);
    expect(reads(matcher, clues, tokens, `Sure. ${text}`)).toBe(null);
    expect(reads(matcher, clues, tokens, text.replaceAll(/weather|ping|set/g, 'leather'))).toBe(null);
  });

  // Of a frame harmony.test.ts has more.
  const unframed = WRITTEN.filter(([format]) => toolFormatNamed(format).frame === undefined);
  it.each(unframed)('%s %s lazily: %s', (format, template, text) => {
    const clues = cluesOf(format, template, true);
    const ask = askOf(format, { required: false });
    const grammar = toolGrammar(toolFormatNamed(format), ask, null, clues, new Budget());
    const matcher = new Matcher(compileGrammar(grammar));
    const tokens = toolFormatNamed(format).tokens ?? [];
    const done = (written: string) => reads(matcher, clues, tokens, written)?.done ?? false;
    expect(done('The weather is fine, {as} [ever].')).toBe(true);
    expect(done(text)).toBe(true);
    // A format without marks knows calls by the names of tools.
    expect(done(text.replaceAll(/weather|ping|set/g, 'leather'))).toBe(format === 'glm4_0414');
    // Where a mark begins calls, text may stand before them.
    const marked =
      tokens.some((token) => text.startsWith(token)) || /^(functools|<｜DSML|weather\n)/.test(text);
    expect(done(`Let me see.\n${text}`)).toBe(marked || text.startsWith('[') || text.startsWith('{'));
  });
});

describe('tools that cannot be held to', () => {
  const refusal = (schema: unknown): unknown => {
    const tools = [
      { name: 'f', schema: JSON.stringify(schema), strict: true, where: 'tools[3].function.parameters' },
    ];
    const clues = cluesOf('hermes', '', false);
    try {
      toolGrammar(toolFormatNamed('hermes'), askOf('hermes', { tools }), null, clues, new Budget());
    } catch (error) {
      return error;
    }
    return null;
  };
  it('are refused by keyword and place', () => {
    expect(refusal({ type: 'object', properties: { a: { $dynamicRef: '#a' } } })).toMatchObject({
      code: 'unsupported-schema',
      where: 'tools[3].function.parameters',
      message: 'The keyword `$dynamicRef` at #/properties/a cannot be enforced.',
    });
    expect(refusal({ properties: { a: { type: 'string' } } })).toBe(null);
  });
});
