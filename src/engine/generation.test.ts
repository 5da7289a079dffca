import { describe, expect, it } from 'vitest';
import { KvantError, serializeError } from '../errors.js';
import {
  type AnswerParser,
  type AnswerRequest,
  addToolCalls,
  answerParsers,
  type ToolCall,
} from '../text/answer-parser.js';
import { HERMES } from '../text/formats/hermes.js';
import { CoalescedNotifier } from './coalesced-notifier.js';
import { GenerationStream } from './generation.js';
import type { WireEvent } from './messages.js';
import type { Delta } from './types.js';

function start(
  choices = 1,
  makeParser?: () => AnswerParser,
): { stream: GenerationStream; wakes: () => number } {
  const stream = new GenerationStream({
    requestId: 'r',
    promptTokenIds: [1, 2],
    seed: 0,
    choices,
    ...(makeParser === undefined ? {} : { makeParser }),
    receivedAt: 0,
    signal: undefined,
    onCancel: () => stream.end('cancelled', null),
  });
  stream.accept();
  let wakes = 0;
  stream.watch(() => wakes++);
  return { stream, wakes: () => wakes };
}

const end = (choice: number): WireEvent => ({
  request: 0,
  choice,
  ids: [9],
  text: '.',
  logprobs: null,
  finish: 'length',
  error: null,
  times: null,
  cached: 0,
});

describe('a chat that thinks and calls tools', () => {
  const tools = [{}];
  const say = (stream: GenerationStream, text: string, cut = 3): void => {
    for (let i = 0; i < text.length; i += cut) stream.receiveToken(0, i, text.slice(i, i + cut));
  };
  const answer =
    '<think>\nWhere?\n</think>\n\nI look. <tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n<tool_call>{"name": "now"}</tool_call>';
  const called = [
    { type: 'function', function: { name: 'weather', arguments: '{"city": "Rome"}' } },
    { type: 'function', function: { name: 'now', arguments: '{}' } },
  ];
  const chat = (request: AnswerRequest, choices = 1) =>
    start(choices, answerParsers(request, '<|assistant|>', HERMES));

  it('delivers them apart from the text, in the deltas and in the result', async () => {
    for (const cut of [1, 3, 1000]) {
      for (const eager of [true, false]) {
        const { stream } = chat({ tools });
        const deltas: Delta[] = [];
        const take = (): void => {
          for (let delta = stream.take(); delta !== null; delta = stream.take()) deltas.push(delta);
        };
        for (let i = 0; i < answer.length; i += cut) {
          say(stream, answer.slice(i, i + cut), cut);
          if (eager) take();
        }
        stream.receive({ ...end(0), text: '' });
        take();
        const { text, reasoning, toolCalls, choices } = await stream.result;
        expect({ text, reasoning }).toEqual({ text: 'I look.', reasoning: 'Where?' });
        expect(toolCalls).toEqual(
          called.map((call) => ({ id: expect.stringMatching(/^call_\w{24}$/), ...call })),
        );
        expect(new Set(toolCalls.map(({ id }) => id)).size).toBe(2);
        expect(choices[0]).toMatchObject({ text, reasoning, toolCalls });
        expect(deltas.map((delta) => delta.text).join('')).toBe(text);
        expect(deltas.map((delta) => delta.reasoning ?? '').join('')).toBe(reasoning);
        const put: ToolCall[] = [];
        for (const delta of deltas) addToolCalls(put, delta.toolCalls ?? []);
        expect(put).toEqual(toolCalls);
        if (!eager) expect(deltas).toHaveLength(1);
      }
    }
  });

  it('leaves in the text what nobody asks for', async () => {
    for (const [request, expected] of [
      [
        { tools, parseToolCalls: false },
        { reasoning: 'Where?', text: answer.slice(answer.indexOf('I look')) },
      ],
      [{}, { reasoning: 'Where?', text: answer.slice(answer.indexOf('I look')) }],
      [{ parseReasoning: false }, { reasoning: '', text: answer }],
    ] as const) {
      const { stream } = chat(request);
      say(stream, answer);
      stream.receive({ ...end(0), text: '' });
      expect(await stream.result).toMatchObject({ ...expected, toolCalls: [] });
    }
    const { stream } = chat({ tools, parallelToolCalls: false });
    say(stream, answer);
    stream.receive({ ...end(0), text: '' });
    expect((await stream.result).toolCalls).toMatchObject([called[0]]);
  });

  it('gives what was held back when it is cancelled', async () => {
    const { stream } = chat({ tools });
    say(stream, 'a <tool_call>{"name": "f", ');
    stream.cancel();
    expect(await stream.result).toMatchObject({
      text: 'a <tool_call>{"name": "f", ',
      toolCalls: [],
      finishReason: 'cancelled',
    });
  });
});

describe('a reader that takes without waiting', () => {
  it('is woken once for what came, and gets it in one piece', async () => {
    const { stream, wakes } = start();
    expect(stream.take()).toBeNull();
    stream.receiveToken(0, 5, 'a');
    stream.receiveToken(0, 6, 'b');
    expect(wakes()).toBe(0);
    stream.tell();
    stream.tell();
    expect(wakes()).toBe(1);
    expect(stream.take()).toEqual({ choice: 0, text: 'ab', tokenIds: [5, 6], finishReason: null });
    expect(stream.take()).toBeNull();
    stream.receiveToken(0, 7, '');
    stream.receive(end(0));
    stream.tell();
    expect(wakes()).toBe(2);
    expect(stream.take()).toEqual({ choice: 0, text: '.', tokenIds: [7, 9], finishReason: 'length' });
    expect(stream.take()).toBeNull();
    // What comes after the end is nobody's.
    stream.receiveToken(0, 8, 'x');
    expect(stream.take()).toBeNull();
    expect((await stream.result).tokenIds).toEqual([5, 6, 7, 9]);
  });

  it('gets the choices one after another', () => {
    const { stream } = start(3);
    stream.receiveToken(2, 5, 'c');
    stream.receiveToken(0, 6, 'a');
    const deltas = [stream.take(), stream.take(), stream.take()];
    expect(deltas.map((delta) => delta?.choice)).toEqual([0, 2, undefined]);
  });

  it('hears of a cancellation and of a refusal', () => {
    const { stream, wakes } = start();
    stream.cancel();
    expect(wakes()).toBe(1);
    expect(stream.take()?.finishReason).toBe('cancelled');
    const other = start();
    other.stream.refuse(new KvantError('no', 'No.', { kind: 'invalid-request' }));
    expect(other.wakes()).toBe(1);
    expect(() => other.stream.take()).toThrow('No.');
  });

  it('is woken no more when it has gone', () => {
    const { stream, wakes } = start();
    stream.watch(null);
    stream.receiveToken(0, 5, 'a');
    stream.tell();
    expect(wakes()).toBe(0);
  });

  it('and one that iterates get the same', async () => {
    const { stream } = start();
    const seen: Delta[] = [];
    const reading = (async () => {
      for await (const delta of stream) seen.push(delta);
    })();
    await Promise.resolve();
    stream.receiveToken(0, 5, 'a');
    stream.tell();
    await new Promise((resolve) => setImmediate(resolve));
    stream.receive(end(0));
    stream.tell();
    await reading;
    expect(seen).toEqual([
      { choice: 0, text: 'a', tokenIds: [5], finishReason: null },
      { choice: 0, text: '.', tokenIds: [9], finishReason: 'length' },
    ]);
  });
});

it('tells its readers, and others, when a watcher throws', async () => {
  const thrown: unknown[] = [];
  const before = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', (error) => thrown.push(error));
  try {
    const { stream } = start();
    const other = start();
    stream.watch(() => {
      throw new Error('mine');
    });
    const notifier = new CoalescedNotifier();
    const texts = Promise.all(
      [stream, other.stream].map(async (one) => {
        let text = '';
        for await (const delta of one) text += delta.text;
        return text;
      }),
    );
    for (const one of [stream, other.stream]) {
      one.receive(end(0));
      notifier.tell(one);
    }
    expect(await texts).toEqual(['.', '.']);
    expect(other.wakes()).toBe(1);
    expect(thrown).toEqual([new Error('mine')]);
  } finally {
    process.removeAllListeners('uncaughtException');
    for (const listener of before) process.on('uncaughtException', listener);
  }
});

describe('the turn of a request', () => {
  const late = new KvantError('queue-timeout', 'Too late.', { kind: 'overloaded' });
  const settled = async ({ started }: GenerationStream): Promise<string> =>
    Promise.race([
      started.then(
        () => 'begun',
        (error: KvantError) => error.code,
      ),
      new Promise<string>((resolve) => setImmediate(resolve, 'waits')),
    ]);
  const waiting = (): GenerationStream => {
    const stream = new GenerationStream({
      requestId: 'r',
      promptTokenIds: [1],
      seed: 0,
      choices: 2,
      receivedAt: 0,
      signal: undefined,
      onCancel: () => stream.end('cancelled', null),
    });
    stream.awaitTurn();
    stream.accept();
    return stream;
  };
  const event: WireEvent = { ...end(1), ids: [], text: '', finish: null };

  it('is known to come once it is taken in, where it cannot be too late', async () => {
    expect(await settled(start(2).stream)).toBe('begun');
  });

  it('is told by the first event of any choice, else', async () => {
    const stream = waiting();
    expect(await settled(stream)).toBe('waits');
    await stream.accepted;
    stream.receive(event);
    expect(await settled(stream)).toBe('begun');
    // What says so says nothing to readers.
    expect(stream.take()).toBeNull();
  });

  it('has failed with what ended the first choice before it', async () => {
    const stream = waiting();
    stream.receive({ ...event, finish: 'error', error: serializeError(late) });
    expect(await settled(stream)).toBe('queue-timeout');
    for (const over of [
      (s: GenerationStream) => s.refuse(late),
      (s: GenerationStream) => s.end('error', late),
      (s: GenerationStream) => s.fail(late),
    ]) {
      const other = waiting();
      over(other);
      expect(await settled(other)).toBe('queue-timeout');
    }
  });

  it('needs none where it was cancelled', async () => {
    const stream = waiting();
    stream.cancel();
    expect(await settled(stream)).toBe('begun');
  });
});
