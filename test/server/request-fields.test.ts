/** Every field of a request is used, refused by name, or known to have no effect. */

import { readFile } from 'node:fs/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import type { ChatRequest } from '../../src/engine/types.js';
import { FOREIGN_FIELDS } from '../../src/server/foreign-fields.js';
import { createApp } from '../../src/server/index.js';
import { requestFields } from '../../src/server/openai/schemas.js';
import { ScriptedEngine } from './scripted-engine.js';

const messages = [{ role: 'user', content: 'Hi' }];
const tool = { type: 'function', function: { name: 'f', parameters: { type: 'object' } } };

interface Refusal {
  readonly param: string | null;
  readonly code: string;
  readonly message: string;
  readonly fix?: string;
}

describe('fields of requests', () => {
  let engine: ScriptedEngine;
  beforeEach(() => {
    engine = new ScriptedEngine();
  });
  const post = (path: string, body: object): Promise<Response> =>
    Promise.resolve(
      createApp({ engine }).request(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    );
  const chat = (more: object): Promise<Response> => post('/v1/chat/completions', { messages, ...more });
  const complete = (more: object): Promise<Response> => post('/v1/completions', { prompt: 'x', ...more });
  const refusal = async (response: Promise<Response>): Promise<Refusal> => {
    const answer = await response;
    const { error } = (await answer.json()) as { error: Refusal };
    expect(answer.status, JSON.stringify(error)).toBe(400);
    return error;
  };

  it('that are labels are checked and have no effect', async () => {
    const labels = {
      user: 'u',
      safety_identifier: 's'.repeat(64),
      prompt_cache_key: 'k',
      session_id: 'x',
      metadata: Object.fromEntries(
        Array.from({ length: 16 }, (_, i) => [`${i}`.padEnd(64, 'k'), '🦜'.repeat(512)]),
      ),
      service_tier: 'auto',
      prompt_cache_retention: '24h',
      prompt_cache_options: { mode: 'explicit', ttl: '30m' },
      store: false,
    };
    for (const send of [chat, complete]) {
      for (const [name, value] of Object.entries(labels)) {
        expect((await send({ [name]: value })).status, name).toBe(200);
        expect((await send({ [name]: null })).status, name).toBe(200);
        expect(engine.requests.at(-1)).not.toHaveProperty(name);
      }
      for (const [name, value, param] of [
        ['user', 5],
        ['user', 'u'.repeat(513)],
        ['safety_identifier', 's'.repeat(65)],
        ['prompt_cache_key', {}],
        ['metadata', 'm'],
        ['metadata', ['m']],
        ['metadata', Object.fromEntries(Array.from({ length: 17 }, (_, i) => [i, '']))],
        ['metadata', { ['k'.repeat(65)]: 'v' }],
        ['metadata', { k: 'v'.repeat(513) }, 'metadata.k'],
        ['metadata', { k: 5 }, 'metadata.k'],
        ['metadata', { k: { deep: 1 } }, 'metadata.k'],
        ['service_tier', 'gold'],
        ['prompt_cache_retention', '2h'],
        ['prompt_cache_options', { mode: 'loud' }, 'prompt_cache_options.mode'],
        ['prompt_cache_options', { made_up: 1 }, 'prompt_cache_options.made_up'],
        ['store', true],
      ] as const)
        expect((await refusal(send({ [name]: value }))).param, JSON.stringify(value).slice(0, 99)).toBe(
          param ?? name,
        );
    }
    expect((await chat({ prediction: { type: 'content', content: 'x' } })).status).toBe(200);
    expect((await refusal(chat({ prediction: { type: 'content', content: 'x', x: 1 } }))).param).toBe(
      'prediction.x',
    );
    expect((await refusal(chat({ prediction: { type: 'other' } }))).param).toBe('prediction.type');
  });

  it('that kvant does not act on are taken where they ask for nothing, else refused with what to do', async () => {
    for (const [name, nothing, something] of [
      ['verbosity', 'medium', 'low'],
      ['functions', [], [{ name: 'f' }]],
      ['function_call', 'auto', { name: 'f' }],
      ['audio', null, { voice: 'alloy', format: 'wav' }],
      ['web_search_options', null, {}],
      ['moderation', null, { model: 'm' }],
      ['use_beam_search', false, true],
      ['skip_special_tokens', true, false],
      ['include_stop_str_in_output', false, true],
      ['return_token_ids', false, true],
      ['truncate_prompt_tokens', null, 100],
      ['documents', [], [{ text: 'x' }]],
      ['chat_template', null, '{{ x }}'],
      ['continue_final_message', false, true],
      ['guided_choice', null, ['a']],
      ['guided_json', null, { type: 'object' }],
      ['ebnf', null, 'root ::= "a"'],
      ['cache_prompt', true, false],
      ['id_slot', -1, 3],
      ['n_predict', null, 5],
      ['n_probs', 0, 3],
      ['samplers', null, ['top_k']],
      ['lora', [], [{ id: 0, scale: 1 }]],
      ['timings_per_token', false, true],
      ['think', null, false],
      ['options', null, { num_ctx: 5 }],
      ['system', null, 'Be brief.'],
      ['modalities', ['text'], ['text', 'audio']],
    ] as const) {
      expect((await chat({ [name]: nothing })).status, name).toBe(200);
      const { param, message } = await refusal(chat({ [name]: something }));
      expect(param).toBe(name);
      expect(message, name).toMatch(/[.!?)] [A-Z`]/);
    }
    expect(engine.requests.length).toBe(28);
  });

  it('that are misspelt are refused with what was meant', async () => {
    for (const [name, fix] of [
      ['maxTokens', 'Did you mean `max_tokens`?'],
      ['maxCompletionTokens', 'Did you mean `max_completion_tokens`?'],
      ['topP', 'Did you mean `top_p`?'],
      ['topLogprobs', 'Did you mean `top_logprobs`?'],
      ['frequencyPenalty', 'Did you mean `frequency_penalty`?'],
      ['streamOptions', 'Did you mean `stream_options`?'],
      ['toolChoice', 'Did you mean `tool_choice`?'],
      ['parallelToolCalls', 'Did you mean `parallel_tool_calls`?'],
      ['stopTokenIds', 'Did you mean `stop_token_ids`?'],
      ['cacheSalt', 'Did you mean `cache_salt`?'],
      ['temprature', 'Did you mean `temperature`?'],
      ['message', 'Did you mean `messages`?'],
      ['prompt', 'Write `messages`, or use /v1/completions.'],
      ['add_special_tokens', 'It is a parameter of /v1/completions.'],
      ['max_new_tokens', 'Write `max_tokens`.'],
      ['made_up', 'Check the spelling, or leave it out.'],
      ['constructor', 'Check the spelling, or leave it out.'],
    ] as const) {
      const error = await refusal(chat({ [name]: 1 }));
      expect([error.param, error.fix], name).toEqual([name, fix]);
    }
    expect(await refusal(post('/v1/completions', { messages }))).toMatchObject({
      param: 'messages',
      fix: 'It is a parameter of /v1/chat/completions.',
    });
    // A body with nothing but a wrong name is told of the name.
    expect((await refusal(post('/v1/chat/completions', { message: messages }))).param).toBe('message');
    const own = '{"messages": [], "__proto__": {"a": 1}}';
    const response = await createApp({ engine }).request('/v1/chat/completions', {
      method: 'POST',
      body: own,
    });
    expect(await response.json()).toMatchObject({ error: { param: '__proto__' } });
  });

  it('of a wrong kind are told what they take, and to be left out only where they may be', async () => {
    const call = { type: 'function', function: { name: 'f' } };
    for (const [more, param, fix] of [
      [{ messages: undefined }, 'messages', 'Send `messages`.'],
      [{ messages: 'Hi' }, 'messages', 'Correct `messages`.'],
      [{ messages: [] }, 'messages', 'Correct `messages`.'],
      [{ messages: [null] }, 'messages[0]', 'Correct `messages[0]`.'],
      [{ messages: [{ content: 'x' }] }, 'messages[0].role', 'Send `messages[0].role`.'],
      [{ messages: [{ role: 'USER', content: 'x' }] }, 'messages[0].role', 'Correct `messages[0].role`.'],
      [{ messages: [{ role: 'user', content: 5 }] }, 'messages[0].content', 'Correct `messages[0].content`.'],
      [{ tools: call }, 'tools', 'Correct `tools` or leave it out.'],
      [{ tools: [5] }, 'tools[0]', 'Correct `tools[0]`.'],
      [{ tools: [{ name: 'f' }] }, 'tools[0].type', 'Send `tools[0].type`.'],
      [{ stream: 'yes' }, 'stream', 'Correct `stream` or leave it out.'],
      [{ stream_options: 'x' }, 'stream_options', 'Correct `stream_options` or leave it out.'],
      [{ priority: 'high' }, 'priority', 'Correct `priority` or leave it out.'],
      [{ priority: 1.5 }, 'priority', 'Correct `priority` or leave it out.'],
      [{ queue_timeout: '5' }, 'queue_timeout', 'Correct `queue_timeout` or leave it out.'],
      [{ cache_salt: 5 }, 'cache_salt', 'Correct `cache_salt` or leave it out.'],
      [{ model: 5 }, 'model', 'Correct `model` or leave it out.'],
      [{ modalities: ['audio'] }, 'modalities[0]', 'Correct `modalities[0]`.'],
      [
        { chat_template_kwargs: [] },
        'chat_template_kwargs',
        'Correct `chat_template_kwargs` or leave it out.',
      ],
    ] as const) {
      const error = await refusal(chat(more));
      expect([error.param, error.fix]).toEqual([param, fix]);
      expect(error.message).toMatch(/^`[^`]+`: takes /);
      expect(error.message).not.toMatch(/invalid|expected|received/i);
    }
    // Read losslessly, a float is an object.
    const float = await createApp({ engine }).request('/v1/chat/completions', {
      method: 'POST',
      body: `{"messages":${JSON.stringify(messages)},"chat_template_kwargs":1.0}`,
    });
    expect(await float.json()).toMatchObject({ error: { param: 'chat_template_kwargs' } });
    for (const [name, value] of [
      ['echo', true],
      ['suffix', 'x'],
    ] as const)
      expect(await refusal(complete({ [name]: value }))).toMatchObject({
        code: 'unsupported_parameter',
        param: name,
      });
    expect((await complete({ echo: false, suffix: '' })).status).toBe(200);
  });

  it('ask for OpenAI’s rules with a strict schema alone', async () => {
    const schema = { type: 'object', properties: { a: { type: 'string' } }, required: [] };
    const send = (strict: boolean) =>
      chat({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema, strict } } });
    expect((await send(true)).status).toBe(200);
    expect(engine.requests.at(-1)).toMatchObject({ schema, strictSchema: true });
    expect((await send(false)).status).toBe(200);
    expect(engine.requests.at(-1)).not.toHaveProperty('strictSchema');
  });

  it('within fields are looked at as well', async () => {
    for (const [more, param] of [
      [{ stream: true, stream_options: { includeUsage: true } }, 'stream_options.includeUsage'],
      [{ stream: true, stream_options: { include_usage: 1 } }, 'stream_options.include_usage'],
      [{ response_format: { type: 'text', strict: true } }, 'response_format.strict'],
      [{ response_format: 'text' }, 'response_format'],
      [{ response_format: { type: 'json' } }, 'response_format'],
      [{ response_format: { type: 'json_schema' } }, 'response_format.json_schema'],
      [
        { response_format: { type: 'json_schema', json_schema: { name: 'a b', schema: {} } } },
        'response_format.json_schema.name',
      ],
      [
        { response_format: { type: 'json_schema', json_schema: { name: 'a' } } },
        'response_format.json_schema.schema',
      ],
      [{ response_format: { type: 'text', schema: {} } }, 'response_format.schema'],
      [{ response_format: { type: 'regex', pattern: 'a' } }, 'response_format'],
      [{ regex: 'a' }, 'regex'],
      [{ choice: ['a'] }, 'choice'],
      [{ structured_outputs: { regex: 5 } }, 'structured_outputs.regex'],
      [
        { structured_outputs: { regex: 'a', disable_any_whitespace: true } },
        'structured_outputs.disable_any_whitespace',
      ],
      [{ thinking: { type: 'disabled', budget_tokens: 5 } }, 'thinking.budget_tokens'],
      [{ thinking: { type: 'enabled' }, reasoning_effort: 'none' }, 'thinking.type'],
      [{ tools: [tool, tool] }, 'tools[1].function.name'],
      [{ structured_outputs: { choice: [] } }, 'structured_outputs.choice'],
      [{ structured_outputs: { structural_tag: '{' } }, 'structured_outputs.structural_tag'],
      [{ structured_outputs: { structural_tag: '[]' } }, 'structured_outputs.structural_tag'],
      [{ response_format: { type: 'structural_tag', schema: {} } }, 'response_format.schema'],
      [{ response_format: { type: 'structural_tag', tags: [] } }, 'response_format.tags'],
      [{ structured_outputs: { regex: 'a', choice: ['b'] } }, 'structured_outputs'],
      [{ structured_outputs: { json: {} }, response_format: { type: 'json_object' } }, 'structured_outputs'],
      [{ tool_choice: 'any', tools: [tool] }, 'tool_choice'],
      [{ tool_choice: ['auto'], tools: [tool] }, 'tool_choice'],
      [{ tool_choice: {}, tools: [tool] }, 'tool_choice.type'],
      [{ tool_choice: { type: 'zzz' } }, 'tool_choice.type'],
      [{ tool_choice: { type: 'function' } }, 'tool_choice.function'],
      [{ tool_choice: { type: 'function', function: null } }, 'tool_choice.function'],
      [{ tool_choice: { type: 'function', function: { name: 5 } } }, 'tool_choice.function.name'],
      [{ tool_choice: { type: 'function', function: { name: 'f', x: 1 } } }, 'tool_choice.function.x'],
      [{ tool_choice: { type: 'function', function: { name: 'f' }, x: 1 } }, 'tool_choice.x'],
      [{ tool_choice: { type: 'function', name: 5 } }, 'tool_choice.name'],
      [
        { tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', x: 1 } } },
        'tool_choice.allowed_tools.x',
      ],
      [
        { tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto' } } },
        'tool_choice.allowed_tools.tools',
      ],
      [
        { tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'none', tools: [] } } },
        'tool_choice.allowed_tools.mode',
      ],
      [
        { tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [{ type: 'x' }] } } },
        'tool_choice.allowed_tools.tools[0].type',
      ],
      [
        { tool_choice: { type: 'allowed_tools', mode: 'all', tools: [{ type: 'function', name: 'f' }] } },
        'tool_choice.mode',
      ],
      [{ tools: [{ type: 'zzz' }] }, 'tools[0].type'],
      [{ tools: [{ type: 'zzz' }], tool_choice: 'none' }, 'tools[0].type'],
      [{ tools: [tool, { type: 'function', function: null }] }, 'tools[1].function'],
      [{ tools: [{ type: 'function', function: { name: 5 } }] }, 'tools[0].function.name'],
      [{ tools: [5] }, 'tools[0]'],
      [{ tools: [{ function: { name: 'f' } }] }, 'tools[0].type'],
      [{ enable_thinking: true, chat_template_kwargs: { enable_thinking: false } }, 'enable_thinking'],
      [{ cache_salt: 's'.repeat(4097) }, 'cache_salt'],
      [{ messages: [{ role: 'wizard', content: 'x' }] }, 'messages[0].role'],
      [{ messages: [{ role: 'user', content: [{ text: 'x' }] }] }, 'messages[0].content[0].type'],
    ] as const)
      expect((await refusal(chat(more))).param, JSON.stringify(more)).toBe(param);
    expect(engine.requests).toHaveLength(0);
    // Null says nothing, within fields too.
    expect((await chat({ stream: true, stream_options: { include_usage: null, x: null } })).status).toBe(200);
    expect((await chat({ response_format: { type: 'text', json_schema: null } })).status).toBe(200);
    expect((await chat({ tools: [], tool_choice: 'auto', parallel_tool_calls: true })).status).toBe(200);
    const thoughts = async (body: object) => {
      expect((await chat(body)).status).toBe(200);
      const { reasoningEffort, thinkingBudget, templateOptions } = engine.requests.at(-1) as ChatRequest;
      return [reasoningEffort, thinkingBudget, templateOptions];
    };
    expect(await thoughts({ reasoning_effort: 'low', thinking_token_budget: 5 })).toEqual([
      'low',
      5,
      undefined,
    ]);
    expect(await thoughts({ reasoning: { effort: 'high', max_tokens: 7, summary: 'auto' } })).toEqual([
      'high',
      7,
      undefined,
    ]);
    expect(await thoughts({ reasoning: { enabled: false }, reasoning_budget: -1 })).toEqual([
      'none',
      undefined,
      undefined,
    ]);
    expect(await thoughts({ thinking: { type: 'enabled', budget_tokens: 9 } })).toEqual([
      undefined,
      9,
      { enable_thinking: true },
    ]);
    const calls = async (tool_choice: unknown) => {
      expect((await chat({ tools: [tool], tool_choice })).status).toBe(200);
      return engine.requests.at(-1);
    };
    expect(await calls('required')).toMatchObject({ toolChoice: 'required' });
    expect(await calls({ type: 'function', function: { name: 'f' } })).toMatchObject({
      toolChoice: { name: 'f' },
    });
    expect(await calls({ type: 'function', name: 'f' })).toMatchObject({ toolChoice: { name: 'f' } });
    const allowed = { mode: 'required', tools: [{ type: 'function', function: { name: 'f' } }] };
    expect(await calls({ type: 'allowed_tools', allowed_tools: allowed })).toMatchObject({
      toolChoice: { mode: 'required', tools: ['f'] },
    });
  });

  it('of streams are taken where OpenAI and vLLM take them', async () => {
    engine.script = { choices: [['One', ' two', ' three']] };
    const chunks = async (
      options: object,
    ): Promise<{ text: string; usage?: object; obfuscation?: string }[]> => {
      const response = await chat({ stream: true, stream_options: options });
      const events = (await response.text()).split('\n\n').filter((event) => event.startsWith('data: {'));
      return events.map((event) => {
        const text = event.slice('data: '.length);
        return { ...(JSON.parse(text) as { usage?: object; obfuscation?: string }), text };
      });
    };
    for (const chunk of await chunks({ include_obfuscation: false }))
      expect(chunk).not.toHaveProperty('obfuscation');
    const filled = await chunks({ include_obfuscation: true });
    expect(filled.length).toBe(5);
    for (const chunk of filled) {
      expect(chunk.obfuscation).toEqual(expect.any(String));
      expect(Buffer.byteLength(chunk.text) % 256).toBe(0);
    }
    const usages = (await chunks({ include_usage: true, continuous_usage_stats: true })).map(
      ({ usage }) => usage,
    );
    expect(usages.map((usage) => (usage as { completion_tokens: number }).completion_tokens)).toEqual([
      0, 1, 2, 3, 3, 3,
    ]);
    expect(usages[2]).toEqual({ prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 });
  });

  it('are all in the documentation', async () => {
    const page = await readFile('docs/http-api.md', 'utf8');
    const { chat: ofChats, completions } = requestFields();
    for (const name of new Set([...ofChats, ...completions, ...FOREIGN_FIELDS]))
      expect(page.includes(`\`${name}\``), name).toBe(true);
  });
});
