import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readPacked } from '../../test/fixtures/read-packed.js';
import { ChatTemplate, type RenderOptions } from './chat-template.js';
import { Tokenizer } from './tokenizer.js';

interface Case {
  readonly name: string;
  readonly messages: readonly unknown[];
  readonly tools?: readonly unknown[];
  readonly kwargs?: Record<string, unknown>;
  readonly addGenerationPrompt?: boolean;
}
interface Fixture {
  readonly special: Record<string, string>;
  readonly chats: readonly (Case & { readonly rendered: string; readonly ids: readonly number[] })[];
  readonly templates: readonly (Case & {
    readonly template: string;
    readonly rendered?: string;
    readonly error?: string;
    readonly raised?: boolean;
  })[];
}

const fixture = readPacked('test/fixtures/text/chat-templates.json.gz') as Fixture;

function optionsOf(sample: Case): RenderOptions {
  return { tools: sample.tools, kwargs: sample.kwargs, addGenerationPrompt: sample.addGenerationPrompt };
}

function failure(action: () => unknown): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

describe('ChatTemplate of demo-text', () => {
  let template: ChatTemplate;
  let tokenizer: Tokenizer;
  beforeAll(async () => {
    template = await ChatTemplate.load('models/demo-text');
    tokenizer = await Tokenizer.load('models/demo-text');
  });

  it.each(fixture.chats)('renders "$name" as the reference does', (sample) => {
    const text = template.render(sample.messages, optionsOf(sample));
    expect(text).toBe(sample.rendered);
    expect([...tokenizer.encode(text, { addSpecialTokens: false })]).toEqual(sample.ids);
  });
});

describe('ChatTemplate with templates in the habits of the wild', () => {
  it.each(fixture.templates)('$name: $messages', (sample) => {
    const template = new ChatTemplate(sample.template, fixture.special);
    if (sample.rendered !== undefined) {
      expect(template.render(sample.messages, optionsOf(sample))).toBe(sample.rendered);
    } else {
      const error = failure(() => template.render(sample.messages, optionsOf(sample)));
      expect(error).toMatchObject({
        code: sample.raised === true ? 'chat-template-raised' : 'chat-template-failed',
        status: 400,
        message: expect.stringContaining(
          sample.raised === true ? (sample.error ?? '?') : 'cannot render',
        ) as string,
      });
    }
  });

  it('tells the time', () => {
    const template = new ChatTemplate("{{ strftime_now('%d %b %Y') }}");
    expect(template.render([{ role: 'user', content: '' }], { now: new Date(2024, 1, 5) })).toBe(
      '05 Feb 2024',
    );
  });

  it('lets a variable carry the name of a global', () => {
    const template = new ChatTemplate('{{ range }}{{ namespace }}');
    expect(template.render([{ role: 'user', content: '' }], { kwargs: { range: 'r', namespace: 1 } })).toBe(
      'r1',
    );
  });
});

describe('ChatTemplate input checks', () => {
  const template = new ChatTemplate('{% for m in messages %}{{ m.content }}{% endfor %}');

  it.each([
    ['no list', 'hello', 'messages'],
    ['an empty list', [], 'messages'],
    ['no object', ['hello'], 'messages[0]'],
    ['no role', [{ content: 'x' }], 'messages[0].role'],
    ['no content', [{ role: 'user' }], 'messages[0].content'],
    ['a null content', [{ role: 'user', content: null }], 'messages[0].content'],
    ['a number', [{ role: 'user', content: 5 }], 'messages[0].content'],
    ['an unknown part', [{ role: 'user', content: [{ type: 'nope' }] }], 'messages[0].content[0]'],
    ['a part without text', [{ role: 'user', content: [{ type: 'text' }] }], 'messages[0].content[0]'],
    [
      'a field of a part',
      [{ role: 'user', content: [{ type: 'text', text: 'x', txt: 1 }] }],
      'messages[0].content[0].txt',
    ],
    [
      'a refusal of a user',
      [{ role: 'user', content: [{ type: 'refusal', refusal: 'x' }] }],
      'messages[0].content[0]',
    ],
    ['a name that is none', [{ role: 'user', content: 'x', name: 5 }], 'messages[0].name'],
    ['an id that is none', [{ role: 'tool', content: 'x', tool_call_id: 5 }], 'messages[0].tool_call_id'],
    ['a refusal that is none', [{ role: 'assistant', content: 'x', refusal: true }], 'messages[0].refusal'],
    ['thoughts that are none', [{ role: 'assistant', content: 'x', reasoning: {} }], 'messages[0].reasoning'],
    [
      'notes that are none',
      [{ role: 'assistant', content: 'x', annotations: {} }],
      'messages[0].annotations',
    ],
    ['sound that is none', [{ role: 'assistant', content: 'x', audio: 'a' }], 'messages[0].audio'],
    ['an old call that is none', [{ role: 'assistant', function_call: 'f' }], 'messages[0].function_call'],
    [
      'a call with an id that is none',
      [{ role: 'assistant', tool_calls: [{ id: 5, function: { name: 'f' } }] }],
      'messages[0].tool_calls[0].id',
    ],
    ['tool calls that are no list', [{ role: 'assistant', tool_calls: {} }], 'messages[0].tool_calls'],
    ['a nameless call', [{ role: 'assistant', tool_calls: [{ function: {} }] }], 'messages[0].tool_calls[0]'],
    [
      'arguments of the wrong kind',
      [{ role: 'assistant', tool_calls: [{ function: { name: 'f', arguments: 3 } }] }],
      'messages[0].tool_calls[0].function.arguments',
    ],
  ])('refuses %s', (_what, messages, where) => {
    expect(failure(() => template.render(messages))).toMatchObject({
      name: 'KvantError',
      code: 'invalid-messages',
      status: 400,
      where,
    });
  });

  it.each(['image_url', 'image', 'input_image', 'input_audio', 'video_url', 'file'])(
    'refuses %s, naming it',
    (type) => {
      const content = [{ type: 'text', text: 'what is this?' }, { type }];
      expect(failure(() => template.render([{ role: 'user', content }]))).toMatchObject({
        code: 'unsupported-content',
        status: 400,
        where: 'messages[0].content[1]',
        message: expect.stringContaining(`"${type}"`) as string,
      });
    },
  );

  it('refuses bad tools and variables', () => {
    const messages = [{ role: 'user', content: 'x' }];
    expect(failure(() => template.render(messages, { tools: ['x'] }))).toMatchObject({
      code: 'invalid-tools',
      where: 'tools[0]',
    });
    expect(failure(() => template.render(messages, { kwargs: { messages: [] } }))).toMatchObject({
      code: 'invalid-template-kwargs',
      where: 'chat_template_kwargs.messages',
    });
    expect(failure(() => template.render(messages, { kwargs: { 'a b': 1 } }))).toMatchObject({
      code: 'invalid-template-kwargs',
    });
  });

  it('refuses what is nested without end, and takes what Python takes', () => {
    const nested = (levels: number): unknown =>
      JSON.parse('{"a":['.repeat(levels / 2) + ']}'.repeat(levels / 2));
    const dump = new ChatTemplate('{{ tools | tojson }}{{ messages[0].extra }}{{ v }}');
    const messages = (extra: unknown) => [{ role: 'user', content: 'x', extra }];
    const around: { self?: unknown } = {};
    around.self = around;
    for (const deep of [nested(1002), nested(100_000), around]) {
      for (const [where, render] of [
        ['tools', () => dump.render(messages(1), { tools: [{ parameters: deep }] })],
        ['messages', () => dump.render(messages(deep))],
        ['chat_template_kwargs', () => dump.render(messages(1), { kwargs: { v: deep } })],
      ] as const)
        expect(failure(render)).toMatchObject({ code: 'nested-too-deeply', status: 400, where });
    }
    const text = '{"a":['.repeat(1000) + ']}'.repeat(1000);
    expect(
      failure(() => dump.render([{ role: 'assistant', tool_calls: [{ name: 'f', arguments: text }] }])),
    ).toMatchObject({ where: 'messages[0].tool_calls[0].arguments' });
    const deep = nested(990);
    const written = JSON.stringify(deep).replaceAll(':', ': ');
    expect(dump.render(messages(deep), { tools: [{ parameters: deep }], kwargs: { v: deep } })).toBe(
      `[{"parameters": ${written}}]${written.replaceAll('"', "'").repeat(2)}`,
    );
  });

  it('reports a template that cannot go on', () => {
    const failing = new ChatTemplate("{{ 'x' + messages[0].nothing }}");
    expect(failure(() => failing.render([{ role: 'user', content: 'x' }]))).toMatchObject({
      code: 'chat-template-failed',
      status: 400,
    });
  });

  it('refuses a broken template when it is made', () => {
    for (const source of ['{% if %}', '{% for m in messages %}', '{{ unclosed', '{{ "open }}']) {
      expect(failure(() => new ChatTemplate(source))).toMatchObject({
        code: 'chat-template-broken',
        kind: 'model',
      });
    }
  });
});

describe('ChatTemplate.find', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-template-'));
    folders.push(folder);
  });
  const folders: string[] = [];
  afterAll(() => Promise.all(folders.map((name) => rm(name, { recursive: true }))));
  const config = (value: object) => writeFile(join(folder, 'tokenizer_config.json'), JSON.stringify(value));
  const messages = [{ role: 'user', content: 'Hi' }];

  it('finds none in the folder of a base model', async () => {
    expect(await ChatTemplate.find(folder)).toBeUndefined();
    await config({ chat_template: null });
    expect(await ChatTemplate.find(folder)).toBeUndefined();
    await expect(ChatTemplate.load(folder)).rejects.toMatchObject({
      code: 'chat-template-missing',
      fix: expect.stringContaining('base model') as string,
    });
  });

  it('gives templates the special tokens that the tokenizer knows from other files', async () => {
    await config({ chat_template: '{{ bos_token }}|{{ eos_token }}' });
    await writeFile(join(folder, 'special_tokens_map.json'), JSON.stringify({ bos_token: '<s>' }));
    await writeFile(
      join(folder, 'tokenizer.json'),
      JSON.stringify({ model: { type: 'BPE', vocab: { a: 0 }, merges: [] } }),
    );
    const { config: stated } = await Tokenizer.load(folder, { lazily: true });
    expect((await ChatTemplate.find(folder, stated))!.render(messages)).toBe('<s>|');
  });

  it('prefers chat_template.jinja, then chat_template.json, then tokenizer_config.json', async () => {
    await config({
      chat_template: 'config {{ bos_token }}{{ eos_token }}',
      bos_token: '<s>',
      eos_token: { content: '</s>' },
    });
    expect((await ChatTemplate.load(folder)).render(messages)).toBe('config <s></s>');
    await writeFile(join(folder, 'chat_template.json'), JSON.stringify({ chat_template: 'json' }));
    expect((await ChatTemplate.load(folder)).render(messages)).toBe('json');
    await writeFile(join(folder, 'chat_template.jinja'), 'file {{ bos_token }}\n');
    expect((await ChatTemplate.load(folder)).render(messages)).toBe('file <s>');
  });

  it('chooses among named templates', async () => {
    await config({
      chat_template: [
        { name: 'default', template: 'plain' },
        { name: 'tool_use', template: 'tools' },
      ],
    });
    const template = await ChatTemplate.load(folder);
    expect(template.names).toEqual(['default', 'tool_use']);
    expect(template.render(messages)).toBe('plain');
    expect(template.render(messages, { tools: [] })).toBe('plain');
    expect(template.render(messages, { tools: [{}] })).toBe('tools');
    expect(template.render(messages, { name: 'tool_use' })).toBe('tools');
    expect(failure(() => template.render(messages, { name: 'rag' }))).toMatchObject({
      code: 'chat-template-missing',
      fix: 'Name one of: default, tool_use.',
    });
  });

  it('reads additional templates beside chat_template.jinja', async () => {
    await writeFile(join(folder, 'chat_template.jinja'), 'plain');
    await mkdir(join(folder, 'additional_chat_templates'));
    await writeFile(join(folder, 'additional_chat_templates', 'tool_use.jinja'), 'tools');
    expect((await ChatTemplate.load(folder)).render(messages, { tools: [{}] })).toBe('tools');
  });

  it('refuses broken files', async () => {
    await config({ chat_template: 5 });
    await expect(ChatTemplate.load(folder)).rejects.toMatchObject({ code: 'chat-template-broken' });
    await config({ chat_template: '{% if %}' });
    await expect(ChatTemplate.load(folder)).rejects.toMatchObject({
      code: 'chat-template-broken',
      where: join(folder, 'tokenizer_config.json'),
    });
  });
});
