import { describe, expect, it } from 'vitest';
import { answerParsers } from './answer-parser.js';
import { toolFormatNamed } from './formats/formats.js';
import { ReasoningSplitter } from './reasoning.js';
import { openedIn, THINK } from './thought-marks.js';

function split(pieces: readonly string[], open = false): { reasoning: string; content: string } {
  const splitter = new ReasoningSplitter({ opened: open ? THINK : null });
  let reasoning = '';
  let content = '';
  for (const piece of [...pieces.map((p) => splitter.push(p)), splitter.end()]) {
    reasoning += piece.reasoning;
    content += piece.content;
  }
  return { reasoning, content };
}

/** [what, whether the prompt has opened the block, answer, reasoning, content] */
const CASES: readonly (readonly [string, boolean, string, string, string])[] = [
  [
    'a block and an answer',
    false,
    '<think>\nHm, a\n\nb < c.\n</think>\n\nIt is so. \n',
    'Hm, a\n\nb < c.',
    'It is so. \n',
  ],
  ['white space before the block', false, ' \n<think>a</think>b', 'a', 'b'],
  ['an empty block', false, '<think>\n\n</think>\n\nYes.', '', 'Yes.'],
  ['a block and nothing', false, '<think>a</think>', 'a', ''],
  ['a block that is never closed', false, '<think>\nOn and on \n', 'On and on', ''],
  ['a closing tag that broke off', false, '<think>\nOn and </thi', 'On and </thi', ''],
  ["Hy3's marks", false, '<think:opensource>a</think></think:opensource>b', 'a</think>', 'b'],
  ["Seed-OSS's marks", false, '<seed:think>a</think></seed:think>b', 'a</think>', 'b'],
  ["Mistral's marks", false, '[THINK]a[1][/THINK]b', 'a[1]', 'b'],
  ["Cohere's marks", false, '<|START_THINKING|>a<|END_THINKING|>b', 'a', 'b'],
  ["Apertus's marks", false, '<|inner_prefix|>a<|inner_suffix|>b', 'a', 'b'],
  ['a list, which is no mark', false, '[1, 2]', '', '[1, 2]'],
  ['no block', false, '\n It is <think>so</think>.\n', '', '\n It is <think>so</think>.\n'],
  ['an opening tag that broke off', false, ' <thi', '', ' <thi'],
  ['nearly an opening tag', false, '<thinking>a</thinking>', '', '<thinking>a</thinking>'],
  ['white space only', false, ' \n', '', ' \n'],
  ['nothing', false, '', '', ''],
  ['a second block', false, '<think>a</think>b<think>c</think>', 'a', 'b<think>c</think>'],
  ['an opening tag inside', false, '<think>a<think>b</think>c</think>', 'a<think>b', 'c</think>'],
  ['a block the prompt opened', true, 'Hm. </think>\nYes.', 'Hm.', 'Yes.'],
  ['a block the prompt opened, never closed', true, '\nHm. ', 'Hm.', ''],
  ['a block opened by prompt and model', true, '\n<think>\nHm.</think>Yes.', 'Hm.', 'Yes.'],
  ['a block the prompt opened, closed at once', true, '</think>\n\nYes.', '', 'Yes.'],
  ['a block the prompt opened, broken off in its first letters', true, ' <thi', '<thi', ''],
];

describe('reasoning', () => {
  it.each(CASES)('%s', (_, open, text, reasoning, content) => {
    const expected = { reasoning, content };
    expect(split([text], open)).toEqual(expected);
    expect(split([...text], open)).toEqual(expected);
    for (let i = 0; i <= text.length; i++) {
      for (let j = i; j <= text.length; j++) {
        const pieces = [text.slice(0, i), text.slice(i, j), text.slice(j)];
        expect(split(pieces, open), `cut at ${i}, ${j}`).toEqual(expected);
      }
    }
  });

  it('ends a block at a call that interrupts it', () => {
    const answer = '<think>I call.\n<call>f</call>\n</think>';
    for (let i = 0; i <= answer.length; i++)
      for (let j = i; j <= answer.length; j++) {
        const splitter = new ReasoningSplitter({ interrupts: ['<call>', '<other'] });
        const pieces = [answer.slice(0, i), answer.slice(i, j), answer.slice(j)].map((one) =>
          splitter.push(one),
        );
        const all = [...pieces, splitter.end()];
        expect(all.map((one) => one.reasoning).join('')).toBe('I call.');
        expect(all.map((one) => one.content).join('')).toBe('<call>f</call>\n</think>');
      }
  });

  it.each([
    ['qwen3_coder', '<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>'],
    [
      'kimi_k2',
      '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|><|tool_calls_section_end|>',
    ],
    [
      'deepseek_v32',
      '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
    ],
  ])('is ended by a call of %s, unless a grammar holds the answer', (name, call) => {
    const tools = [{ type: 'function', function: { name: 'f', parameters: {} } }];
    const read = (request: object, free: boolean) => {
      const parser = answerParsers(request, 'assistant\n<think>\n', toolFormatNamed(name), free)();
      const pieces = [...[`I ${call}`].join('')].map((one) => parser.push(one));
      return [...pieces, parser.end()].reduce((all, one) => ({
        reasoning: all.reasoning + one.reasoning,
        text: all.text + one.text,
        toolCalls: [...all.toolCalls, ...one.toolCalls],
      }));
    };
    const called = read({ tools }, true);
    expect([called.reasoning, called.text]).toEqual(['I', '']);
    expect(called.toolCalls[0]!.function.name).toBe('f');
    expect(called.toolCalls.map((one) => one.function.arguments).join('')).toBe('{"a": 1}');
    for (const [request, free] of [
      [{ tools }, false],
      [{}, true],
      [{ tools, parseToolCalls: false }, true],
    ] as const)
      expect(read(request, free)).toEqual({ reasoning: `I ${call}`, text: '', toolCalls: [] });
  });

  it('gives out thoughts as they come', () => {
    const splitter = new ReasoningSplitter();
    expect(splitter.push('<think>\n')).toEqual({ reasoning: '', content: '' });
    expect(splitter.push('One ')).toEqual({ reasoning: 'One', content: '' });
    expect(splitter.push('two <')).toEqual({ reasoning: ' two', content: '' });
    expect(splitter.push('3</think> A')).toEqual({ reasoning: ' <3', content: 'A' });
    expect(splitter.push(' b')).toEqual({ reasoning: '', content: ' b' });
  });

  it('knows a prompt that has opened the block', () => {
    expect(openedIn('<|im_start|>assistant\n<think>\n')).toBe(THINK);
    expect(openedIn('<|im_start|>assistant\n<think>\n\n</think>\n\n')).toBeUndefined();
    expect(openedIn('<|im_start|>assistant\n')).toBeUndefined();
  });
});
