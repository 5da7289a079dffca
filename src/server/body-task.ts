/** Reads a large body on a thread for texts, all the way from its bytes to tokens: little comes back. */
import { promptIds } from '../engine/request-check.js';
import { type EncodedPrompt, encodePrompt, type PromptLimits } from '../engine/texts/prompt-task.js';
import type { TaskResult, TextTask } from '../engine/texts/text-task.js';
import type { ChatRequest, GenerateRequest } from '../engine/types.js';
import { hasPictures } from '../engine/vision/picture-parts.js';
import { parseAsked, type Served } from './asked.js';
import type { ReceivedBody } from './body-text.js';
import type { Asked } from './protocol.js';
import { endpointAt } from './protocols.js';

export interface BodyAsk {
  /** Path of the endpoint. */
  readonly path: string;
  readonly received: ReceivedBody;
  readonly served: Served;
  readonly limits: PromptLimits;
}

/** What a request says besides its text. */
export type RequestRest = Omit<
  ChatRequest & GenerateRequest,
  'messages' | 'tools' | 'templateOptions' | 'addGenerationPrompt' | 'prompt' | 'addSpecialTokens'
>;

export interface ReadRequest {
  readonly rest: RequestRest;
  readonly prompt: EncodedPrompt;
  /** The tools that the template was given: answers are read by them, and may be held to them. */
  readonly tools: readonly unknown[];
  /** A conversation with pictures, as it came: the engine reads it. Then the prompt says nothing. */
  readonly whole?: ChatRequest;
}

export interface ReadBody {
  readonly asked: Omit<Asked, 'requests'>;
  readonly requests: readonly ReadRequest[];
}

/** The task. Errors: those of `parseAsked`, of the chat template and the tokenizer; `context-length-exceeded`. */
export const readBody: TextTask<BodyAsk, ReadBody> = (text, ask, watch): TaskResult<ReadBody> => {
  const { path, received, served, limits } = ask;
  const endpoint = endpointAt(path);
  const { requests: given, ...asked } = parseAsked(endpoint, received, served);
  const isText = endpoint.kind === 'text';
  watch.check();
  const requests = given.map((request): ReadRequest => {
    if (!isText && hasPictures((request as ChatRequest).messages))
      return {
        rest: {},
        prompt: { ids: new Int32Array(), chatEnd: null, unread: [] },
        tools: [],
        whole: request as ChatRequest,
      };
    const { messages, tools, templateOptions, reasoningEffort, addGenerationPrompt, ...more } =
      request as ChatRequest;
    const { prompt, addSpecialTokens = true, ...rest } = more as GenerateRequest;
    if (isText && typeof prompt !== 'string')
      return { rest, prompt: { ids: promptIds(prompt), chatEnd: null, unread: [] }, tools: [] };
    const encoded = encodePrompt(
      text,
      isText
        ? { kind: 'text', text: prompt as string, addSpecialTokens }
        : {
            kind: 'chat',
            messages,
            options: { tools, templateOptions, reasoningEffort, addGenerationPrompt } as never,
          },
      limits,
      watch,
    );
    return { rest, prompt: encoded, tools: tools ?? [] };
  });
  return {
    value: { asked, requests },
    transfer: requests.map(({ prompt }) => prompt.ids.buffer as ArrayBuffer),
  };
};
