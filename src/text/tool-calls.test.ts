import { describe, expect, it } from 'vitest';
import { ToolCallParser, type ToolCallPiece } from './tool-calls.js';

/** What comes out, neighbouring texts joined. */
function parse(pieces: readonly string[]): (string | { name: string; arguments: string })[] {
  const parser = new ToolCallParser();
  const out: (string | { name: string; arguments: string })[] = [];
  const take = (found: readonly ToolCallPiece[]): void => {
    for (const piece of found) {
      if (piece.type === 'call') out.push({ name: piece.name, arguments: piece.arguments });
      else if (typeof out.at(-1) === 'string') out.push((out.pop() as string) + piece.text);
      else out.push(piece.text);
    }
  };
  for (const piece of pieces) take(parser.push(piece));
  take(parser.end());
  expect(parser.calls).toBe(out.filter((o) => typeof o !== 'string').length);
  return out;
}

const call = (json: string): string => `<tool_call>\n${json}\n</tool_call>`;
const weather = call('{"name": "weather", "arguments": {"city": "Rome", "days": [1, 2]}}');
const asWeather = { name: 'weather', arguments: '{"city": "Rome", "days": [1, 2]}' };

const CASES: readonly (readonly [string, string, ReturnType<typeof parse>])[] = [
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
    'the last of two members',
    call('{"name": "f", "arguments": {"a": 1}, "arguments": {"a": 2}}'),
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
  ['a call that broke off', weather.slice(0, -16), [weather.slice(0, -16)]],
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

describe('tool calls', () => {
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

  it('gives out text as soon as it can be no call, and nothing of a call before it is whole', () => {
    const parser = new ToolCallParser();
    expect(parser.push('Look')).toEqual([{ type: 'text', text: 'Look' }]);
    expect(parser.push(' here: <tool')).toEqual([{ type: 'text', text: ' here:' }]);
    expect(parser.push('s>')).toEqual([{ type: 'text', text: ' <tools>' }]);
    expect(parser.push(`${weather.slice(0, -1)}`)).toEqual([]);
    expect(parser.push('>')).toEqual([{ type: 'call', ...asWeather }]);
  });

  it('reads hostile answers in linear time', () => {
    // Each of these begins a call that might swallow all the rest.
    const hostile = '<tool_call>\\"</tool_call>'.repeat(20_000);
    for (const text of [hostile, `${hostile}\n`, '<'.repeat(500_000), ' '.repeat(500_000)]) {
      expect(parse([text])).toEqual([text]);
      expect(parse(text.match(/.{1,16}/gs) ?? [])).toEqual([text]);
    }
  });
});
