/** The walk "add a tool format" of docs/extending.md: one object in the list, and calls marked by a special token are read. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { TOOL_FORMATS } from '../../src/text/formats/formats.js';
import { MarkedParser } from '../../src/text/formats/marked-parser.js';
import type { ToolFormat } from '../../src/text/formats/tool-format.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;

/** The tokenizer calls it special: it stands in no text but for those who name it. */
const MARK = '<|vision_start|>';
const MARK_ID = 4086;

/** A mark and nothing else is a call. */
const toy: ToolFormat = {
  name: 'toy',
  tokens: [MARK],
  detect: ({ template, hasToken }) => template.includes('<|im_start|>') && hasToken(MARK),
  callId: () => 'toy-id',
  parser: (tools) =>
    new MarkedParser({
      marks: [MARK],
      // biome-ignore lint/correctness/useYield: a call that is read when its mark is
      *read(_, sink) {
        sink.call('beep');
        sink.args(`{"tools": ${tools.length}}`);
        return '';
      },
    }),
};

const tools = [{ type: 'function', function: { name: 'beep', parameters: {} } }];
const request = {
  messages: [{ role: 'user', content: 'Beep.' }],
  tools,
  temperature: 0,
  maxTokens: 2,
  logitBias: { [MARK_ID]: 100 },
};

describe('a toy format of tool calls', () => {
  beforeAll(() => {
    TOOL_FORMATS.unshift(toy);
  });
  afterAll(() => {
    TOOL_FORMATS.shift();
  });

  it('is found, and reads the calls of a model whose mark is a special token', async () => {
    await using engine = await Engine.load(MODEL, { device: 'cpu', threads: 1, maxContext: 256 });
    expect(engine.info.model.toolFormat).toBe('toy');
    const { text, toolCalls, tokenIds } = await engine.chat(request).result;
    expect(tokenIds).toEqual([MARK_ID, MARK_ID]);
    const call = { id: 'toy-id', type: 'function', function: { name: 'beep', arguments: '{"tools": 1}' } };
    expect({ text, toolCalls }).toEqual({ text: '', toolCalls: [call, call] });
    // As the model wrote them; and without tools the mark is left out, as special tokens are.
    const asText = await engine.chat({ ...request, parseToolCalls: false }).result;
    expect(asText.text).toBe(MARK + MARK);
    const plain = await engine.chat({ ...request, tools: [] }).result;
    expect(plain).toMatchObject({ text: '', toolCalls: [] });
  });

  it('gives way to the one that the engine is told', async () => {
    await using engine = await Engine.load(MODEL, {
      device: 'cpu',
      threads: 1,
      maxContext: 256,
      toolFormat: 'hermes',
    });
    expect(engine.info.model.toolFormat).toBe('hermes');
    expect(await engine.chat(request).result).toMatchObject({ text: '', toolCalls: [] });
    await expect(Engine.load('no/such-model', { toolFormat: 'hermess' })).rejects.toMatchObject({
      code: 'invalid-option',
      message: expect.stringContaining('Did you mean `hermes`'),
    });
  });
});
