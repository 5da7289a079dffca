/**
 * A body from its first byte until its text has become tokens. What is small is read here; what is large would keep everybody else
 * waiting, and is read on a thread for texts.
 */
import type { ChatRequest, GenerateRequest, Generation } from '../engine/types.js';
import { workerUrl } from '../worker-url.js';
import type { AnswerContext } from './answer-context.js';
import { parseAsked, type Served } from './asked.js';
import type { HeldBody } from './bodies-in-flight.js';
import type { BodyAsk, ReadBody } from './body-task.js';
import { type ReceivedBody, receiveBody, toldLength } from './body-text.js';
import { type Caller, fromCaller } from './caller.js';
import type { Asked, Endpoint } from './protocol.js';

/** A body of up to so many bytes is read at once, and what is wrong with it is known at once. */
export const QUICK_BODY = 8192;

export interface StartableRequest {
  readonly request: ChatRequest | GenerateRequest;
  readonly start: (more: { readonly requestId: string; readonly signal: AbortSignal }) => Generation;
}

export interface ReadAsked {
  readonly asked: Omit<Asked, 'requests'>;
  readonly requests: readonly StartableRequest[];
}

export class IncomingBody {
  readonly #context: AnswerContext;
  readonly #raw: Request;
  readonly #caller: Caller;
  #held: HeldBody | null = null;

  constructor(context: AnswerContext, raw: Request, caller: Caller) {
    this.#context = context;
    this.#raw = raw;
    this.#caller = caller;
  }

  /** Errors: `bodies-in-flight` (503), those of `receiveBody`, `parseAsked` and `fromCaller`; of a large one those of its text too. */
  async read(endpoint: Endpoint, signal: AbortSignal): Promise<ReadAsked> {
    const { engine, bodyLimit, bodies } = this.#context;
    const told = toldLength(this.#raw);
    // What is too large anyway is told so, and takes no room.
    if (!(told > bodyLimit)) this.#held = bodies.open(told, this.#sender());
    const received = await receiveBody(this.#raw, bodyLimit, (size) => this.#held?.grow(size));
    const { name, limits } = engine.info;
    const served = { name, limits: { maxRows: limits.maxRows, maxQueue: limits.maxQueue } };
    const { texts } = engine;
    if (texts === undefined || !texts.threads)
      return this.#startable(endpoint, parseAsked(endpoint, received, served));
    if (received.bytes.length <= QUICK_BODY) {
      const asked = parseAsked(endpoint, received, served);
      if (asked.requests.every((request) => isQuick(texts, request))) return this.#startable(endpoint, asked);
    }
    return this.#elsewhere(endpoint, received, served, signal);
  }

  /** Its bytes are not held any more. */
  release(): void {
    this.#held?.release();
  }

  #sender(): string {
    return this.#caller.key?.tenant ?? this.#caller.address ?? '';
  }

  #startable(endpoint: Endpoint, { requests, ...asked }: Asked): ReadAsked {
    const { engine } = this.#context;
    return {
      asked,
      requests: requests.map((given) => {
        const request = this.#from(endpoint, given);
        return {
          request,
          start: (more) =>
            endpoint.kind === 'chat'
              ? engine.chat({ ...(request as ChatRequest), ...more })
              : engine.generate({ ...(request as GenerateRequest), ...more }),
        };
      }),
    };
  }

  async #elsewhere(
    endpoint: Endpoint,
    received: ReceivedBody,
    served: Served,
    signal: AbortSignal,
  ): Promise<ReadAsked> {
    const { engine } = this.#context;
    const size = received.bytes.length;
    const { requests, asked } = await engine.texts!.run<ReadBody>({
      module: workerUrl('./body-task.js', import.meta.url),
      task: 'readBody',
      argument: { path: endpoint.path, received, served, limits: engine.texts!.limits } satisfies BodyAsk,
      transfer: [received.bytes.buffer],
      size,
      share: this.#sender(),
      signal,
    });
    return {
      asked,
      requests: requests.map(({ rest, prompt, tools, whole }) => {
        if (whole !== undefined) return this.#chatOf(endpoint, whole);
        // Of messages nothing is needed here.
        const text =
          endpoint.kind === 'chat'
            ? { messages: [], ...(tools.length === 0 ? {} : { tools }) }
            : { prompt: prompt.ids };
        const request = this.#from(endpoint, { ...rest, ...text } as ChatRequest | GenerateRequest);
        return {
          request,
          start: (more) =>
            endpoint.kind === 'chat'
              ? engine.chatFrom!({ ...(request as ChatRequest), ...more }, prompt)
              : engine.generate({ ...(request as GenerateRequest), ...more }),
        };
      }),
    };
  }

  #chatOf(endpoint: Endpoint, given: ChatRequest): StartableRequest {
    const request = this.#from(endpoint, given);
    return { request, start: (more) => this.#context.engine.chat({ ...request, ...more }) };
  }

  #from<T extends ChatRequest | GenerateRequest>(endpoint: Endpoint, request: T): T {
    const { rules, reasoningFormat } = this.#context;
    const whole = fromCaller(request, this.#caller, rules);
    return endpoint.kind === 'chat' ? { ...whole, parseReasoning: reasoningFormat !== 'none' } : whole;
  }
}

function isQuick(
  texts: NonNullable<AnswerContext['engine']['texts']>,
  request: ChatRequest | GenerateRequest,
): boolean {
  if (!('messages' in request)) return true;
  const { messages, tools, templateOptions } = request;
  return texts.isQuick({
    kind: 'chat',
    messages,
    options: {
      ...(tools === undefined ? {} : { tools }),
      ...(templateOptions === undefined ? {} : { templateOptions }),
    },
  });
}
