/**
 * The engine as its users see it. This side resolves the model, turns text into tokens and keeps the books of open
 * requests; the device, the weights and the step loop are on the other side of a message channel, on a thread of
 * their own. Between the two pass tokens, text and numbers.
 */

import { checkArgument, checkOption, FLAG, LIST, TEXT } from '../arguments.js';
import { KvantError } from '../errors.js';
import { checkOptionNames } from '../option-names.js';
import type { EmbedInput, EmbedOptions } from './embedding/embed-request.js';
import { Embedder, type EmbedResult } from './embedding/embedder.js';
import { Reranker, type RerankOptions, type RerankResult } from './embedding/reranker.js';
import type { EngineClient } from './engine-client.js';
import type { EngineInternals } from './engine-internals.js';
import { type LoadedEngine, loadEngine, loadShape } from './load-engine.js';
import type { ShapeOptions, TokenBytesOptions, TokenizeOptions } from './method-options.js';
import type { ModelText, RenderChatOptions } from './model-text.js';
import { CLOSE_OPTIONS, RENDER_OPTIONS, TOKEN_BYTES_OPTIONS, TOKENIZE_OPTIONS } from './option-lists.js';
import {
  checkReasoningEffort,
  checkTemplateOptions,
  promptIds,
  TOKEN_ID,
  TOKEN_IDS,
} from './request-check.js';
import { Requests } from './requests.js';
import { STRUCTURED_REQUEST_FIELDS } from './structured-output.js';
import type { EncodedPrompt } from './texts/prompt-task.js';
import { Texts } from './texts/texts.js';
import {
  hasHandlers,
  runTools,
  startToolRun,
  type ToolRun,
  type ToolRunRequest,
  type ToolRunResult,
} from './tool-run.js';
import type {
  ChatRequest,
  CloseOptions,
  EngineChatMessage,
  EngineInfo,
  EngineOptions,
  EngineStats,
  GenerateRequest,
  Generation,
  TypedChatRequest,
  TypedGeneration,
} from './types.js';
import { UnreadNotices } from './unread-notices.js';
import type { Vision } from './vision/open-vision.js';

const COMMON_FIELDS = [
  ...STRUCTURED_REQUEST_FIELDS,
  'signal',
  'requestId',
  'priority',
  'share',
  'queueTimeoutMs',
  'cacheSalt',
];
const GENERATE_FIELDS = [...COMMON_FIELDS, 'prompt', 'addSpecialTokens'];
const CHAT_FIELDS = [
  ...COMMON_FIELDS,
  'messages',
  'imageProcessor',
  'tools',
  'toolChoice',
  'reasoningEffort',
  'thinkingBudget',
  'templateOptions',
  'addGenerationPrompt',
  'parseReasoning',
  'parseToolCalls',
  'parallelToolCalls',
];

export type { ShapeOptions, TokenBytesOptions, TokenizeOptions } from './method-options.js';
export type { RenderChatOptions } from './model-text.js';

/**
 * A loaded model that answers requests.
 *
 * @example
 * await using engine = await Engine.load('Qwen/Qwen3-0.6B', { quantize: 4 });
 * for await (const delta of engine.chat({ messages: [{ role: 'user', content: 'Hi' }] })) {
 *   process.stdout.write(delta.text);
 * }
 */
export class Engine implements AsyncDisposable {
  readonly info: EngineInfo;
  readonly #client: EngineClient;
  readonly #text: ModelText;
  readonly #unread: UnreadNotices;
  /** @internal For the server: works on what bodies hold without keeping its thread. No part of the public contract. */
  readonly texts: Texts;
  readonly #requests: Requests;
  readonly #embedder: Embedder;
  readonly #reranker: Reranker;
  /** Null for a model that reads text only. */
  readonly #vision: Vision | null;

  private constructor(
    loaded: LoadedEngine,
    { queueTimeoutMs = Number.POSITIVE_INFINITY, worker = true, onLog }: EngineOptions,
  ) {
    if (loaded?.client === undefined) throw madeByLoading();
    const { client, text, info, contextRaise, vision } = loaded;
    this.#vision = vision;
    this.#unread = new UnreadNotices(onLog);
    const { vocabSize, eosTokenIds: eosIds } = info.model;
    const { maxContext } = info.limits;
    this.texts = new Texts(text, { vocabSize, eosIds, maxContext, contextRaise }, worker);
    this.#requests = new Requests(loaded, this.texts, this.#unread, queueTimeoutMs);
    this.#embedder = new Embedder(this.#requests, info, loaded.embedding);
    this.#reranker = new Reranker(this.#requests, info, text, loaded.ranking);
    this.#client = client;
    this.#text = text;
    this.info = info;
  }

  /**
   * Loads a model: a folder, or a hub id (`org/name[@revision]`).
   * Errors: whatever the hub, the checkpoint, the tokenizer, the device and the sizes of the KV cache refuse.
   */
  static load(model: string, options?: EngineOptions): Promise<Engine>;
  /** @internal */
  static load(model: string, options: EngineOptions, internals: EngineInternals): Promise<Engine>;
  static async load(
    model: string,
    options: EngineOptions = {},
    internals: EngineInternals = {},
  ): Promise<Engine> {
    return new Engine(await loadEngine(model, options, internals), options);
  }

  /**
   * Made-up weights in the sizes of a known model, without a tokenizer: prompts are ids. For benchmarks.
   * Errors: `shape-unknown`, and as `load`.
   */
  static loadShape(name: string, options?: ShapeOptions): Promise<Engine>;
  /** @internal */
  static loadShape(name: string, options: ShapeOptions, internals: EngineInternals): Promise<Engine>;
  static async loadShape(
    name: string,
    options: ShapeOptions = {},
    internals: EngineInternals = {},
  ): Promise<Engine> {
    return new Engine(await loadShape(name, options, internals), options);
  }

  /** Continues a prompt. */
  generate(request: GenerateRequest): Generation {
    return this.#requests.start(request, GENERATE_FIELDS, () => {
      const { prompt, addSpecialTokens = true } = request;
      if (typeof prompt === 'string') return { kind: 'text', text: prompt, addSpecialTokens };
      return { kind: 'ids', ids: promptIds(prompt), chatEnd: null };
    });
  }

  /**
   * Answers a conversation, through the model's chat template. Thoughts and tool calls come apart from the text.
   *
   * @example
   * const { text, toolCalls } = await engine.chat({ messages, tools }).result;
   * messages.push({ role: 'assistant', content: text, tool_calls: toolCalls });
   */
  chat<T>(request: TypedChatRequest<T>): TypedGeneration<T>;
  /** With tools that carry their handlers: see {@link runTools}. */
  chat<R extends ToolRunRequest>(request: R): ToolRun;
  chat(request: ChatRequest): Generation;
  chat(given: ChatRequest | TypedChatRequest<unknown> | ToolRunRequest): Generation | ToolRun {
    if (hasHandlers(given)) return startToolRun((one) => this.chat(one), given as ToolRunRequest);
    const request = given as ChatRequest;
    // What may not be called is not shown.
    const asked = request?.toolChoice === 'none' ? { ...request, tools: [] } : request;
    return this.#requests.start(asked, CHAT_FIELDS, () => {
      const { messages, tools, templateOptions, reasoningEffort, addGenerationPrompt } = asked;
      const options = definedOf({ tools, templateOptions, reasoningEffort, addGenerationPrompt });
      return { kind: 'chat', messages, options };
    });
  }

  /**
   * Answers a conversation with tools that carry their handlers: runs the calls, sends the results back, and goes on until the model
   * answers without one, or `maxRounds` answers are given. What a handler throws is told the model.
   *
   * @example
   * const { text } = await engine.runTools({
   *   messages,
   *   tools: [{ name: 'time', parameters: z.object({ city: z.string() }), run: ({ city }: { city: string }) => timeIn(city) }],
   * });
   */
  runTools(request: ToolRunRequest): Promise<ToolRunResult> {
    return runTools((one) => this.chat(one), request);
  }

  /** @internal Answers a conversation that a task has made tokens of: for the server. No part of the public contract. */
  chatFrom(request: ChatRequest, prompt: EncodedPrompt): Generation {
    this.#unread.tell(prompt.unread);
    return this.#requests.start(request, CHAT_FIELDS, () => ({ kind: 'ids', ...prompt }));
  }

  /**
   * Embeddings of texts, by a model that is made for them, or one that was loaded with `pooling`. They share steps with all other
   * requests.
   *
   * Errors: `embeddings-off`, `pooling-unavailable`, `input-too-long`, `prompt-empty`, `invalid-parameter`, and those of requests.
   * @example
   * const { embeddings } = await engine.embed(['Where is Oslo?', 'What is a fjord?'], { task: 'query' });
   */
  embed(input: EmbedInput | readonly EmbedInput[], options: EmbedOptions = {}): Promise<EmbedResult> {
    return this.#embedder.embed(input, options);
  }

  /**
   * How well documents answer a query: 0 to 1 for each. By an encoder that ranks, such as bge-reranker, or a model such as Qwen3-Reranker.
   *
   * Errors: `rerank-unsupported`, `context-length-exceeded`, `input-too-long`, `invalid-parameter`, and those of requests.
   * @example
   * const { scores } = await engine.rerank('Where is Oslo?', ['Oslo lies in Norway.', 'Bread is baked.']);
   */
  rerank(query: string, documents: readonly string[], options: RerankOptions = {}): Promise<RerankResult> {
    return this.#reranker.rerank(query, documents, options);
  }

  /** The text that a conversation becomes. Errors: `chat-template-missing`, `invalid-messages`, … */
  renderChat(messages: readonly EngineChatMessage[], options: RenderChatOptions = {}): string {
    checkOptionNames(options, RENDER_OPTIONS, 'renderChat');
    const { tools, templateOptions, reasoningEffort, addGenerationPrompt } = options;
    checkOption('tools', tools, LIST);
    checkTemplateOptions(templateOptions);
    checkReasoningEffort(reasoningEffort);
    checkOption('addGenerationPrompt', addGenerationPrompt, FLAG);
    const rendered = this.#text.render(messages, options);
    this.#unread.tell(this.#text.unread(messages, options));
    return rendered;
  }

  /** Ids of a text. A rendered conversation holds its special tokens already: pass `addSpecialTokens: false`. */
  tokenize(text: string, options: TokenizeOptions = {}): number[] {
    checkArgument('text', text, TEXT);
    checkOptionNames(options, TOKENIZE_OPTIONS, 'tokenize');
    const { addSpecialTokens = true } = options;
    checkOption('addSpecialTokens', addSpecialTokens, FLAG);
    return [...this.#text.encode(text, addSpecialTokens)];
  }

  /** Text of ids, special tokens left out. */
  detokenize(ids: readonly number[]): string {
    checkArgument('ids', ids, TOKEN_IDS);
    return this.#text.decode(ids);
  }

  /**
   * The bytes of an id's token, a special one spelled out; with `special: false` those that it adds to the text. Empty for an id
   * without a token.
   */
  tokenBytes(id: number, options: TokenBytesOptions = {}): Uint8Array {
    checkArgument('id', id, TOKEN_ID);
    checkOptionNames(options, TOKEN_BYTES_OPTIONS, 'tokenBytes');
    const { special = true } = options;
    checkOption('special', special, FLAG);
    return this.#text.bytesOf(id, special);
  }

  /** What the engine is doing. */
  stats(): Promise<EngineStats> {
    return this.#client.stats();
  }

  /** Forgets all cached prefixes. Requests under way are not hurt; what they compute is not cached. */
  clearPrefixCache(): Promise<EngineStats> {
    return this.#client.clearPrefixes();
  }

  /** Resolves, never rejects, when the engine can no longer answer: the device was lost or the thread ended. */
  get failed(): Promise<KvantError> {
    return this.#client.failed;
  }

  /** Frees everything. Later requests are refused. Without `drain` also ends what an earlier close still waits for. */
  async close(options: CloseOptions = {}): Promise<void> {
    checkOptionNames(options, CLOSE_OPTIONS, 'close');
    const { drain = false } = options;
    checkOption('drain', drain, FLAG);
    this.#requests.close();
    // What is drained is finished, with all that was asked before; without it nothing is waited for.
    if (drain) await this.#requests.drain();
    else this.#requests.abort();
    await this.#client.close(drain);
    await Promise.all([this.texts.close(), this.#vision?.reader.close()]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function madeByLoading(): KvantError {
  return new KvantError('invalid-parameter', 'An Engine is made by loading a model, not by `new`.', {
    kind: 'invalid-request',
    where: 'Engine',
    fix: 'Call await Engine.load(model, options).',
  });
}

function definedOf<T extends object>(options: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as never;
}
