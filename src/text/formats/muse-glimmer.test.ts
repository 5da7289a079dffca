/** Whole answers of Muse Glimmer, read however they are cut. */
import { describe, expect, it } from 'vitest';
import { readsWith } from '../../../test/setup/read-answers.js';
import { compileGrammar } from '../../grammar/compile.js';
import { Budget } from '../../grammar/limits.js';
import { Matcher, type ParserState } from '../../grammar/matcher.js';
import { type AnswerAsk, answerGrammar } from '../answer-grammar.js';
import { MUSE_GLIMMER } from './muse-glimmer.js';

const tools = [
  { type: 'function', function: { name: 'f', parameters: { properties: { a: { type: 'integer' } } } } },
];
const PROMPT = '<|eot|><|start|>assistant';

const expectRead = readsWith(MUSE_GLIMMER, { tools }, PROMPT);

const think = (text: string): string => ` to=self<|message|>${text}<|eom|><|start|>assistant`;
const say = (text: string): string => ` to=user<|message|>${text}`;
const call = (a: number, name = 'f'): string =>
  ` to=${name}<|message|><atem:function_calls>\n<atem:invoke name="${name}">\n<atem:parameter name="a">${a}</atem:parameter>\n</atem:invoke>\n</atem:function_calls>`;
const called = (a: number) => ({ name: 'f', arguments: `{"a": ${a}}` });

describe('Muse Glimmer', () => {
  it('has thoughts, calls and what is said in messages of their own', () => {
    expectRead(`${think('Rome?')}${say('It rains. < |')}`, { reasoning: 'Rome?', text: 'It rains. < |' });
    expectRead(`${think('A')}${call(1)}<|eom|><|start|>assistant${think('B')}${call(2, 'f.f')}`, {
      reasoning: 'A\n\nB',
      calls: [called(1), { ...called(2), name: 'f.f' }].map((one) => ({ ...one, name: 'f' })),
    });
    // A call that is thought of, or spoken of, is none.
    expectRead(`${think(call(1).slice(18))}${say('<atem:invoke name="f">')}`, {
      reasoning: call(1).slice(18),
      text: '<atem:invoke name="f">',
    });
  });

  it('calls by a message to a tool that has no tags', () => {
    expectRead(' to=f<|message|>', { calls: [{ name: 'f', arguments: '{}' }] });
    expectRead(' to=f.f<|message|>{"a": 1}<|eot|>', { calls: [called(1)] });
    expectRead(`${think('A')} to=f<|message|><|eom|><|start|>assistant${say('Yes.')}`, {
      reasoning: 'A',
      text: 'Yes.',
      calls: [{ name: 'f', arguments: '{}' }],
    });
  });

  it('goes on from where the prompt has begun a message', () => {
    const begun = `${PROMPT} to=self<|message|>Let me`;
    expectRead(`see.<|eom|><|start|>assistant${say('Yes.')}`, { reasoning: 'see.', text: 'Yes.' }, {}, begun);
    expect(MUSE_GLIMMER.frame!.begins(PROMPT)).toBe('message');
    expect(MUSE_GLIMMER.frame!.begins(begun)).toBe('thoughts');
  });

  it('keeps in the text what is not to be taken apart', () => {
    const written = `${think('Rome?')}${call(1)}`;
    const text = call(1);
    expectRead(written, { reasoning: 'Rome?', text }, { tools, parseToolCalls: false });
    const two = `${call(1)}<|eom|><|start|>assistant${call(2)}`;
    expectRead(two, { calls: [called(1)] }, { tools, parallelToolCalls: false });
  });

  it('is held to messages with calls or a form that fit', () => {
    const marks = ['<|start|>', '<|message|>', '<|eom|>'];
    const clues = {
      template: '',
      idOf: (token: string) => (marks.includes(token) ? 1000 + marks.indexOf(token) : undefined),
      hasToken: (token: string) => marks.includes(token),
    };
    const allows = (asked: Partial<AnswerAsk>, answer: string): boolean => {
      const whole = { ask: null, tools: null, thoughts: null, frame: 'muse_glimmer', ...asked };
      const matcher = new Matcher(compileGrammar(answerGrammar(whole, clues, new Budget())));
      let state: ParserState | null = matcher.start;
      for (const part of answer.split(/(<\|\w+\|>)/)) {
        const id = clues.idOf(part);
        if (id !== undefined) state = state && matcher.stepToken(state, id);
        else for (const byte of Buffer.from(part)) state = state && matcher.step(state, byte);
      }
      return state?.done ?? false;
    };
    const thoughts = { state: 'allowed', marks: MUSE_GLIMMER.frame!.thoughts } as const;
    const ask = { kind: 'choice', choices: ['yes'] } as const;
    expect(allows({ ask, thoughts }, `${think('no')}${say('yes')}`)).toBe(true);
    expect(allows({ ask, thoughts }, say('no'))).toBe(false);
    expect(allows({ ask }, `${think('no')}${say('yes')}`)).toBe(false);
    const f = {
      name: 'f',
      schema: '{"properties":{"a":{"const":1}},"required":["a"]}',
      strict: true,
      where: '',
    };
    const required = {
      tools: { format: 'muse_glimmer', tools: [f], required: true, several: true },
      thoughts,
    };
    const two = `${call(1)}<|eom|><|start|>assistant${call(1)}`;
    expect(allows(required, `${think('no')}${two}`)).toBe(true);
    expect(allows(required, call(2))).toBe(false);
    expect(allows(required, call(1, 'g'))).toBe(false);
    expect(allows(required, say('yes'))).toBe(false);
    expect(allows({ ...required, tools: { ...required.tools, required: false } }, say('Rain.'))).toBe(true);
  });
});
