import { describe, expect, it } from 'vitest';
import { type Entry, MessageLines } from './message-lines.js';

const message = (text: string): Entry => ({ kind: 'message', text });
const command = (text: string): Entry => ({ kind: 'command', text });

function entries(lines: readonly string[]): (Entry | null)[] {
  const reader = new MessageLines();
  const all = lines.map((line) => reader.push(line)).filter((one) => one !== null);
  return reader.open ? [...all, reader.end()] : all;
}

describe('messages of one line and of several', () => {
  it('a line is a message or a command, quotes within it are nothing special', () => {
    expect(entries(['What is this?', '', 'say "hi"', 'a """ b', '/help', ' /usr/bin', '/set a """'])).toEqual(
      [
        message('What is this?'),
        message(''),
        message('say "hi"'),
        message('a """ b'),
        command('/help'),
        message(' /usr/bin'),
        command('/set a """'),
      ],
    );
  });

  it.each<[string[], Entry[]]>([
    [
      ['"""', 'one', '  two', '', 'four', '"""', 'next'],
      [message('one\n  two\n\nfour'), message('next')],
    ],
    [['"""one', 'two"""'], [message('one\ntwo')]],
    [['  """', 'one', '"""  '], [message('one')]],
    [['"""all in one line"""'], [message('all in one line')]],
    [['""""""'], [message('')]],
    [['"""', '"""'], [message('')]],
    [['"""', '/usr/bin', '"""'], [message('/usr/bin')]],
    [['"""/exit"""'], [message('/exit')]],
    [['/system """', 'Be brief.', 'Be kind.', '"""'], [command('/system Be brief.\nBe kind.')]],
    [['/system """Be brief."""'], [command('/system Be brief.')]],
    // The end of the input ends a block.
    [['"""', 'one', 'two'], [message('one\ntwo')]],
    [['"""'], [message('')]],
  ])('%j', (lines, expected) => {
    expect(entries(lines)).toEqual(expected);
  });

  it('what was begun can be dropped', () => {
    const reader = new MessageLines();
    expect(reader.push('"""never mind')).toBeNull();
    expect(reader.open).toBe(true);
    reader.drop();
    expect(reader.open).toBe(false);
    expect(reader.end()).toBeNull();
    expect(reader.push('new')).toEqual(message('new'));
  });
});
