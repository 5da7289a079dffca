/** Names of tools and arguments: what a format cannot tell is refused where calls are held to it, and all else is read again. */
import { describe, expect, it } from 'vitest';
import { cluesOf } from '../../../test/setup/tool-asks.js';
import { Budget } from '../../grammar/limits.js';
import { toolFormatNamed } from './formats.js';
import { toolGrammar } from './tool-grammar.js';

function ask(format: string, name: string, argument: string): void {
  const schema = JSON.stringify({ properties: { [argument]: { const: 1 } }, required: [argument] });
  const tools = [{ name, schema, strict: false, where: 'tools[0].function.parameters' }];
  const clues = cluesOf(format, '', true);
  toolGrammar(
    toolFormatNamed(format),
    { format, tools, required: true, several: true },
    null,
    clues,
    new Budget(),
  );
}

const TAGGED = ['qwen3_coder', 'seed_oss', 'glm45', 'minimax_m2', 'deepseek_v32', 'hy_v3'];
const PYTHON = ['pythonic', 'lfm2'];
const SPELLED = ['deepseek_v3', 'kimi_k2', 'mistral', 'harmony', 'gemma4'];

describe('names that calls are told by', () => {
  it.each(['hermes', ...TAGGED, ...PYTHON, ...SPELLED])('are plain ones in %s', (format) => {
    for (const name of ['get_weather', 'a-b', 'ns.f']) expect(() => ask(format, name, name)).not.toThrow();
  });

  it.each([...TAGGED, ...PYTHON, ...SPELLED])('are no others in %s', (format) => {
    for (const name of ['x y', 'f\n'])
      expect(() => ask(format, name, 'a'), name).toThrow(
        expect.objectContaining({ code: 'unsupported-tool', where: 'tools[0].function.name' }),
      );
  });

  it.each([...TAGGED, ...PYTHON])('are no other arguments in %s', (format) => {
    for (const argument of ['x y', 'a>b', 'q"', ' a', '', '</arg_key>', 'a\n'])
      expect(() => ask(format, 'f', argument), argument).toThrow(
        expect.objectContaining({ code: 'unsupported-schema', where: 'tools[0].function.parameters' }),
      );
  });

  it('are any where all is JSON', () => {
    for (const name of ['x y', 'f\n', 'q"']) expect(() => ask('hermes', name, name)).not.toThrow();
    for (const argument of ['x y', 'q"']) expect(() => ask('kimi_k2', 'f', argument)).not.toThrow();
  });

  it.each<[string, string]>([
    [
      'qwen3_coder',
      '<tool_call>\n<function=f>\n<parameter=page[size]>\n5\n</parameter>\n</function>\n</tool_call>',
    ],
    ['glm45', '<tool_call>f\n<arg_key>page[size]</arg_key>\n<arg_value>5</arg_value>\n</tool_call>'],
  ])('have brackets in %s, as addresses do', (format, text) => {
    expect(() => ask(format, 'f', 'page[size]')).not.toThrow();
    const parameters = { properties: { 'page[size]': { type: 'integer' } } };
    const parser = toolFormatNamed(format).parser([
      { type: 'function', function: { name: 'f', parameters } },
    ]);
    const pieces = [...parser.push(text), ...parser.end()];
    const told = pieces.map((piece) => (piece.type === 'call' ? piece.arguments : piece.text)).join('');
    expect(JSON.parse(told)).toEqual({ 'page[size]': 5 });
  });
});
