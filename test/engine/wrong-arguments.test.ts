/** Every public function and class, called as a program in plain JavaScript may: with values of any kind, and options that are none. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ENGINE_OPTIONS, RENDER_OPTIONS } from '../../src/engine/option-lists.js';
import * as library from '../../src/index.js';
import { KvantError } from '../../src/index.js';
import * as server from '../../src/server/index.js';

const { Engine, parseJson } = library as unknown as Record<string, Loose>;
const { ApiKeys, Shutdown, checkAddress, createApp, listen, readKeyFile } = server as unknown as Record<
  string,
  Loose
>;
/** As JavaScript sees it. */
type Loose = {
  new (...given: unknown[]): Record<string, Loose>;
  (...given: unknown[]): unknown;
} & { readonly [name: string]: Loose };

const KINDS = {
  undefined: undefined,
  null: null,
  'a number': 7.5,
  'true or false': true,
  'a bigint': 3n,
  'a symbol': Symbol('any'),
  'a text': 'any',
  'a list': [null],
  'an object': { nobodyKnows: 1 },
  'a function': () => 1,
} as const;
type Kind = keyof typeof KINDS;

/** Kinds that are right, or left out. */
const LEFT_OUT: readonly Kind[] = ['undefined'];
const TEXT: readonly Kind[] = ['a text'];

interface Case {
  /** What errors name. */
  readonly argument: string;
  readonly takes?: readonly Kind[];
  readonly call: (value: unknown, engine: Loose) => unknown;
}

const messages = [{ role: 'user', content: 'a' }];
const chat = (engine: Loose, request: unknown): unknown =>
  (engine.chat!(request) as { readonly result: unknown }).result;
const generate = (engine: Loose, request: unknown): unknown =>
  (engine.generate!(request) as { readonly result: unknown }).result;
const asMethod = (engine: Loose, name: string, ...given: unknown[]): unknown =>
  (engine[name] as unknown as (...all: unknown[]) => unknown).apply(engine, given);

/** By the name of the export, and of the method. */
const CASES: Readonly<Record<string, readonly Case[]>> = {
  'Engine.load': [
    { argument: 'model', takes: TEXT, call: (v) => Engine!.load!(v) },
    { argument: 'options', takes: LEFT_OUT, call: (v) => Engine!.load!('/nowhere', v) },
    ...Object.keys(ENGINE_OPTIONS).map((name) => ({
      argument: name,
      takes: ['undefined', ...(OPTION_KINDS()[name] ?? [])] as Kind[],
      call: (v: unknown) => Engine!.load!('/nowhere', { [name]: v }),
    })),
  ],
  'Engine.loadShape': [
    { argument: 'name', takes: TEXT, call: (v) => Engine!.loadShape!(v) },
    { argument: 'options', takes: LEFT_OUT, call: (v) => Engine!.loadShape!('none', v) },
    { argument: 'vocab', takes: LEFT_OUT, call: (v) => Engine!.loadShape!('none', { vocab: v }) },
    {
      argument: 'standInText',
      takes: ['undefined', 'true or false'],
      call: (v) => Engine!.loadShape!('none', { standInText: v }),
    },
  ],
  'new Engine': [{ argument: 'Engine', call: (v) => new Engine!(v, {}) }],
  generate: [
    { argument: 'request', call: (v, engine) => generate(engine, v) },
    { argument: 'prompt', takes: TEXT, call: (v, engine) => generate(engine, { prompt: v, maxTokens: 1 }) },
    ...requestFields(['addSpecialTokens'], (engine, more) => generate(engine, { prompt: 'a', ...more })),
  ],
  chat: [
    { argument: 'request', call: (v, engine) => chat(engine, v) },
    { argument: 'messages', call: (v, engine) => chat(engine, { messages: v, maxTokens: 1 }) },
    ...requestFields(
      ['parseReasoning', 'parseToolCalls', 'parallelToolCalls', 'addGenerationPrompt'],
      (engine, more) => chat(engine, { messages, ...more }),
    ),
    ...['tools', 'templateOptions', 'reasoningEffort', 'thinkingBudget', 'toolChoice', 'imageProcessor'].map(
      (name) => ({
        argument: name,
        takes: LEFT_OUT,
        call: (v: unknown, engine: Loose) =>
          chat(engine, {
            messages,
            maxTokens: 1,
            [name]: name === 'templateOptions' && v === KINDS['an object'] ? null : v,
          }),
      }),
    ),
  ],
  runTools: [
    // One without tools is told so.
    { argument: 'request', takes: ['an object'], call: (v, engine) => asMethod(engine, 'runTools', v) },
    { argument: 'messages', call: (v, engine) => asMethod(engine, 'runTools', { messages: v, tools: [] }) },
    { argument: 'tools', call: (v, engine) => asMethod(engine, 'runTools', { messages, tools: v }) },
    {
      argument: 'tools[0]',
      call: (v, engine) => asMethod(engine, 'runTools', { messages, tools: [v] }),
    },
    {
      argument: 'maxRounds',
      takes: LEFT_OUT,
      call: (v, engine) => asMethod(engine, 'runTools', { messages, tools: [], maxTokens: 1, maxRounds: v }),
    },
    {
      argument: 'messages',
      call: (v, engine) => chat(engine, { messages: v, tools: [{ name: 'a', run: () => 1 }] }),
    },
  ],
  embed: [
    { argument: 'input', takes: TEXT, call: (v, engine) => asMethod(engine, 'embed', v) },
    { argument: 'options', takes: LEFT_OUT, call: (v, engine) => asMethod(engine, 'embed', 'a', v) },
    ...['signal', 'pooling', 'dimensions', 'priority'].map((name) => ({
      argument: name,
      takes: LEFT_OUT,
      call: (v: unknown, engine: Loose) => asMethod(engine, 'embed', 'a', { [name]: v }),
    })),
  ],
  rerank: [
    { argument: 'query', takes: TEXT, call: (v, engine) => asMethod(engine, 'rerank', v, ['a']) },
    { argument: 'documents', call: (v, engine) => asMethod(engine, 'rerank', 'a', v, { method: 'yes-no' }) },
    { argument: 'options', takes: LEFT_OUT, call: (v, engine) => asMethod(engine, 'rerank', 'a', ['a'], v) },
    ...['signal', 'method', 'words'].map((name) => ({
      argument: name,
      takes: LEFT_OUT,
      call: (v: unknown, engine: Loose) =>
        asMethod(engine, 'rerank', 'a', ['a'], { method: 'yes-no', [name]: v }),
    })),
  ],
  renderChat: [
    { argument: 'messages', call: (v, engine) => asMethod(engine, 'renderChat', v) },
    {
      argument: 'options',
      takes: LEFT_OUT,
      call: (v, engine) => asMethod(engine, 'renderChat', messages, v),
    },
    ...Object.keys(RENDER_OPTIONS).map((name) => ({
      argument: name,
      takes: [
        'undefined',
        ...(name === 'addGenerationPrompt' ? ['true or false'] : []),
        ...(name === 'templateOptions' ? ['an object'] : []),
      ] as Kind[],
      call: (v: unknown, engine: Loose) => asMethod(engine, 'renderChat', messages, { [name]: v }),
    })),
  ],
  tokenize: [
    { argument: 'text', takes: TEXT, call: (v, engine) => asMethod(engine, 'tokenize', v) },
    { argument: 'options', takes: LEFT_OUT, call: (v, engine) => asMethod(engine, 'tokenize', 'a', v) },
    {
      argument: 'addSpecialTokens',
      takes: ['undefined', 'true or false'],
      call: (v, engine) => asMethod(engine, 'tokenize', 'a', { addSpecialTokens: v }),
    },
  ],
  detokenize: [{ argument: 'ids', call: (v, engine) => asMethod(engine, 'detokenize', v) }],
  tokenBytes: [
    { argument: 'id', call: (v, engine) => asMethod(engine, 'tokenBytes', v) },
    { argument: 'options', takes: LEFT_OUT, call: (v, engine) => asMethod(engine, 'tokenBytes', 1, v) },
    {
      argument: 'special',
      takes: ['undefined', 'true or false'],
      call: (v, engine) => asMethod(engine, 'tokenBytes', 1, { special: v }),
    },
  ],
  close: [
    { argument: 'options', takes: LEFT_OUT, call: (v, engine) => asMethod(engine, 'close', v) },
    {
      argument: 'drain',
      takes: ['undefined', 'true or false'],
      call: (v, engine) => asMethod(engine, 'close', { drain: v }),
    },
  ],
  parseJson: [{ argument: 'text', takes: TEXT, call: (v) => parseJson!(v) }],
  KvantError: [
    { argument: 'code', takes: TEXT, call: (v) => new (KvantError as unknown as Loose)(v, 'a') },
    { argument: 'message', takes: TEXT, call: (v) => new (KvantError as unknown as Loose)('a', v) },
    ...(['fix', 'where', 'kind', 'retryAfter'] as const).map((name) => ({
      argument: name,
      takes: ['undefined', ...(name === 'retryAfter' ? ['a number'] : name === 'kind' ? [] : TEXT)] as Kind[],
      call: (v: unknown) => new (KvantError as unknown as Loose)('a', 'b', { [name]: v }),
    })),
  ],
  createApp: [
    { argument: 'options', call: (v) => createApp!(v) },
    { argument: 'engine', call: (v) => createApp!({ engine: v }) },
    ...['log', 'shutdown', 'bodyLimit', 'corsOrigin', 'allowedHosts', 'keepAliveMs', 'adminKey'].map(
      (name) => ({
        argument: name,
        takes: [
          'undefined',
          ...(name === 'keepAliveMs' ? ['a number'] : []),
          ...(name === 'adminKey' || name === 'corsOrigin' ? TEXT : []),
        ] as Kind[],
        call: (v: unknown, engine: Loose) => createApp!({ engine, [name]: v }),
      }),
    ),
    {
      argument: 'apiKey',
      takes: ['undefined', ...TEXT],
      call: (v, engine) => createApp!({ engine, apiKey: v }),
    },
  ],
  listen: [
    { argument: 'options', call: (v) => listen!(v) },
    { argument: 'engine', call: (v) => listen!({ engine: v }) },
    ...['host', 'port', 'readTimeoutMs'].map((name) => ({
      argument: name,
      takes: ['undefined', ...TEXT, ...(name === 'port' ? [] : ['a number'])] as Kind[],
      call: (v: unknown, engine: Loose) => listen!({ engine, [name]: v }),
    })),
  ],
  checkAddress: [
    { argument: 'host', takes: TEXT, call: (v) => checkAddress!(v, 0) },
    { argument: 'port', call: (v) => checkAddress!('127.0.0.1', v) },
  ],
  readKeyFile: [{ argument: 'path', takes: TEXT, call: (v) => readKeyFile!(v) }],
  ApiKeys: [
    { argument: 'keys', takes: ['a list'], call: (v) => new ApiKeys!(v) },
    { argument: 'API key 1', takes: TEXT, call: (v) => new ApiKeys!([v]) },
    { argument: 'options', takes: LEFT_OUT, call: (v) => new ApiKeys!(['k'], v) },
    {
      argument: 'anonymous',
      takes: ['undefined', 'true or false'],
      call: (v) => new ApiKeys!(['k'], { anonymous: v }),
    },
    { argument: 'maxPriority', takes: LEFT_OUT, call: (v) => new ApiKeys!(['k'], { maxPriority: v }) },
    { argument: 'keys', takes: ['a list'], call: (v) => asMethod(keys(), 'replace', v) },
    {
      argument: 'authorization',
      takes: ['undefined', ...TEXT],
      call: (v) => asMethod(keys(), 'holderOf', v),
    },
  ],
  Shutdown: [
    {
      argument: 'cancel',
      takes: ['a function'],
      call: (v) => asMethod(new Shutdown!() as unknown as Loose, 'track', v),
    },
  ],
};

function keys(): Loose {
  return new ApiKeys!(['k']) as unknown as Loose;
}

/** Kinds of options of `Engine.load` that are right. */
function OPTION_KINDS(): Readonly<Record<string, readonly Kind[]>> {
  const flags = ['deterministic', 'allowSoftwareGpu', 'prefixCache', 'worker', 'allowMediaUrls'];
  const texts = ['kvCalibration', 'kvPlan', 'prefixCacheDir', 'name', 'tokenizer', 'mmproj', 'toolFormat'];
  const functions = ['onProgress', 'onLog', 'decodeVideo'];
  return {
    ...Object.fromEntries(flags.map((name) => [name, ['true or false']])),
    ...Object.fromEntries([...texts, 'allowedLocalMediaPath'].map((name) => [name, TEXT])),
    ...Object.fromEntries(functions.map((name) => [name, ['a function']])),
    ...Object.fromEntries(
      ['autotuneMs', 'targetItlMs', 'queueTimeoutMs'].map((name) => [name, ['a number']]),
    ),
    hfOverrides: ['an object'],
  };
}

function requestFields(flags: readonly string[], start: (engine: Loose, more: object) => unknown): Case[] {
  const texts = ['requestId', 'share', 'cacheSalt'];
  const numbers = ['queueTimeoutMs'];
  return [...flags, ...texts, ...numbers, 'signal', 'priority', 'nobodyKnows'].map((name) => ({
    argument: name,
    takes: [
      'undefined',
      ...(flags.includes(name) ? ['true or false'] : []),
      ...(texts.includes(name) ? TEXT : []),
      ...(numbers.includes(name) ? ['a number'] : []),
    ] as Kind[],
    call: (v, engine) => start(engine, { maxTokens: 1, [name]: v }),
  }));
}

describe('arguments of another kind', () => {
  let engine: Loose;
  beforeAll(async () => {
    engine = (await Engine!.load!('models/demo-text', {
      device: 'cpu',
      maxContext: 64,
      pooling: 'last',
    })) as Loose;
  });
  afterAll(async () => {
    await asMethod(engine, 'close');
  });

  it('has a case for every function and class of the package, and every method of the engine', () => {
    const exported = Object.entries({ ...library, ...server }).filter(
      ([, value]) => typeof value === 'function',
    );
    const methods = [
      ...Object.getOwnPropertyNames(library.Engine.prototype),
      ...Object.getOwnPropertyNames(library.Engine)
        .filter((name) => name.startsWith('load'))
        .map((name) => `Engine.${name}`),
    ];
    // They take nothing, or are no part of the public contract.
    const none = ['constructor', 'stats', 'clearPrefixCache', 'failed', 'chatFrom', 'Engine'];
    const wanted = [...exported.map(([name]) => name), ...methods].filter((name) => !none.includes(name));
    expect(wanted.filter((name) => CASES[name] === undefined)).toEqual([]);
    expect(Object.keys(CASES).filter((name) => ![...wanted, 'new Engine'].includes(name))).toEqual([]);
  });

  it.each(Object.entries(CASES))('%s refuses them by name', async (_, cases) => {
    for (const { argument, takes = [], call } of cases)
      for (const [kind, value] of Object.entries(KINDS)) {
        if (takes.includes(kind as Kind)) continue;
        const told = `${argument}: ${kind}`;
        let error: unknown;
        try {
          await call(value, engine);
        } catch (thrown) {
          error = thrown;
        }
        expect(error, told).toBeInstanceOf(KvantError);
        const { code, message, fix, where } = error as KvantError;
        expect([code, message], told).not.toContain('internal');
        expect(fix?.length, told).toBeGreaterThan(5);
        // An option that is none is named itself.
        if (code !== 'unknown-option' && code !== 'unknown-parameter')
          expect(`${where} ${message}`, told).toMatch(
            new RegExp(argument.replace(/[[\]]/g, '\\$&'), argument === 'request' ? 'i' : ''),
          );
      }
  });

  it('refuses a wait that is none when a server closes', async () => {
    const running = (await listen!({ engine, port: 0 })) as { close(graceMs?: unknown): Promise<void> };
    for (const wrong of [null, 'soon', -1, Number.NaN, {}])
      await expect(running.close(wrong)).rejects.toMatchObject({ code: 'invalid-option', where: 'graceMs' });
    await running.close(0);
  });
});
