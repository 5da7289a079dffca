import { describe, expect, it } from 'vitest';
import { HERMES } from './hermes.js';
import type { ToolPiece } from './tool-format.js';

type Out = (string | { name: string; arguments: string })[];

/** What comes out, neighbouring texts and the parts of each call joined. */
function parse(pieces: readonly string[]): Out {
  const parser = HERMES.parser([]);
  const out: Out = [];
  const take = (found: readonly ToolPiece[]): void => {
    for (const piece of found) {
      const last = out.at(-1);
      if (piece.type === 'call') out.push({ name: piece.name, arguments: piece.arguments });
      else if (piece.type === 'arguments') {
        if (piece.text === '') throw new Error('an empty piece');
        (last as { arguments: string }).arguments += piece.text;
      } else if (typeof last === 'string') out.push((out.pop() as string) + piece.text);
      else out.push(piece.text);
    }
  };
  for (const piece of pieces) take(parser.push(piece));
  take(parser.end());
  return out;
}

const call = (json: string): string => `<tool_call>\n${json}\n</tool_call>`;
const weather = call('{"name": "weather", "arguments": {"city": "Rome", "days": [1, 2]}}');
const asWeather = { name: 'weather', arguments: '{"city": "Rome", "days": [1, 2]}' };

const CASES: readonly (readonly [string, string, Out])[] = [
  ['text alone, its white space kept', ' Hello,\n world < 3. \n\n', [' Hello,\n world < 3. \n\n']],
  ['nothing', '', []],
  ['a call alone', weather, [asWeather]],
  ['a call between white space', `\n\n${weather}\n`, [asWeather]],
  ['text before a call', `Let me look.\n\n${weather}`, ['Let me look.', asWeather]],
  ['text after a call', `${weather}\nDone. `, [asWeather, '\nDone.']],
  [
    'two calls and text between',
    `a\n${weather}\nb\n${call('{"name": "now"}')} `,
    ['a', asWeather, '\nb', { name: 'now', arguments: '{}' }],
  ],
  ['calls back to back', weather + weather, [asWeather, asWeather]],
  [
    'arguments that are JSON text',
    call('{"name": "f", "arguments": "{\\"a\\": 1}"}'),
    [{ name: 'f', arguments: '{"a": 1}' }],
  ],
  [
    'numbers that a double cannot hold, and their order',
    call('{"arguments": {"id": 12345678901234567890, "1": 1.50}, "name": "f"}'),
    [{ name: 'f', arguments: '{"id": 12345678901234567890, "1": 1.50}' }],
  ],
  [
    'members named alike further in',
    call(
      '{"x": {"arguments": 1}, "name": "f", "y": ["arguments", {"name": "g"}], "arguments": {"arguments": ":,}"}}',
    ),
    [{ name: 'f', arguments: '{"arguments": ":,}"}' }],
  ],
  [
    'the first of two members, which was given out',
    call('{"name": "f", "arguments": {"a": 1}, "arguments": {"a": 2}}'),
    [{ name: 'f', arguments: '{"a": 1}' }],
  ],
  [
    'the last of two members before the name',
    call('{"arguments": {"a": 1}, "arguments": {"a": 2}, "name": "f"}'),
    [{ name: 'f', arguments: '{"a": 2}' }],
  ],
  [
    'a closing tag in a string',
    call('{"name": "f", "arguments": {"t": "</tool_call> \\" </tool_call>"}}'),
    [{ name: 'f', arguments: '{"t": "</tool_call> \\" </tool_call>"}' }],
  ],
  [
    'an opening tag in a string',
    call('{"name": "f", "arguments": {"t": "<tool_call>"}}'),
    [{ name: 'f', arguments: '{"t": "<tool_call>"}' }],
  ],
  ['a call without its closing tag at the end', weather.slice(0, -13), [asWeather]],
  [
    'arguments that broke off',
    weather.slice(0, -16),
    [{ name: 'weather', arguments: '{"city": "Rome", "days": [1, 2' }],
  ],
  [
    'arguments that broke off before they had a value',
    '<tool_call>{"name": "f", "arguments": {"city": ',
    ['<tool_call>{"name": "f", "arguments": {"city": '],
  ],
  [
    'arguments that broke off in a closing tag that is none',
    '<tool_call>{"name": "f", "arguments": {"city": "</tool_ca',
    [{ name: 'f', arguments: '{"city": "</tool_ca' }],
  ],
  [
    'whole arguments of a call that broke off',
    '<tool_call>{"name": "f", "arguments": {"city": "</tool_call>"}',
    [{ name: 'f', arguments: '{"city": "</tool_call>"}' }],
  ],
  ['an opening tag that broke off', 'a\n<tool_ca', ['a\n<tool_ca']],
  ['what is no JSON', `a ${call('weather("Rome")')} b`, [`a ${call('weather("Rome")')} b`]],
  ['an empty call', '<tool_call></tool_call>', ['<tool_call></tool_call>']],
  [
    'JSON that is no call',
    call('["weather"]') + call('{"name": 1}') + call('{"name": ""}'),
    [call('["weather"]') + call('{"name": 1}') + call('{"name": ""}')],
  ],
  [
    'arguments that are no object',
    call('{"name": "f", "arguments": [1]}') + call('{"name": "f", "arguments": "x"}'),
    [call('{"name": "f", "arguments": [1]}') + call('{"name": "f", "arguments": "x"}')],
  ],
  [
    'a broken call and then a right one',
    `${call('{"name": }')}\n${weather}`,
    [call('{"name": }'), asWeather],
  ],
  [
    'a string that is never closed, and then a right one',
    `${call('{"name": "f')}\n${weather}`,
    [call('{"name": "f'), asWeather],
  ],
  [
    'a string that is never closed before its tag, and then a right one',
    `<tool_call>{"name": "f</tool_call>\n${weather}`,
    ['<tool_call>{"name": "f</tool_call>', asWeather],
  ],
  [
    'a string that is never closed to the end',
    `<tool_call>{"name": "f</tool_call> and </tool_call> on`,
    [`<tool_call>{"name": "f</tool_call> and </tool_call> on`],
  ],
  ['a line break in a string', call('{"name": "a\nb"}') + weather, [call('{"name": "a\nb"}'), asWeather]],
  [
    'arguments that go wrong, as they are',
    `${call('{"name": "f", "arguments": {"a": 1, b: True} }')}!${call('{"name": "g", "arguments": {"a": "x\ny"}}')}?`,
    [{ name: 'f', arguments: '{"a": 1, b: True}' }, '!', { name: 'g', arguments: '{"a": "x\ny"}' }, '?'],
  ],
  [
    'what follows whole arguments, right or wrong',
    `${call('{"name": "f", "arguments": {"a": 1}, "x": "</tool_call>"}')}!${call('{"name": "g", "arguments": {}}}')}`,
    [{ name: 'f', arguments: '{"a": 1}' }, '!', { name: 'g', arguments: '{}' }],
  ],
  [
    'a string in the arguments that is never closed, and then a right call',
    `${call('{"name": "f", "arguments": {"a": "x}}')}\nand "so" on\n${weather}`,
    [{ name: 'f', arguments: '{"a": "x}}' }, '\nand "so" on', asWeather],
  ],
  [
    'a string in the arguments that another string closes',
    `<tool_call>{"name": "f", "arguments": {"a": "x}}</tool_call> and "so" on${weather}`,
    [{ name: 'f', arguments: '{"a": "x}}' }, ' and "so" on', asWeather],
  ],
  [
    'a string in the arguments that is never closed to the end',
    '<tool_call>{"name": "f", "arguments": {"a": "x</tool_call> and </tool_call> on',
    [{ name: 'f', arguments: '{"a": "x' }, ' and </tool_call> on'],
  ],
  ['an opening tag twice', `<tool_call>${weather}`, [`<tool_call>${weather}`]],
  [
    'tags nearly',
    '<tool_call <tool_calls> </tool_call> <<tool_cal>',
    ['<tool_call <tool_calls> </tool_call> <<tool_cal>'],
  ],
  [
    'a closing tag begun twice',
    `<tool_call>{"name": "f"}</tool_</tool_call>`,
    [`<tool_call>{"name": "f"}</tool_</tool_call>`],
  ],
];

const f = (args: string) => ({ name: 'f', arguments: args });
/** Bodies, and the calls in them; null: none. */
const SPELLINGS: readonly (readonly [string, readonly { name: string; arguments: string }[] | null])[] = [
  [
    '{"name": "f", "parameters": {"id": 12345678901234567890, "x": 1.0}}',
    [f('{"id": 12345678901234567890, "x": 1.0}')],
  ],
  ['{"parameters": {"a": 1}, "name": "f"}', [f('{"a": 1}')]],
  ['{"name": "f", "parameters": "{\\"a\\": 1.0}"}', [f('{"a": 1.0}')]],
  ['{"name": "f", "arguments": null}', [f('{}')]],
  ['{"name": "f", "arguments": ""}', [f('{}')]],
  ['{"name": "f", "arguments": " \\n"}', [f('{}')]],
  ['{"name": "f", "arguments": "null"}', [f('{}')]],
  ['{"name": "f", "arguments": []}', [f('{}')]],
  ['{"name": "f", "arguments": "[]"}', [f('{}')]],
  ['{"name": "f", "arguments": {}}', [f('{}')]],
  ['{"name": "f", "parameters": null}', [f('{}')]],
  ['{"name": "f", "arguments": null, "parameters": {"a": 1}}', [f('{"a": 1}')]],
  ['{"name": "f", "arguments": {"a": 1}, "parameters": {"b": 1}}', [f('{"a": 1}')]],
  ['{"name": "f", "parameters": {"b": 1}, "arguments": {"a": 1}}', [f('{"a": 1}')]],
  ['{"name": "f", "parameters": {"a": {"arguments": {"b": 1}}}}', [f('{"a": {"arguments": {"b": 1}}}')]],
  ['{"type": "function", "function": {"name": "f", "arguments": {"a": 1.50}}}', [f('{"a": 1.50}')]],
  ['{"function": {"name": "f", "parameters": {"a": 1}}, "id": 3}', [f('{"a": 1}')]],
  ['{"function": {"name": "f", "arguments": "{\\"a\\": 1}"}}', [f('{"a": 1}')]],
  ['{"function": {"name": "f"}}', [f('{}')]],
  ['{"function": {"name": "f"}, "arguments": {"a": 1}}', [f('{"a": 1}')]],
  ['{"function": "f", "arguments": {"a": 1}}', [f('{"a": 1}')]],
  [
    '[{"name": "f", "arguments": {"a": 1e2}}, {"name": "g"}]',
    [f('{"a": 1e2}'), { name: 'g', arguments: '{}' }],
  ],
  ['[{"function": {"name": "f", "parameters": {"a": [1, {}]}}}]', [f('{"a": [1, {}]}')]],
  ['{"name": "f", "arguments": {"a": 1}}\n{"name": "g"}', [f('{"a": 1}'), { name: 'g', arguments: '{}' }]],
  [
    '{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"a": 2}};\n{"name": "f", "parameters": {"a": 3.0}}',
    [f('{"a": 1}'), f('{"a": 2}'), f('{"a": 3.0}')],
  ],
  ['{"name": "f"} {"name": "f", "arguments": {"a": 1}}', [f('{}'), f('{"a": 1}')]],
  ['{"name": "f"} {"nome": "g"}', null],
  ['{"name": "f"}}', null],
  ['{"name": "f", "arguments": {"a": 1}}}', [f('{"a": 1}')]],
  ['[]', null],
  ['[[{"name": "f"}]]', null],
  ['[{"name": "f"}, {"nome": "g"}]', null],
  ['[{"name": "f"}, 1]', null],
  ['{"name": "f", "arguments": [1]}', null],
  ['{"name": "f", "arguments": 1}', null],
  ['{"name": "f", "arguments": true}', null],
  ['{"name": "f", "arguments": "x"}', null],
  ['{"name": "f", "arguments": "[1]"}', null],
  ['{"name": "f", "parameters": [1]}', null],
  ['{"function": {}}', null],
  ['{"function": null, "name": "f"}', [f('{}')]],
  ['{"arguments": {"a": 1}}', null],
  ['"f"', null],
  ['null', null],
];

describe('tool calls', () => {
  it.each(SPELLINGS)('%s', (body, calls) => {
    for (const text of [call(body), `a${call(body)}b`]) {
      const around = text.startsWith('a');
      const expected = calls === null ? [text] : around ? ['a', ...calls, 'b'] : [...calls];
      expect(parse([text])).toEqual(expected);
      expect(parse([...text])).toEqual(expected);
    }
  });

  it.each(CASES)('%s', (_, text, expected) => {
    expect(parse([text])).toEqual(expected);
    expect(parse([...text])).toEqual(expected);
    for (let i = 0; i <= text.length; i++) {
      const first = text.slice(0, i);
      expect(parse([first, text.slice(i)]), `cut at ${i}`).toEqual(expected);
      for (let j = i; j <= text.length; j += 7)
        expect(parse([first, text.slice(i, j), '', text.slice(j)]), `cut at ${i}, ${j}`).toEqual(expected);
    }
  });

  it('gives out text as soon as it can be no call, and nothing of a call before its name is known', () => {
    const parser = HERMES.parser([]);
    expect(parser.push('Look')).toEqual([{ type: 'text', text: 'Look' }]);
    expect(parser.push(' here: <tool')).toEqual([{ type: 'text', text: ' here:' }]);
    expect(parser.push('s>')).toEqual([{ type: 'text', text: ' <tools>' }]);
    expect(parser.push('<tool_call>{"parameters": {"a": 1}, "name": "weather"}</tool_call')).toEqual([]);
    expect(parser.push('>')).toEqual([{ type: 'call', name: 'weather', arguments: '{"a": 1}' }]);
  });

  it('gives out arguments as they come', () => {
    const parser = HERMES.parser([]);
    expect(parser.push('\n<tool_call>\n{"name": "write", "arguments": {"path"')).toEqual([]);
    expect(parser.push(': "')).toEqual([{ type: 'call', name: 'write', arguments: '{"path": "' }]);
    expect(parser.push('a.txt", "text": "one')).toEqual([
      { type: 'arguments', text: 'a.txt", "text": "one' },
    ]);
    expect(parser.push('\\ntwo</tool')).toEqual([{ type: 'arguments', text: '\\ntwo' }]);
    expect(parser.push('_kit>')).toEqual([{ type: 'arguments', text: '</tool_kit>' }]);
    expect(parser.push('</tool_call> x')).toEqual([]);
    expect(parser.push('y"}')).toEqual([{ type: 'arguments', text: '</tool_call> xy"}' }]);
    expect(parser.push('}\n')).toEqual([]);
    expect(parser.push('</tool_call>')).toEqual([]);
    expect(parser.end()).toEqual([]);
  });

  it('reads hostile answers in linear time', () => {
    // Each of these begins a call that might swallow all the rest.
    const hostile = '<tool_call>\\"</tool_call>'.repeat(10_000);
    const long = `{"a": "${'x'.repeat(200_000)}"}`;
    const written = call(`{"name": "f", "arguments": ${long}}`);
    expect(parse(written.match(/.{1,4}/gs) ?? [])).toEqual([f(long)]);
    expect(parse([call('{"name": "f"}'.repeat(20_000))])).toHaveLength(20_000);
    expect(parse([call('{"name": "f", "arguments": {}}'.repeat(20_000))])).toHaveLength(20_000);
    for (const text of [hostile, `${hostile}\n`, '<'.repeat(500_000), ' '.repeat(500_000)]) {
      expect(parse([text])).toEqual([text]);
      expect(parse(text.match(/.{1,16}/gs) ?? [])).toEqual([text]);
    }
  });
});
