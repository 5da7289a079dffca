import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
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

const fixture = JSON.parse(await readFile('test/fixtures/text/chat-templates.json', 'utf8')) as Fixture;

const jsonPrompts = JSON.parse(await readFile('test/fixtures/text/json-prompts.json', 'utf8')) as {
  readonly calls: {
    readonly template: string;
    readonly cases: readonly { readonly arguments: string; readonly rendered: string }[];
  };
};

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

describe('ChatTemplate adapts messages to what the template reads', () => {
  const user = { role: 'user', content: 'Hi' };
  const call = (args: unknown) => ({
    role: 'assistant',
    content: null,
    tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: args } }],
  });

  it('joins text parts for a template that wants a string', () => {
    const template = new ChatTemplate("{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}");
    const parts = [
      { type: 'text', text: 'a' },
      { type: 'text', text: 'b' },
    ];
    expect(template.render([{ role: 'user', content: parts }])).toBe('<a\nb>');
  });

  it('gives a string as a text part to a template that reads parts only', () => {
    const template = new ChatTemplate(
      "{% for m in messages %}{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}",
    );
    expect(template.render([{ role: 'user', content: 'kept' }])).toBe('kept');
    expect(template.render([{ role: 'user', content: [{ type: 'text', text: 'kept' }] }])).toBe('kept');
  });

  it('leaves out tool calls and tools of which there are none', () => {
    const template = new ChatTemplate(
      "{% if tools is not none %}tools {% endif %}{% for m in messages %}{% if 'tool_calls' in m %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}[{{ m.tool_calls[0].function.name }}]{% else %}{{ m.content }};{% endif %}{% endfor %}",
    );
    const said = (tool_calls: unknown) => [user, { role: 'assistant', content: 'Yes', tool_calls }, user];
    for (const none of [null, [], undefined]) {
      expect(template.render(said(none), { tools: [] })).toBe('Hi;Yes;Hi;');
    }
    expect(template.render([user, call('{}')], { tools: [{ type: 'function' }] })).toBe('tools Hi;[f]');
  });

  it('gives arguments as an object to a template that wants one, as text to one that reads it', () => {
    const source = (write: string) =>
      `{% for m in messages %}{% for c in m.tool_calls or [] %}${write}{% endfor %}{% endfor %}`;
    const wantsObject = new ChatTemplate(source('{{ c.function.arguments | tojson }}'));
    const readsText = new ChatTemplate(
      source(
        '{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}',
      ),
    );
    const iterates = new ChatTemplate(
      source('{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}'),
    );
    const text = '{"a":1,  "b": [true]}';
    expect(wantsObject.render([user, call(text)])).toBe('{"a": 1, "b": [true]}');
    expect(iterates.render([user, call(text)])).toBe('a=1;b=[True];');
    expect(readsText.render([user, call(text)])).toBe(text);
    expect(readsText.render([user, call(JSON.parse(text))])).toBe('{"a": 1, "b": [true]}');
    const wantsText = new ChatTemplate(source("{{ '(' + c.function.arguments + ')' }}"));
    expect(wantsText.render([user, call(text)])).toBe(`(${text})`);
    expect(wantsText.render([user, call({ a: 1, b: ['é', null] })])).toBe('({"a": 1, "b": ["é", null]})');
  });

  it('takes nothing for no arguments, in every spelling', () => {
    const source = (write: string) =>
      `{% for m in messages %}{% for c in m.tool_calls or [] %}${write}{% endfor %}{% endfor %}`;
    const templates = [
      source('{{ c.function.arguments | tojson }}'),
      source("{{ '' + c.function.arguments }}"),
      source(
        '{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}',
      ),
      source('{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{{ "{}" }}'),
    ].map((text) => new ChatTemplate(text));
    for (const none of ['', ' \n', null, undefined, {}, '{}', 'null', [], '[]']) {
      for (const template of templates) expect(template.render([user, call(none)]), String(none)).toBe('{}');
    }
    const flat = new ChatTemplate(
      '{% for m in messages %}{% for c in m.tool_calls or [] %}{% set c = c.function or c %}{{ c.arguments | tojson }}{% endfor %}{% endfor %}',
    );
    expect(flat.render([{ role: 'assistant', tool_calls: [{ name: 'f', arguments: '' }] }])).toBe('{}');
  });

  it.each(jsonPrompts.calls.cases)('gives the arguments $arguments as Python reads them', (sample) => {
    const template = new ChatTemplate(jsonPrompts.calls.template);
    expect(template.render([user, call(sample.arguments)])).toBe(sample.rendered);
  });

  it.each([
    '{broken',
    "{'a': 1}",
    'city=Rome',
    '{"a": 1',
    '{"a": 1}}',
    '{"a": True}',
    '{"a": 01}',
    '[1]',
    '"{}"',
    '3',
  ])('refuses the arguments %s, naming the message', (args) => {
    for (const write of ['{{ c.function.arguments | tojson }}', "{{ '' + c.function.arguments }}", 'x']) {
      const template = new ChatTemplate(
        `{% for m in messages %}{% for c in m.tool_calls or [] %}${write}{% endfor %}{% endfor %}`,
      );
      expect(failure(() => template.render([user, call('{}'), call(args)]))).toMatchObject({
        code: 'invalid-messages',
        status: 400,
        where: 'messages[2].tool_calls[0].function.arguments',
        message: expect.stringContaining('messages[2]') as string,
      });
    }
  });

  it('gives developer messages as system messages where the template does not know them', () => {
    const messages = [{ role: 'developer', content: 'x' }, user];
    expect(new ChatTemplate('{{ messages[0].role }}').render(messages)).toBe('system');
    expect(new ChatTemplate("{{ messages[0].role }}{# developer #}{{ 'developer' }}").render(messages)).toBe(
      'developerdeveloper',
    );
  });

  it('gives results in the turn that called where the template has them there, and calls as objects', () => {
    // What Gemma 4's makes of a conversation, in short.
    const template = new ChatTemplate(
      "{% for m in messages %}<|turn>{{ m.role }}\n{% for c in m.tool_calls or [] %}call:{{ c.function.name }}{{ '{' }}{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{% for k, v in c.function.arguments | dictsort %}{{ k }}:{{ v }}{% endfor %}{% endif %}}{% endfor %}{% for r in m.tool_responses or [] %}<|tool_response>{{ r.name }}:{{ r.response | tojson }}{% endfor %}{{ m.content }}{% endfor %}",
    );
    const call = (id: string, name: string, args: string) => ({
      id,
      type: 'function',
      function: { name, arguments: args },
    });
    const result = (tool_call_id: string, content: unknown) => ({ role: 'tool', tool_call_id, content });
    const messages = [
      { role: 'user', content: 'Where?' },
      {
        role: 'assistant',
        content: 'I look.',
        tool_calls: [call('1', 'f', '{"a": 1}'), call('2', 'g', '{}')],
      },
      result('1', 'Rome'),
      result('2', '{"n": 1.50}'),
      { role: 'assistant', content: 'There.' },
    ];
    expect(template.render(messages)).toBe(
      '<|turn>user\nWhere?<|turn>assistant\nI look.<|turn>assistant\ncall:f{a:1}call:g{}<|tool_response>f:"Rome"<|tool_response>g:{"n": 1.5}<|turn>assistant\nThere.',
    );
  });

  it('gives calls and results as turns of their own where the template has observations', () => {
    const source =
      "{% for m in messages %}{% set meta = m.get('metadata', '') %}{% if m.role == 'user' %}<|user|>\n{{ m.content }}{% elif m.role == 'assistant' %}<|assistant|>{{ meta }}\n{{ m.content }}{% elif m.role == 'observation' %}<|observation|>\n{{ m.content }}{% endif %}{% endfor %}";
    const called = (content: string | null, ...calls: readonly [string, unknown][]) => ({
      role: 'assistant',
      content,
      tool_calls: calls.map(([name, args]) => ({ type: 'function', function: { name, arguments: args } })),
    });
    const messages = [
      { role: 'user', content: 'Where?' },
      called(null, ['find', '{"a": 1}'], ['find', { b: 1.5, c: 'é' }]),
      { role: 'tool', tool_call_id: 'x', content: 'Here.' },
      { role: 'tool', tool_call_id: 'y', content: 'There.' },
      called('Both.', ['stop', '']),
    ];
    expect(new ChatTemplate(source).render(messages)).toBe(
      '<|user|>\nWhere?<|assistant|>find\n{"a": 1}<|assistant|>find\n{"b": 1.5, "c": "é"}<|observation|>\nHere.<|observation|>\nThere.<|assistant|>\nBoth.<|assistant|>stop\n{}',
    );
    const other = new ChatTemplate('{% for m in messages %}{{ m.role }} {{ m.tool_calls }}{% endfor %}');
    expect(other.render([{ role: 'tool', content: 'x' }])).toBe('tool ');
  });

  it('finds reasoning under the names clients give it', () => {
    const names = ['reasoning_content', 'reasoning', 'thinking'];
    for (const read of names) {
      const template = new ChatTemplate(`{{ messages[0].${read} }}`);
      for (const name of names)
        expect(template.render([{ role: 'assistant', content: '', [name]: 'why' }])).toBe('why');
    }
  });

  it('takes an answer without content, as text that is empty where a call does not stand in for it', () => {
    const write = new ChatTemplate('{% for m in messages %}[{{ m.content }}]{% endfor %}');
    for (const content of [null, undefined, '', []])
      for (const more of [
        {},
        { tool_calls: null },
        { tool_calls: [] },
        { refusal: null },
        { audio: { id: 'a' } },
      ])
        expect(write.render([user, { role: 'assistant', content, ...more }])).toMatch(/\[\]$/);
    // A template that asks, as DeepSeek's do, sees that there is none; one that prints what it finds sees nothing.
    const calls =
      '{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments }}{% endfor %}';
    const asks = new ChatTemplate(
      `${calls}{% if m.content is none %}none{% else %}{{ m.content }}{% endif %};{% endfor %}`,
    );
    expect(asks.render([user, { ...call('{}'), content: null }])).toMatch(/none;$/);
    const prints = new ChatTemplate(`${calls}<{{ m.content }}>{% endfor %}`);
    expect(prints.render([user, { ...call('{}'), content: null }])).toMatch(/<>$/);
  });

  it('leaves out fields that are null, and passes on the others', () => {
    const keys = new ChatTemplate('{{ messages[0] | tojson }}');
    const nulls = {
      refusal: null,
      annotations: null,
      audio: null,
      function_call: null,
      tool_calls: null,
      name: null,
    };
    expect(keys.render([{ role: 'assistant', content: 'x', ...nulls, reasoning_content: null }])).toBe(
      '{"role": "assistant", "content": "x"}',
    );
    const said = { refusal: 'no', annotations: [{ a: 1 }], audio: { id: 'a' }, name: 'n', extra: 1 };
    expect(keys.render([{ role: 'assistant', content: 'x', ...said, tool_calls: [] }])).toBe(
      '{"role": "assistant", "content": "x", "refusal": "no", "annotations": [{"a": 1}], "audio": {"id": "a"}, "name": "n", "extra": 1}',
    );
  });

  it('reads refusals as text, and no hints to caches', () => {
    const content = [
      { type: 'text', text: 'a', cache_control: { type: 'ephemeral' } },
      { type: 'refusal', refusal: 'b' },
    ];
    const parts = new ChatTemplate('{% for p in messages[0].content %}{{ p | tojson }}{% endfor %}');
    expect(parts.render([{ role: 'assistant', content }])).toBe(
      '{"type": "text", "text": "a"}{"type": "text", "text": "b"}',
    );
    const text = new ChatTemplate('{{ messages[0].content }}');
    expect(text.render([{ role: 'assistant', content }])).toBe('a\nb');
  });

  it('tells what of a conversation the template does not read', () => {
    const template = new ChatTemplate(
      '{% for m in messages %}{{ m.content }}{{ m.refusal }}{{ m.tool_calls }}{% endfor %}{{ enable_thinking }}{{ tools }}',
    );
    const messages = [
      { role: 'user', content: 'x', name: 'Ann' },
      { role: 'assistant', content: null, refusal: 'r', annotations: [{}], audio: null, tool_calls: [] },
      { role: 'tool', content: 'x', tool_call_id: 'c', name: 'f' },
      { role: 'assistant', content: 'x', reasoning: 'why', annotations: [], function_call: {}, extra: 0 },
    ];
    const options = {
      kwargs: { enable_thinking: false, documents: [] },
      addGenerationPrompt: false,
      tools: [{ type: 'function', function: { name: 'f', strict: true } }],
    };
    expect(template.unread(messages, options).map(({ kind, where }) => `${kind} ${where}`)).toEqual([
      'field messages[0].name',
      'field messages[1].annotations',
      'field messages[3].reasoning',
      'field messages[3].extra',
      'variable chat_template_kwargs.documents',
      'variable add_generation_prompt',
    ]);
    expect(template.unread([user])).toEqual([]);
    // Thoughts reach the template under each of their names.
    const thinks = new ChatTemplate('{{ messages[0].thinking }}{{ messages[0].content }}');
    expect(thinks.unread([{ role: 'assistant', content: 'x', reasoning_content: 'why' }])).toEqual([]);
  });

  it('refuses tools that the template would not show', () => {
    const tools = [{ type: 'function', function: { name: 'f' } }];
    const blind = new ChatTemplate('{{ messages[0].content }}');
    expect(failure(() => blind.checkTools({ tools }))).toMatchObject({
      code: 'tools-unsupported',
      status: 400,
      where: 'tools',
    });
    blind.checkTools({ tools: [] });
    blind.checkTools({});
    new ChatTemplate('{{ messages[0].content }}{{ tools | tojson }}').checkTools({ tools });
    const named = new Map([
      ['default', '{{ messages[0].content }}'],
      ['tool_use', '{{ messages[0].content }}{{ tools | tojson }}'],
    ]);
    new ChatTemplate(named).checkTools({ tools });
  });

  it('does not change the messages it is given', () => {
    const messages = [{ role: 'developer', content: [{ type: 'text', text: 'x' }] }, call('{"a": 1}')];
    const before = structuredClone(messages);
    new ChatTemplate('{{ messages | tojson }}').render(messages);
    expect(messages).toEqual(before);
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
