/** Whole answers in messages: thoughts, texts and calls, read however they are cut, and what a grammar holds them to. */
import { describe, expect, it } from 'vitest';
import { compileGrammar } from '../../grammar/compile.js';
import { Budget } from '../../grammar/limits.js';
import { Matcher, type ParserState } from '../../grammar/matcher.js';
import { type AnswerAsk, answerGrammar } from '../answer-grammar.js';
import { addToolCalls, answerParsers, type ToolCall } from '../answer-parser.js';
import { HARMONY } from './harmony.js';

const tools = [{ type: 'function', function: { name: 'f' } }];
const PROMPT = '<|end|><|start|>assistant';

function read(pieces: readonly string[], request: object = { tools }, prompt = PROMPT) {
  const parser = answerParsers(request, prompt, HARMONY)();
  const calls: ToolCall[] = [];
  const thinking: boolean[] = [];
  let text = '';
  let reasoning = '';
  const take = (piece: ReturnType<typeof parser.push>): void => {
    text += piece.text;
    reasoning += piece.reasoning;
    addToolCalls(calls, piece.toolCalls);
  };
  for (const piece of pieces) {
    take(parser.push(piece));
    thinking.push(parser.thinking);
  }
  take(parser.end());
  return { text, reasoning, calls: calls.map((call) => call.function), thinking };
}

function expectRead(answer: string, expected: object, ...more: [request?: object, prompt?: string]): void {
  for (let i = 0; i <= answer.length; i++) {
    const { thinking: _, ...found } = read([answer.slice(0, i), answer.slice(i)], ...more);
    expect(found, `cut at ${i}`).toEqual({ text: '', reasoning: '', calls: [], ...expected });
  }
  const { thinking: _, ...found } = read(answer.split(''), ...more);
  expect(found).toEqual({ text: '', reasoning: '', calls: [], ...expected });
}

const think = (text: string): string => `<|channel|>analysis<|message|>${text}<|end|><|start|>assistant`;
const say = (text: string): string => `<|channel|>final<|message|>${text}`;
const call = (args: string, to = 'functions.f'): string =>
  `<|channel|>commentary to=${to} <|constrain|>json<|message|>${args}`;

describe('answers in channels', () => {
  it('are taken apart', () => {
    expectRead(`${think('Rome?')}${say('It rains. < |')}`, { reasoning: 'Rome?', text: 'It rains. < |' });
    expectRead(`${think('Rome?')}${call('{"a": 1}')}`, {
      reasoning: 'Rome?',
      calls: [{ name: 'f', arguments: '{"a": 1}' }],
    });
    expectRead(
      `${think('A')}<|channel|>commentary<|message|>I look.<|end|><|start|>assistant${think('B')}${call('{}')}<|call|>`,
      { reasoning: 'A\n\nB', text: 'I look.', calls: [{ name: 'f', arguments: '{}' }] },
    );
    expectRead('No message at all.\n<|end', { text: 'No message at all.\n<|end' });
  });

  it('go on from where the prompt has begun one', () => {
    const begun = `${PROMPT}<|channel|>analysis<|message|>Let me`;
    expectRead(`see.<|end|><|start|>assistant${say('Yes.')}`, { reasoning: 'see.', text: 'Yes.' }, {}, begun);
    expectRead('and so on', { text: 'and so on' }, {}, `${PROMPT}<|channel|>final<|message|>It rains`);
    expectRead('and so on', { text: 'and so on' }, {}, 'the end of a long answer');
    expect(HARMONY.frame!.begins(PROMPT)).toBe('message');
    expect(HARMONY.frame!.begins(begun)).toBe('thoughts');
    expect(HARMONY.frame!.begins('the end of a long answer')).toBe('text');
  });

  it('keep in the text what is not to be taken apart', () => {
    const written = `${think('Rome?')}${call('{}')}`;
    expectRead(written, { reasoning: 'Rome?', text: call('{}') }, {});
    expectRead(written, { reasoning: 'Rome?', text: call('{}') }, { tools, parseToolCalls: false });
    expectRead(
      `${think('Rome?')}${say('Rain.')}`,
      { text: '<|channel|>analysis<|message|>Rome?<|end|>\n\nRain.' },
      { parseReasoning: false },
    );
    const two = `${call('{"a": 1}')}<|call|><|start|>assistant${call('{"a": 2}')}`;
    expectRead(two, { calls: [{ name: 'f', arguments: '{"a": 1}' }] }, { tools, parallelToolCalls: false });
  });

  it('say what is thought', () => {
    const pieces = [
      '<|channel|>',
      'analysis',
      '<|message|>',
      'x',
      '<|end|>',
      '<|start|>',
      'assistant',
      say('y'),
    ];
    expect(read(pieces).thinking).toEqual([false, true, true, true, false, false, false, false]);
  });
});

const MARKS = ['<|start|>', '<|channel|>', '<|constrain|>', '<|message|>', '<|end|>', '<|call|>'];
const clues = {
  template: '',
  idOf: (token: string) => (MARKS.includes(token) ? 1000 + MARKS.indexOf(token) : undefined),
  hasToken: (token: string) => MARKS.includes(token),
};

/** Whether a whole answer may be this; marks are tokens. */
function allows(asked: Partial<AnswerAsk>, answer: string): boolean {
  const whole = { ask: null, tools: null, thoughts: null, frame: 'harmony', ...asked };
  const matcher = new Matcher(compileGrammar(answerGrammar(whole, clues, new Budget())));
  let state: ParserState | null = matcher.start;
  for (const part of answer.split(/(<\|\w+\|>)/)) {
    const id = clues.idOf(part);
    if (id !== undefined) state = state && matcher.stepToken(state, id);
    else for (const byte of Buffer.from(part)) state = state && matcher.step(state, byte);
  }
  return state?.done ?? false;
}

describe('a grammar of answers in channels', () => {
  const marks = HARMONY.frame!.thoughts;
  const allowed = { state: 'allowed', marks } as const;
  const yes = { kind: 'choice', choices: ['yes'] } as const;
  const f = {
    name: 'f',
    schema: '{"properties":{"a":{"const":1}},"required":["a"]}',
    strict: true,
    where: '',
  };
  const toolsAsk = { format: 'harmony', tools: [f], required: false, several: true };
  const preamble = '<|channel|>commentary<|message|>I look.<|end|><|start|>assistant';

  it('has a form in the last channel, behind thoughts', () => {
    expect(allows({ ask: yes, thoughts: allowed }, `${think('no')}${say('yes')}`)).toBe(true);
    expect(allows({ ask: yes, thoughts: allowed }, say('yes'))).toBe(true);
    expect(allows({ ask: yes, thoughts: allowed }, say('no'))).toBe(false);
    expect(allows({ ask: yes, thoughts: allowed }, 'yes')).toBe(false);
    expect(allows({ ask: yes }, `${think('no')}${say('yes')}`)).toBe(false);
    const open = { state: 'open', marks } as const;
    expect(allows({ ask: yes, thoughts: open }, `no<|end|><|start|>assistant${say('yes')}`)).toBe(true);
    // The prompt has begun what is said.
    expect(allows({ ask: yes, frame: null }, 'yes')).toBe(true);
    expect(allows({ thoughts: allowed }, `${think('no')}${say('All of it.\n')}`)).toBe(true);
  });

  it('has calls with arguments that fit, and says something only where it may', () => {
    const free = { tools: toolsAsk, thoughts: allowed };
    expect(allows(free, `${think('no')}${preamble}${call('{"a":1}')}`)).toBe(true);
    expect(allows(free, call('{"a":2}'))).toBe(false);
    expect(allows(free, call('{"a":1}', 'functions.g'))).toBe(false);
    expect(allows(free, say('It rains.'))).toBe(true);
    const formed = { ...free, ask: yes };
    expect(allows(formed, say('yes'))).toBe(true);
    expect(allows(formed, call('{"a":1}'))).toBe(true);
    expect(allows(formed, say('It rains.'))).toBe(false);
    expect(allows(formed, `${preamble}${say('yes')}`)).toBe(false);
    const required = { ...free, tools: { ...toolsAsk, required: true } };
    expect(allows(required, `${think('no')}${call('{"a":1}')}`)).toBe(true);
    expect(allows(required, say('yes'))).toBe(false);
  });
});
