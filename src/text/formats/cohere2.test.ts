/** Whole answers of Command R7B and Command A, read however they are cut. */
import { describe, expect, it } from 'vitest';
import { readsWith } from '../../../test/setup/read-answers.js';
import { compileGrammar } from '../../grammar/compile.js';
import { Budget } from '../../grammar/limits.js';
import { Matcher, type ParserState } from '../../grammar/matcher.js';
import { type AnswerAsk, answerGrammar } from '../answer-grammar.js';
import { ChatTemplate } from '../chat-template.js';
import { COHERE2 } from './cohere2.js';

const tools = [
  { type: 'function', function: { name: 'f', parameters: { properties: { a: { type: 'integer' } } } } },
];
const PROMPT = '<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>';
const THINK = '<|START_THINKING|>';

const expectRead = readsWith(COHERE2, { tools }, PROMPT);

const think = (text: string): string => `${THINK}${text}<|END_THINKING|>`;
const say = (text: string): string => `<|START_RESPONSE|>${text}<|END_RESPONSE|>`;
const act = (...numbers: number[]): string =>
  `<|START_ACTION|>[\n    ${numbers.map((a, i) => `{"tool_call_id": "${i}", "tool_name": "f", "parameters": {"a": ${a}}}`).join(',\n    ')}\n]<|END_ACTION|>`;
const called = (a: number) => ({ name: 'f', arguments: `{"a": ${a}}` });

describe('answers of Cohere 2', () => {
  it('have thoughts, calls and what is said between marks of their own', () => {
    expectRead(say("Hello, world!\nWhat's <|up?"), { text: "Hello, world!\nWhat's <|up?" });
    expectRead(`${think('I am\nthinking')}${say('Hello')}`, { reasoning: 'I am\nthinking', text: 'Hello' });
    expectRead(`${think('A plan.')}\n${act(1, 2)}`, {
      reasoning: 'A plan.',
      calls: [called(1), called(2)],
    });
    expectRead(act(3), { calls: [called(3)] });
    // Marks are none where a call quotes them, nor are calls that are thought of.
    const quoted = act(1).replace('1}', '"<|START_RESPONSE|><|END_ACTION|>"}');
    expectRead(`${think(act(1))}${quoted}`, {
      reasoning: act(1),
      calls: [{ name: 'f', arguments: '{"a": "<|START_RESPONSE|><|END_ACTION|>"}' }],
    });
    expectRead('Without marks.', { text: 'Without marks.' });
    expectRead('<|START_RESPONSE|>cut', { text: 'cut' });
  });

  it('go on where the prompt has begun them', () => {
    expectRead(`A<|END_THINKING|>${say('B')}`, { reasoning: 'A', text: 'B' }, {}, PROMPT + THINK);
    expectRead(say('B'), { text: 'B' }, {}, PROMPT + think(''));
    expectRead('B<|END_RESPONSE|>', { text: 'B' }, {}, `${PROMPT}<|START_RESPONSE|>A, `);
    for (const [prompt, place] of [
      [PROMPT, 'message'],
      ['', 'message'],
      [PROMPT + THINK, 'thoughts'],
      [`${PROMPT}${THINK}A plan`, 'thoughts'],
      [PROMPT + think(''), 'message'],
      [`${PROMPT}<|START_RESPONSE|>`, 'text'],
      [`${PROMPT}As I said,`, 'text'],
      [`${PROMPT}${think('a')}${say('b')}<|END_OF_TURN_TOKEN|>${PROMPT}`, 'message'],
    ] as const)
      expect(COHERE2.frame!.begins(prompt), prompt).toBe(place);
  });

  it('keep in the text what is not to be taken apart, but for the marks of what is said', () => {
    expectRead(`${think('A')}${say('B')}`, { text: `${think('A')}B` }, { parseReasoning: false });
    expectRead(`${think('A')}${act(1)}`, { reasoning: 'A', text: act(1) }, {});
    expectRead(act(1), { text: act(1) }, { tools, parseToolCalls: false });
  });

  it('go back with their thoughts as the plan that the template reads', () => {
    const template = new ChatTemplate(
      '{% for m in messages %}{% if m.tool_calls %}<|START_THINKING|>{{ m.tool_plan }}<|END_THINKING|>{% endif %}{% endfor %}',
      {},
    );
    const call = { id: '0', type: 'function', function: { name: 'f', arguments: '{}' } };
    const message = { role: 'assistant', content: '', tool_calls: [call] };
    for (const name of ['reasoning_content', 'tool_plan'])
      expect(template.render([{ ...message, [name]: 'A plan.' }])).toBe(think('A plan.'));
    expect(template.render([message])).toBe(think(''));
  });

  it('are held to calls or a form that fit, between their marks', () => {
    const marks = COHERE2.tokens!;
    const clues = {
      template: '',
      idOf: (token: string) => (marks.includes(token) ? 1000 + marks.indexOf(token) : undefined),
      hasToken: (token: string) => marks.includes(token),
    };
    const allows = (asked: Partial<AnswerAsk>, answer: string): boolean => {
      const whole = { ask: null, tools: null, thoughts: null, frame: 'cohere2', ...asked };
      const matcher = new Matcher(compileGrammar(answerGrammar(whole, clues, new Budget())));
      let state: ParserState | null = matcher.start;
      for (const part of answer.split(/(<\|\w+\|>)/)) {
        const id = clues.idOf(part);
        if (id !== undefined) state = state && matcher.stepToken(state, id);
        else for (const byte of Buffer.from(part)) state = state && matcher.step(state, byte);
      }
      return state?.done ?? false;
    };
    const thoughts = { state: 'allowed', marks: COHERE2.frame!.thoughts } as const;
    const ask = { kind: 'choice', choices: ['yes'] } as const;
    expect(allows({ ask, thoughts }, say('yes'))).toBe(true);
    expect(allows({ ask, thoughts }, `${think('no')}${say('yes')}`)).toBe(true);
    expect(allows({ ask }, `${think('no')}${say('yes')}`)).toBe(false);
    for (const wrong of ['yes', say('no'), '<|START_RESPONSE|>yes', think('yes')])
      expect(allows({ ask, thoughts }, wrong), wrong).toBe(false);
    const f = {
      name: 'f',
      schema: '{"properties":{"a":{"const":1}},"required":["a"]}',
      strict: true,
      where: '',
    };
    const required = {
      tools: { format: 'cohere2', tools: [f], required: true, several: true },
      thoughts,
    };
    expect(allows(required, `${think('no')}${act(1, 1)}`)).toBe(true);
    for (const wrong of [act(2), say('yes')]) expect(allows(required, wrong), wrong).toBe(false);
    expect(allows({ ...required, tools: { ...required.tools, required: false } }, say('Rain.'))).toBe(true);
    expect(allows({ ...required, ask }, say('yes'))).toBe(false);
  });
});
