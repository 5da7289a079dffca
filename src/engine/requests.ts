/**
 * Requests from what was asked to what the engine's thread computes: sampling is resolved, the prompt, its pictures and its
 * grammar are made, and sent to the engine; what comes back is the generation that the caller reads.
 */

import type { GrammarAsk } from '../grammar/ask.js';
import type { SamplingOptions, SamplingParams } from '../sampling/options.js';
import { checkIds, resolveSampling } from '../sampling/params.js';
import type { ToolsAsk } from '../text/formats/tool-grammar.js';
import { holdsFrame, parsersOf, spelledFor, thinkingOf, toolsAsk } from './answer-forms.js';
import { asKvantError, shuttingDown, writesNothing } from './core-errors.js';
import type { EngineClient } from './engine-client.js';
import { type GenerationSetup, GenerationStream } from './generation.js';
import type { LoadedEngine } from './load-engine.js';
import type { ModelText } from './model-text.js';
import type { Pooling } from './pooling.js';
import { checkRequest, isSignal, queuePlace } from './request-check.js';
import type { RowGrammar } from './row-grammar.js';
import { readStructuredOutput } from './structured-output.js';
import type { AskedPrompt, PreparedPrompt } from './texts/prompt-task.js';
import type { Texts, Waiter } from './texts/texts.js';
import { readTypedSchema } from './typed-schema.js';
import type { ChatRequest, EngineInfo, GenerateRequest, SeenImage } from './types.js';
import type { UnreadNotices } from './unread-notices.js';
import type { Vision } from './vision/open-vision.js';
import { hasPictures } from './vision/picture-parts.js';
import type { PromptPicture } from './vision/pictures.js';
import { pictureKinds, placePictures } from './vision/place-pictures.js';
import { epochNow } from './yield.js';

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

export class Requests {
  readonly #info: EngineInfo;
  readonly #client: EngineClient;
  readonly #text: ModelText;
  readonly #texts: Texts;
  readonly #vision: Vision | null;
  readonly #unread: UnreadNotices;
  readonly #queueTimeoutMs: number;
  readonly #preparing = new Set<Preparing>();
  #closing = false;

  /** `queueTimeoutMs`: for requests that say nothing of it. */
  constructor(
    { info, client, text, vision }: LoadedEngine,
    texts: Texts,
    unread: UnreadNotices,
    queueTimeoutMs: number,
  ) {
    this.#info = info;
    this.#client = client;
    this.#text = text;
    this.#texts = texts;
    this.#vision = vision;
    this.#unread = unread;
    this.#queueTimeoutMs = queueTimeoutMs;
  }

  /**
   * Starts a request. What is wrong with it is told through the generation, which is refused.
   *
   * `fields`: names it may have. `askPrompt`: the prompt it asks for, once it has been found to be a request. `hidden`: it asks for
   * hidden states and no tokens.
   */
  start(
    request: GenerateRequest | ChatRequest,
    fields: readonly string[],
    askPrompt: () => AskedPrompt,
    hidden?: Pooling,
  ): GenerationStream {
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
      if (hidden === undefined && !this.#info.model.writes) throw writesNothing(this.#info.name);
      const defaults = hidden === undefined ? this.#info.samplingDefaults : {};
      const asked = resolveSampling(request as SamplingOptions, defaults, fields);
      checkIds(asked, this.#info.model.vocabSize);
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
        const parsers = parsersOf(this.#text, request, chatEnd, grammar === undefined);
        answer.prompted([...prompt], parsers, seen);
        submitted = true;
        const place = queuePlace(request, this.#queueTimeoutMs, waitedMs);
        if (place.startWithinMs < Number.POSITIVE_INFINITY) answer.awaitTurn();
        const { cacheSalt } = request;
        // All its hidden states are wanted: what the cache has brings none.
        const salt = hidden === undefined || hidden === 'last' ? cacheSalt : `hidden states of ${id}`;
        const salted = salt === undefined ? {} : { cacheSalt: salt };
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
            ...(hidden === undefined ? {} : { hidden }),
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

  /** Later requests are refused. */
  close(): void {
    this.#closing = true;
  }

  /** Waits for those whose text is still worked on. */
  async drain(): Promise<void> {
    await Promise.all([...this.#preparing].map(({ over }) => over));
  }

  /** Ends those whose text is still worked on. */
  abort(): void {
    for (const { abort } of this.#preparing) abort();
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
      return this.#texts.prepare(asked, sampling, waiter);
    const { imageProcessor = {} } = request as ChatRequest;
    const reading = vision.reader.read(asked.messages, waiter, imageProcessor);
    return reading.then(async ({ messages, pictures: read, seen }) => {
      const pictures = pictureKinds(vision, read);
      const prompt = await this.#texts.prepare({ ...asked, messages, pictures }, sampling, waiter);
      return { ...prompt, pictures: placePictures(read, prompt.runs!), seen };
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
      return { ...prompt, grammar: await this.#texts.grammar({ ask, tools, thoughts, frame }, waiter) };
    });
  }
}
