/**
 * Grammars of calls against what reads them: whatever a grammar allows, the format's parser takes for calls whose arguments are what the
 * schema allows (Ajv says so). tool-grammar-written.test.ts has what models write.
 */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { randomOf, Writer } from '../../../test/setup/grammar-writer.js';
import { askOf, cluesOf, NAMES, PARAMETERS, TOOLS } from '../../../test/setup/tool-asks.js';
import { Budget } from '../../grammar/limits.js';
import { AnswerParser } from '../answer-parser.js';
import { TOOL_FORMATS, toolFormatNamed } from './formats.js';
import { toolGrammar } from './tool-grammar.js';

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
