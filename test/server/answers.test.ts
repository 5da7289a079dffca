import { describe, expect, it } from 'vitest';
import type { AppOptions } from '../../src/server/index.js';
import { type Body, type Choice, chunks, engine, make, post, startAnew, tools } from './scripted-app.js';
import type { ScriptedEngine } from './scripted-engine.js';

startAnew();

const call = (city: string): string =>
  `<tool_call>\n{"name": "weather", "arguments": {"city": "${city}"}}\n</tool_call>`;

describe('chat answers', () => {
  const whole = async (body: object, options: Partial<AppOptions> = {}): Promise<Choice[]> => {
    const response = await post(body, options);
    expect(response.status).toBe(200);
    return ((await response.json()) as Body).choices;
  };
  /** Puts the deltas of each choice together, as a client does. */
  const streamed = async (body: object, options: Partial<AppOptions> = {}): Promise<Choice[]> => {
    const choices: Choice[] = [];
    for (const chunk of await chunks(await post({ ...body, stream: true }, options))) {
      for (const { index, delta, finish_reason } of chunk.choices) {
        choices[index] ??= { index, message: {}, delta: {}, finish_reason: null };
        const { message } = choices[index];
        expect(choices[index].finish_reason).toBe(null);
        choices[index].finish_reason = finish_reason;
        if (delta.role !== undefined) message.role = delta.role;
        if (delta.content) message.content = (message.content ?? '') + delta.content;
        if (delta.reasoning_content !== undefined)
          message.reasoning_content = (message.reasoning_content ?? '') + delta.reasoning_content;
        for (const c of delta.tool_calls ?? []) {
          message.tool_calls ??= [];
          const known = message.tool_calls[c.index!];
          if (known === undefined) {
            expect(c.index).toBe(message.tool_calls.length);
            message.tool_calls.push(c);
          } else {
            expect(Object.keys(c)).toEqual(['index', 'function']);
            expect(Object.keys(c.function)).toEqual(['arguments']);
            known.function.arguments += c.function.arguments;
          }
        }
      }
    }
    return choices;
  };

  /** Both ways of asking, over cuts of the answer, have to give the same. */
  const answer = async (
    text: string,
    body: object = {},
    script: Partial<ScriptedEngine['script']> = {},
    options: Partial<AppOptions> = {},
  ): Promise<object> => {
    let first: object | undefined;
    const cuts = [[text], [...text], text.match(/.{1,5}/gs) ?? [], [text.slice(0, 20), text.slice(20)]];
    for (const pieces of cuts) {
      engine.script = { choices: [pieces], ...script };
      for (const ask of [whole, streamed]) {
        const [choice] = await ask(body, options);
        const { content, reasoning_content, tool_calls } = choice!.message;
        for (const c of tool_calls ?? [])
          expect([c.type, /^call_\w{24}$/.test(c.id)]).toEqual(['function', true]);
        const seen = {
          content: content ?? '',
          ...(reasoning_content === undefined ? {} : { reasoning: reasoning_content }),
          ...(tool_calls === undefined ? {} : { calls: tool_calls.map((c) => c.function) }),
          finish: choice!.finish_reason,
        };
        first ??= seen;
        expect(seen).toEqual(first);
      }
    }
    return first!;
  };
  const rome = { name: 'weather', arguments: '{"city": "Rome"}' };
  const oslo = { name: 'weather', arguments: '{"city": "Oslo"}' };

  it('delivers tool calls when there were tools', async () => {
    expect(await answer(`I look.\n${call('Rome')}\n${call('Oslo')}`, { tools })).toEqual({
      content: 'I look.',
      calls: [rome, oslo],
      finish: 'tool_calls',
    });
    engine.script = { choices: [[call('Rome')]] };
    const [choice] = await whole({ tools });
    expect(choice!.message).toEqual({
      role: 'assistant',
      content: null,
      refusal: null,
      tool_calls: [{ id: expect.any(String), type: 'function', function: rome }],
    });
  });

  it('leaves calls in the text without tools, and with tool_choice none', async () => {
    const text = `I look.\n${call('Rome')}\n`;
    const plain = { content: text, finish: 'stop' };
    expect(await answer(text)).toEqual(plain);
    expect(await answer(text, { tools: [] })).toEqual(plain);
    expect(await answer(text, { tools, tool_choice: 'none' })).toEqual(plain);
    expect(engine.requests.at(-1)).not.toHaveProperty('tools');
    expect(await answer(text, { tools, tool_choice: 'auto' })).toHaveProperty('calls');
  });

  it('leaves what is no call in the text, and says when an answer was cut off', async () => {
    const broken = '<tool_call>\n{"name": "weather", "arg\n</tool_call>';
    expect(await answer(broken, { tools })).toEqual({ content: broken, finish: 'stop' });
    const cut = `${call('Rome')}\nAnd`;
    expect(await answer(cut, { tools }, { finish: 'length' })).toEqual({
      content: '\nAnd',
      calls: [rome],
      finish: 'length',
    });
  });

  it('ends for a call that a stop string cut as any answer that it ends', async () => {
    const cut = call('Rome').slice(0, -'me"}}\n</tool_call>'.length);
    const calls = [{ name: 'weather', arguments: '{"city": "Ro' }];
    expect(await answer(cut, { tools }, { stopString: true })).toMatchObject({ calls, finish: 'stop' });
    // A call before it is whole, the last one is not.
    const second = await answer(`${call('Oslo')}\n${cut}`, { tools }, { stopString: true });
    expect(second).toMatchObject({ calls: [oslo, ...calls], finish: 'stop' });
    // The model's own mistake.
    expect(await answer(cut, { tools })).toMatchObject({ calls, finish: 'tool_calls' });
    expect(await answer(cut, { tools }, { finish: 'length' })).toMatchObject({ calls, finish: 'length' });
    // Behind its arguments there is nothing left to cut.
    const ended = await answer(call('Rome').replace('</tool_call>', ''), { tools }, { stopString: true });
    expect(ended).toMatchObject({ calls: [rome], finish: 'tool_calls' });
  });

  it('streams the arguments of a call as they come', async () => {
    engine.script = { choices: [['Hm.', ` ${call('Ro')}`.slice(0, -16), 'me', '"', '}}\n</tool', '_call>']] };
    const events = await chunks(await post({ tools, stream: true }));
    const deltas = events.flatMap(({ choices: [choice] }) => choice?.delta.tool_calls ?? []);
    expect(deltas).toEqual([
      {
        index: 0,
        id: expect.stringMatching(/^call_/) as string,
        type: 'function',
        function: { name: 'weather', arguments: '{"city": "Ro' },
      },
      ...['me', '"', '}'].map((text) => ({ index: 0, function: { arguments: text } })),
    ]);
    expect(events.at(-1)!.choices[0]!.finish_reason).toBe('tool_calls');
  });

  it('delivers arguments that were cut off, and says so', async () => {
    const cut = call('Rome').slice(0, -16);
    expect(await answer(cut, { tools }, { finish: 'length' })).toEqual({
      content: '',
      calls: [{ name: 'weather', arguments: '{"city": "Rome' }],
      finish: 'length',
    });
  });

  it('takes other spellings of a call for one', async () => {
    const spelled = (json: string): string => `<tool_call>${json}</tool_call>`;
    for (const text of [
      spelled('{"name": "weather", "parameters": {"city": "Rome"}}'),
      spelled('{"name": "weather", "arguments": "{\\"city\\": \\"Rome\\"}"}'),
      spelled('{"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}'),
      spelled('[{"name": "weather", "arguments": {"city": "Rome"}}]'),
    ])
      expect(await answer(text, { tools })).toEqual({ content: '', calls: [rome], finish: 'tool_calls' });
    for (const empty of ['null', '""', '{}'])
      expect(await answer(spelled(`{"name": "now", "arguments": ${empty}}`), { tools })).toEqual({
        content: '',
        calls: [{ name: 'now', arguments: '{}' }],
        finish: 'tool_calls',
      });
  });

  it('delivers one call at most without parallel calls', async () => {
    const text = `I look.\n${call('Rome')}\n${call('Oslo')} Done.`;
    expect(await answer(text, { tools, parallel_tool_calls: false })).toEqual({
      content: 'I look.',
      calls: [rome],
      finish: 'tool_calls',
    });
    expect(await answer(text, { tools, parallel_tool_calls: true })).toMatchObject({ calls: [rome, oslo] });
  });

  it('delivers thoughts apart, also those the prompt began, and calls after them', async () => {
    const thoughts = `<think>\nRome? ${call('Paris')}\n</think>\n\n`;
    expect(await answer(`${thoughts}It rains.`)).toEqual({
      reasoning: `Rome? ${call('Paris')}`,
      content: 'It rains.',
      finish: 'stop',
    });
    expect(await answer(`${thoughts}${call('Rome')}`, { tools })).toEqual({
      reasoning: `Rome? ${call('Paris')}`,
      content: '',
      calls: [rome],
      finish: 'tool_calls',
    });
    const prompt = '<|assistant|>\n<think>\n';
    expect(await answer('Hm.\n</think>\n\nIt rains.', {}, { prompt })).toEqual({
      reasoning: 'Hm.',
      content: 'It rains.',
      finish: 'stop',
    });
    expect(await answer('Hm and hm', {}, { prompt, finish: 'length' })).toEqual({
      reasoning: 'Hm and hm',
      content: '',
      finish: 'length',
    });
    expect(await answer('It <think>rains</think>.')).toEqual({
      content: 'It <think>rains</think>.',
      finish: 'stop',
    });
  });

  it('leaves thoughts in the content when asked to', async () => {
    const text = '<think>\nHm.\n</think>\n\nIt rains.';
    expect(await answer(text, {}, {}, { reasoningFormat: 'none' })).toEqual({
      content: text,
      finish: 'stop',
    });
  });

  it('takes every choice apart by itself', async () => {
    engine.script = {
      choices: [
        ['<think>a', '</think>', 'b'],
        [...call('Rome')],
        ['c', ' d'],
        ['<thi', 'nk>e</think>', call('Oslo')],
      ],
    };
    for (const ask of [whole, streamed]) {
      const choices = await ask({ n: 4, tools });
      expect(choices.map((c) => [c.index, c.finish_reason])).toEqual([
        [0, 'stop'],
        [1, 'tool_calls'],
        [2, 'stop'],
        [3, 'tool_calls'],
      ]);
      expect(choices[0]!.message).toMatchObject({ reasoning_content: 'a', content: 'b' });
      expect(choices[1]!.message.tool_calls![0]!.function).toEqual(rome);
      expect(choices[2]!.message.content).toBe('c d');
      expect(choices[3]!.message.reasoning_content).toBe('e');
      expect(choices[3]!.message.tool_calls![0]!.function).toEqual(oslo);
    }
  });

  it('takes nothing apart in text completions', async () => {
    const text = `<think>a</think>${call('Rome')}`;
    engine.script = { choices: [[...text]] };
    const response = await make().request('/v1/completions', { method: 'POST', body: '{"prompt": "x"}' });
    expect(((await response.json()) as Body).choices[0]).toMatchObject({ text, finish_reason: 'stop' });
  });

  it('streams usage only when asked, null until the end', async () => {
    engine.script = { choices: [['a', 'b']] };
    for (const chunk of await chunks(await post({ stream: true }))) expect(chunk).not.toHaveProperty('usage');
    const all = await chunks(await post({ stream: true, stream_options: { include_usage: true } }));
    const last = all.pop()!;
    expect(all.every((c) => c.usage === null)).toBe(true);
    expect([last.choices, last.usage]).toEqual([
      [],
      {
        prompt_tokens: 3,
        completion_tokens: 2,
        prompt_tokens_details: { cached_tokens: 0 },
        completion_tokens_details: { reasoning_tokens: 0 },
        total_tokens: 5,
      },
    ]);
  });
});
