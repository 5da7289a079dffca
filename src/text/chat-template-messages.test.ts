import { describe, expect, it } from 'vitest';
import { readPacked } from '../../test/fixtures/read-packed.js';
import { ChatTemplate } from './chat-template.js';

const jsonPrompts = readPacked('test/fixtures/text/json-prompts.json.br') as {
  readonly calls: {
    readonly template: string;
    readonly cases: readonly { readonly arguments: string; readonly rendered: string }[];
  };
};

function failure(action: () => unknown): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

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

  it('gives an object where a text would come out otherwise, also beside words or thoughts alone', () => {
    const source = (write: string) =>
      `{% for m in messages %}{% for c in m.tool_calls or [] %}${write}{% endfor %}{% endfor %}`;
    const write =
      '{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}';
    // As Kimi K3 has it: a text is left whole, an object taken apart.
    const apart = new ChatTemplate(
      source(
        '{% if c.function.arguments is string %}<json>{{ c.function.arguments }}</json>{% else %}{% for k, v in c.function.arguments.items() %}<arg {{ k }}>{{ v }}</arg>{% endfor %}{% endif %}',
      ),
    );
    expect(apart.render([user, call('{"a": 1.50}')])).toBe('<arg a>1.5</arg>');
    // As Command A's reasoning has it: in one of two places the text is quoted once more.
    for (const field of ['m.content', 'm.reasoning_content']) {
      const template = new ChatTemplate(
        source(`{% if ${field} %}{{ c.function.arguments | tojson }}{% else %}${write}{% endif %}`),
      );
      expect(template.render([user, { ...call('{"a": 1}'), content: 'x', reasoning_content: 'y' }])).toBe(
        '{"a": 1}',
      );
    }
    // An object that would be printed as Python prints it.
    const printed = new ChatTemplate(source('{{ c.function.arguments }}'));
    expect(printed.render([user, call({ a: true })])).toBe('{"a": true}');
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
