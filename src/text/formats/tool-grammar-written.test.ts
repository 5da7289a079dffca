/** Calls as models write them, after their templates: the grammar of each format allows them, and none of other tools. */
import { describe, expect, it } from 'vitest';
import { askOf, cluesOf } from '../../../test/setup/tool-asks.js';
import { compileGrammar } from '../../grammar/compile.js';
import { Budget } from '../../grammar/limits.js';
import { Matcher, type ParserState } from '../../grammar/matcher.js';
import { toolFormatNamed } from './formats.js';
import { toolGrammar } from './tool-grammar.js';

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
  ...['', ':opensource'].map((suffix): [string, string, string] => [
    suffix === '' ? 'hy_v3' : 'hy_v3_opensource',
    '',
    '<tool_calls>\n<tool_call>weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>ping<tool_sep>\n</tool_call>\n</tool_calls>'.replaceAll(
      '>',
      `${suffix}>`,
    ),
  ]),
  [
    'muse_glimmer',
    '',
    ' to=weather<|message|><atem:function_calls>\n<atem:invoke name="weather">\n<atem:parameter name="city">Rome</atem:parameter>\n<atem:parameter name="days">2</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=ping<|message|><atem:function_calls>\n<atem:invoke name="ping">\n</atem:invoke>\n</atem:function_calls>',
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
