/** Reads a large body on a thread for texts, all the way from its bytes to tokens: little comes back. */
import { promptIds } from '../engine/request-check.js';
import { type EncodedPrompt, encodePrompt, type PromptLimits } from '../engine/texts/prompt-task.js';
import type { TaskResult, TextTask } from '../engine/texts/text-task.js';
import type { ChatRequest, GenerateRequest } from '../engine/types.js';
import { parseAsked, type Served } from './asked.js';
import type { ReceivedBody } from './body-text.js';
import type { StreamChoice } from './openai-schemas.js';
import type { RouteKind } from './route-kind.js';

export interface BodyAsk {
  readonly kind: RouteKind;
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
  /** The template was given tools. */
  readonly hasTools: boolean;
}

export interface ReadBody extends StreamChoice {
  readonly requests: readonly ReadRequest[];
}

/** The task. Errors: those of `parseAsked`, of the chat template and the tokenizer; `context-length-exceeded`. */
export const readBody: TextTask<BodyAsk, ReadBody> = (text, ask, watch): TaskResult<ReadBody> => {
  const { kind, received, served, limits } = ask;
  const { requests: asked, ...choice } = parseAsked(kind, received, served);
  watch.check();
  const requests = asked.map((request): ReadRequest => {
    const { messages, tools, templateOptions, addGenerationPrompt, ...more } = request as ChatRequest;
    const { prompt, addSpecialTokens = true, ...rest } = more as GenerateRequest;
    if (kind === 'text' && typeof prompt !== 'string')
      return { rest, prompt: { ids: promptIds(prompt), chatEnd: null, unread: [] }, hasTools: false };
    const encoded = encodePrompt(
      text,
      kind === 'text'
        ? { kind: 'text', text: prompt as string, addSpecialTokens }
        : { kind: 'chat', messages, options: { tools, templateOptions, addGenerationPrompt } as never },
      limits,
      watch,
    );
    return { rest, prompt: encoded, hasTools: (tools?.length ?? 0) > 0 };
  });
  return {
    value: { ...choice, requests },
    transfer: requests.map(({ prompt }) => prompt.ids.buffer as ArrayBuffer),
  };
};
