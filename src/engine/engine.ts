/**
 * The engine as its users see it. This side resolves the model, turns text into tokens and keeps the books of open
 * requests; the device, the weights and the step loop are on the other side of a message channel, on a thread of
 * their own. Between the two pass tokens, text and numbers.
 */

import type { Worker } from 'node:worker_threads';
import { KvantError } from '../errors.js';
import type { GrammarAsk } from '../grammar/ask.js';
import { checkOptionNames } from '../option-names.js';
import type { SamplingOptions, SamplingParams } from '../sampling/options.js';
import { checkIds, checkSampling, resolveSampling } from '../sampling/params.js';
import type { ToolsAsk } from '../text/formats/tool-grammar.js';
import { holdsFrame, parsersOf, spelledFor, thinkingOf, toolsAsk } from './answer-forms.js';
import { asKvantError, type ContextRaise, shuttingDown } from './core-errors.js';
import { EngineClient } from './engine-client.js';
import type { EngineInternals } from './engine-internals.js';
import { type GenerationSetup, GenerationStream } from './generation.js';
import type { RowGrammar } from './grammars.js';
import { hostConfig } from './host-config.js';
import { checkOptions } from './host-options.js';
import type { HostInfo, WeightOrigin } from './messages.js';
import type { ShapeOptions, TokenBytesOptions, TokenizeOptions } from './method-options.js';
import { locatePlace } from './model-location.js';
import { modelName } from './model-name.js';
import type { ModelText, RenderChatOptions } from './model-text.js';
import {
  CLOSE_OPTIONS,
  RENDER_OPTIONS,
  SHAPE_OPTIONS,
  TOKEN_BYTES_OPTIONS,
  TOKENIZE_OPTIONS,
} from './option-lists.js';
import { checkRequest, isSignal, promptIds, queuePlace } from './request-check.js';
import { readStructuredOutput, STRUCTURED_REQUEST_FIELDS } from './structured-output.js';
import type { AskedPrompt, EncodedPrompt, PreparedPrompt } from './texts/prompt-task.js';
import type { TextPlace } from './texts/text-origin.js';
import { Texts, type Waiter } from './texts/texts.js';
import { takeThread } from './thread.js';
import {
  hasHandlers,
  runTools,
  startToolRun,
  type ToolRun,
  type ToolRunRequest,
  type ToolRunResult,
} from './tool-run.js';
import { readTypedSchema } from './typed-schema.js';
import type {
  ChatRequest,
  CloseOptions,
  EngineChatMessage,
  EngineInfo,
  EngineOptions,
  EngineStats,
  GenerateRequest,
  Generation,
  SeenImage,
  TypedChatRequest,
  TypedGeneration,
} from './types.js';
import { UnreadNotices } from './unread-notices.js';
import { openVision, type Vision } from './vision/open-vision.js';
import { checkLocalMedia } from './vision/picture-access.js';
import { hasPictures } from './vision/picture-parts.js';
import type { PromptPicture } from './vision/pictures.js';
import { epochNow } from './yield.js';

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

/** What the engine's thread needs of a request's text. */
type PreparedRequest = SeenPrompt & { readonly grammar?: RowGrammar };

/** A prompt and its pictures. */
type SeenPrompt = PreparedPrompt & {
  readonly pictures?: readonly PromptPicture[];
  readonly seen?: readonly SeenImage[];
};

/** A request whose text is still worked on. */
interface Preparing {
  readonly abort: () => void;
  readonly over: Promise<void>;
}

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
  readonly #queueTimeoutMs: number;
  readonly #unread: UnreadNotices;
  /** @internal For the server: works on what bodies hold without keeping its thread. No part of the public contract. */
  readonly texts: Texts;
  readonly #preparing = new Set<Preparing>();
  /** Null for a model that reads text only. */
  readonly #vision: Vision | null;
  #closing = false;

  private constructor(
    client: EngineClient,
    text: ModelText,
    info: EngineInfo,
    { queueTimeoutMs = Number.POSITIVE_INFINITY, worker = true, onLog }: EngineOptions,
    contextRaise: ContextRaise,
    vision: Vision | null,
  ) {
    this.#vision = vision;
    this.#unread = new UnreadNotices(onLog);
    const { vocabSize, eosTokenIds: eosIds } = info.model;
    const { maxContext } = info.limits;
    this.texts = new Texts(text, { vocabSize, eosIds, maxContext, contextRaise }, worker);
    this.#queueTimeoutMs = queueTimeoutMs;
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
    checkOptions(options);
    const { signal, onProgress } = options;
    signal?.throwIfAborted();
    const thread = threadFor(options, internals);
    try {
      await checkFolders(options);
      await checkToolFormat(options);
      const place = await locatePlace(model, options);
      onProgress?.({ phase: 'text', done: 0, total: 1, unit: 'steps' });
      const text = (): Promise<ModelText> => loadText(place, options);
      const name = modelName(model, place.path);
      return await Engine.#start(name, { kind: 'folder', ...place }, text, thread, options, internals);
    } catch (error) {
      await thread?.then(
        (worker) => worker.terminate(),
        () => {},
      );
      throw error;
    }
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
    checkOptions(options, SHAPE_OPTIONS, 'Engine.loadShape');
    if (options.tokenizer !== undefined) throw noTokenizerForShapes();
    await checkFolders(options);
    const { vocab, standInText = false } = options;
    const weights = { kind: 'shape', name, ...(vocab === undefined ? {} : { vocab }) } as const;
    const text = (): Promise<ModelText> => shapeText(name, vocab, standInText);
    return Engine.#start(name, weights, text, threadFor(options, internals), options, internals);
  }

  static async #start(
    name: string,
    weights: WeightOrigin,
    loadText: () => Promise<ModelText>,
    thread: Promise<Worker> | null,
    options: EngineOptions,
    internals: EngineInternals,
  ): Promise<Engine> {
    const startedAt = epochNow();
    const config = hostConfig(weights, options);
    const worker = await thread;
    const { client, info, text } = await EngineClient.start(config, loadText, worker, options, internals);
    const described = describe(name, weights, text, options, info, epochNow() - startedAt);
    const vision = await openVision(weights, info, options);
    return new Engine(client, text, described, options, info.contextRaise, vision);
  }

  /** Continues a prompt. */
  generate(request: GenerateRequest): Generation {
    return this.#request(request, GENERATE_FIELDS, () => {
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
    return this.#request(asked, CHAT_FIELDS, () => {
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
    return this.#request(request, CHAT_FIELDS, () => ({ kind: 'ids', ...prompt }));
  }

  /** The text that a conversation becomes. Errors: `chat-template-missing`, `invalid-messages`, … */
  renderChat(messages: readonly EngineChatMessage[], options: RenderChatOptions = {}): string {
    checkOptionNames(options, RENDER_OPTIONS, 'renderChat');
    const rendered = this.#text.render(messages, options);
    this.#unread.tell(this.#text.unread(messages, options));
    return rendered;
  }

  /** Ids of a text. A rendered conversation holds its special tokens already: pass `addSpecialTokens: false`. */
  tokenize(text: string, options: TokenizeOptions = {}): number[] {
    checkOptionNames(options, TOKENIZE_OPTIONS, 'tokenize');
    return [...this.#text.encode(text, options.addSpecialTokens ?? true)];
  }

  /** Text of ids, special tokens left out. */
  detokenize(ids: readonly number[]): string {
    return this.#text.decode(ids);
  }

  /**
   * The bytes of an id's token, a special one spelled out; with `special: false` those that it adds to the text. Empty for an id
   * without a token.
   */
  tokenBytes(id: number, options: TokenBytesOptions = {}): Uint8Array {
    checkOptionNames(options, TOKEN_BYTES_OPTIONS, 'tokenBytes');
    return this.#text.bytesOf(id, options.special ?? true);
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
    this.#closing = true;
    // What is drained is finished, with all that was asked before; without it nothing is waited for.
    if (options.drain === true) await Promise.all([...this.#preparing].map(({ over }) => over));
    else for (const { abort } of this.#preparing) abort();
    await this.#client.close(options.drain ?? false);
    await Promise.all([this.texts.close(), this.#vision?.reader.close()]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Reads the pictures of a conversation, and makes tokens of it. */
  #prepare(
    asked: AskedPrompt,
    sampling: SamplingParams,
    waiter: Waiter,
    request: GenerateRequest | ChatRequest,
  ): SeenPrompt | Promise<SeenPrompt> {
    const vision = this.#vision;
    if (asked.kind !== 'chat' || vision === null || !hasPictures(asked.messages))
      return this.texts.prepare(asked, sampling, waiter);
    const { imageProcessor = {} } = request as ChatRequest;
    const reading = vision.reader.read(asked.messages, waiter, imageProcessor);
    return reading.then(async ({ messages, pictures: read, seen }) => {
      const pieces = read.map((picture) => picture.pieces);
      const pictures = { token: vision.imageToken, placeholder: vision.placeholder, pieces };
      const prompt = await this.texts.prepare({ ...asked, messages, pictures }, sampling, waiter);
      const placed = read.map(({ pieces: _, ...picture }, i) => {
        const runs = prompt.runs![i]!;
        return { ...picture, first: runs[0]!.first, ...(runs.length > 1 && { runs }) };
      });
      return { ...prompt, pictures: placed, seen };
    });
  }

  /** With what the answers are held to, where the request says that. */
  #withGrammar(
    prepared: SeenPrompt | Promise<SeenPrompt>,
    ask: GrammarAsk | null,
    tools: ToolsAsk | null,
    request: GenerateRequest | ChatRequest,
    waiter: Waiter,
  ): PreparedRequest | Promise<PreparedRequest> {
    if (ask === null && tools === null && !holdsFrame(this.#text, request)) return prepared;
    return Promise.resolve(prepared).then(async (prompt) => {
      const { chatEnd } = prompt;
      const chat = request as ChatRequest;
      const thoughts = chatEnd === null ? null : this.#text.thoughts(chat, chatEnd);
      const frame = chatEnd === null ? null : this.#text.frame(chat, chatEnd);
      if (ask === null && tools === null && (frame === null || thoughts === null)) return prompt;
      return { ...prompt, grammar: await this.texts.grammar({ ask, tools, thoughts, frame }, waiter) };
    });
  }

  #request(
    request: GenerateRequest | ChatRequest,
    fields: readonly string[],
    askPrompt: () => AskedPrompt,
  ): Generation {
    const receivedAt = epochNow();
    const id = this.#client.nextId();
    // Of what has not been checked yet only what is as it should be.
    const { requestId, signal } = (request ?? {}) as Partial<typeof request>;
    const wanted = new AbortController();
    let stream: GenerationStream | null = null;
    let submitted = false;
    const setup: GenerationSetup = {
      requestId: typeof requestId === 'string' ? requestId : `request-${id}`,
      promptTokenIds: [],
      seed: 0,
      choices: 1,
      receivedAt,
      signal: isSignal(signal) ? signal : undefined,
      onCancel: () => {
        if (submitted) this.#client.cancel(id);
        else {
          stream?.end('cancelled', null);
          wanted.abort();
        }
      },
    };
    try {
      checkRequest(request);
      if (this.#closing) throw shuttingDown();
      const asked = resolveSampling(request as SamplingOptions, this.info.samplingDefaults, fields);
      checkIds(asked, this.info.model.vocabSize);
      // The best of several are known by their log-probabilities, wanted or not.
      const chooses = asked.bestOf > asked.n;
      const sampling = chooses && asked.logprobs === null ? { ...asked, logprobs: 0 } : asked;
      const typed = readTypedSchema(request.schema);
      const form = readStructuredOutput(typed === null ? request : { ...request, schema: typed.json });
      const waiter = { share: request.share, signal: wanted.signal };
      const prepared = this.#withGrammar(
        this.#prepare(askPrompt(), sampling, waiter, request),
        form,
        toolsAsk(this.#text, request, form !== null),
        request,
        waiter,
      );
      const answer = new GenerationStream({
        ...setup,
        seed: sampling.seed,
        choices: sampling.bestOf,
        ...(typed === null ? {} : { read: typed.read }),
        ...(chooses ? { keep: sampling.n, showLogprobs: asked.logprobs !== null } : {}),
      });
      stream = answer;
      const submit = (
        { ids: prompt, chatEnd, rules, unread, grammar, pictures, seen }: PreparedRequest,
        waitedMs = 0,
      ): void => {
        this.#unread.tell(unread);
        for (const name of grammar?.tables.left ?? [])
          this.#unread.tell([{ kind: 'format', name, where: 'format' }]);
        if (!answer.open) return;
        const spelled = chatEnd === null ? [] : spelledFor(this.#text, request as ChatRequest);
        answer.prompted([...prompt], parsersOf(this.#text, request, chatEnd), seen);
        submitted = true;
        const place = queuePlace(request, this.#queueTimeoutMs, waitedMs);
        const { cacheSalt } = request;
        const salted = cacheSalt === undefined ? {} : { cacheSalt };
        this.#client.add(
          {
            id,
            prompt,
            sampling,
            rules,
            continuation: chatEnd === null,
            spelled,
            place,
            receivedAt,
            ...salted,
            ...(grammar === undefined ? {} : { grammar }),
            ...(pictures === undefined ? {} : { pictures }),
            ...thinkingOf(this.#text, request, chatEnd),
          },
          answer,
        );
      };
      if (!(prepared instanceof Promise)) {
        if (signal?.aborted === true) {
          answer.prompted([...prepared.ids]);
          answer.end('cancelled', null);
        } else submit(prepared);
        return answer;
      }
      const over = prepared
        .then(
          (made) => submit(made, Math.round(epochNow() - receivedAt)),
          (error: unknown) => answer.refuse(asKvantError(error)),
        )
        .finally(() => this.#preparing.delete(preparing));
      const preparing: Preparing = { abort: () => answer.cancel(), over };
      this.#preparing.add(preparing);
      if (signal?.aborted === true) answer.cancel();
      return answer;
    } catch (error) {
      const refused = new GenerationStream(setup);
      refused.refuse(asKvantError(error));
      return refused;
    }
  }
}

/** Enough to have the template for tools chosen. */
const ANY_TOOLS = [{}];

function definedOf<T extends object>(options: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as never;
}

function noTokenizerForShapes(): KvantError {
  return new KvantError('invalid-option', 'Made-up weights take no tokenizer.', {
    kind: 'invalid-request',
    where: 'tokenizer',
    fix: 'Leave it out; `standInText` makes one up.',
  });
}

async function shapeText(name: string, vocab: number | undefined, standIn: boolean): Promise<ModelText> {
  const { ModelText } = await import('./model-text.js');
  if (!standIn) return ModelText.none();
  const { shapeModel } = await import('../models/shapes.js');
  return ModelText.standIn(shapeModel(name, vocab === undefined ? {} : { vocab }).facts.vocabSize);
}

/** Folders are found fit for their use before anything is fetched or loaded. Errors: `prefix-cache-dir-unusable`, `invalid-option`. */
async function checkFolders({ prefixCacheDir, allowedLocalMediaPath }: EngineOptions): Promise<void> {
  if (allowedLocalMediaPath !== undefined) await checkLocalMedia(allowedLocalMediaPath);
  if (prefixCacheDir === undefined) return;
  const { checkDiskFolder } = await import('../kv/disk/disk-folder.js');
  await checkDiskFolder(prefixCacheDir);
}

/** Errors: `invalid-option`, before anything is fetched. */
async function checkToolFormat({ toolFormat }: EngineOptions): Promise<void> {
  if (toolFormat === undefined) return;
  const { toolFormatNamed } = await import('../text/formats/formats.js');
  toolFormatNamed(toolFormat);
}

/** The thread starts while the model is looked for; null where none is wanted. */
function threadFor(
  { worker, sampling }: EngineOptions,
  { workerScript }: EngineInternals,
): Promise<Worker> | null {
  if (sampling !== undefined) checkSampling(sampling);
  if (worker === false) return null;
  const thread = takeThread(workerScript);
  thread.catch(() => {});
  return thread;
}

async function loadText(
  place: TextPlace,
  { onProgress, onLog, toolFormat }: EngineOptions,
): Promise<ModelText> {
  // Loaded when the thread has its work: tokenizer and templates come with many modules.
  const { ModelText } = await import('./model-text.js');
  const text = await ModelText.load(place, toolFormat);
  const { ignored, notices } = text;
  for (const notice of notices) onLog?.({ level: 'warn', ...notice });
  if (ignored.length > 0)
    onLog?.({ level: 'info', message: 'generation_config keys left out', fields: { keys: ignored } });
  onProgress?.({ phase: 'text', done: 1, total: 1, unit: 'steps' });
  return text;
}

function describe(
  name: string,
  weights: WeightOrigin,
  text: ModelText,
  options: EngineOptions,
  info: HostInfo,
  loadMs: number,
): EngineInfo {
  return {
    name: options.name ?? name,
    model: {
      path: weights.kind === 'folder' ? weights.path : '',
      architecture: info.architecture,
      layers: info.layers,
      hiddenSize: info.hiddenSize,
      vocabSize: info.vocabSize,
      maxContext: info.modelContext,
      weightBytes: info.weightBytes,
      modalities: info.vision === null ? ['text'] : ['text', 'image'],
      hasChatTemplate: text.hasChatTemplate,
      toolFormat: text.hasChatTemplate ? text.toolFormat({ tools: ANY_TOOLS }).name : null,
      eosTokenIds: info.eosIds,
    },
    device: info.device,
    deviceReason: info.deviceReason,
    tuning: info.tuning,
    kv: info.kv,
    memory: info.memory,
    limits: info.limits,
    samplingDefaults: { ...text.defaults, ...options.sampling },
    loadMs,
  };
}
