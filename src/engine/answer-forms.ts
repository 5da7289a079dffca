/** What the text of a model makes of a request: how its answers are taken apart, and what they are held to. */

import { type AnswerParser, answerParsers } from '../text/answer-parser.js';
import type { ToolsAsk } from '../text/formats/tool-grammar.js';
import { readToolsAsk } from '../text/tool-choice.js';
import type { ModelText } from './model-text.js';
import { refuseEndless } from './structured-output.js';
import type { ThinkingBudget } from './thinking-budget.js';
import type { ChatRequest, GenerateRequest } from './types.js';

type AnyRequest = GenerateRequest | ChatRequest;

/**
 * How answers are taken apart: thoughts and calls are those of a conversation. `chatEnd`: how its prompt ends, null without one. `free`: no
 * grammar holds them.
 */
export function parsersOf(
  text: ModelText,
  request: AnyRequest,
  chatEnd: string | null,
  free: boolean,
): (() => AnswerParser) | undefined {
  if (chatEnd === null) return undefined;
  const chat = request as ChatRequest;
  return answerParsers(chat, chatEnd, text.toolFormat(chat), free);
}

/** Whether a budget of thoughts holds the whole answer to the frame of the model's format. */
export function holdsFrame(text: ModelText, request: AnyRequest): boolean {
  if (!('messages' in request) || request.thinkingBudget === undefined) return false;
  return text.toolFormat(request).frame !== undefined;
}

/** What calls are held to; null where nothing is asked of them. `formed`: the request asks for a form of its answer too. */
export function toolsAsk(text: ModelText, request: AnyRequest, formed: boolean): ToolsAsk | null {
  if (!('messages' in request)) return null;
  const { tools, toolChoice } = request;
  if (toolChoice === undefined && (tools === undefined || tools.length === 0)) return null;
  const { name } = text.toolFormat(request);
  const ask = readToolsAsk(request, name, formed || holdsFrame(text, request));
  if (ask?.required === true) refuseEndless(request);
  return ask;
}

/** How long its answers may think. */
export function thinkingOf(
  text: ModelText,
  request: AnyRequest,
  chatEnd: string | null,
): { readonly thinking?: ThinkingBudget } {
  const { thinkingBudget } = request as ChatRequest;
  if (chatEnd === null || thinkingBudget === undefined) return {};
  const thoughts = text.thoughts(request as ChatRequest, chatEnd);
  return thoughts === null ? {} : { thinking: text.thinkingBudget(thinkingBudget, thoughts) };
}

/**
 * Tokens that mark the thoughts of an answer, where they are taken apart, and its calls: a request with tools has these in its text,
 * whether or not kvant reads them.
 */
export function spelledFor(text: ModelText, chat: ChatRequest): readonly number[] {
  const format = text.toolFormat(chat);
  if (format.frame !== undefined) return text.spelledIn(format);
  const thoughts = chat.parseReasoning === false ? [] : text.thoughtTokens();
  if (chat.tools === undefined || chat.tools.length === 0) return thoughts;
  return [...thoughts, ...text.spelledIn(format)];
}
