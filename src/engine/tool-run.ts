/** A chat whose tools carry their handlers: calls are run, their results sent back, and the model goes on. */

import { checkArgument, FIELDS, LIST } from '../arguments.js';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { checkMessages } from '../text/chat-messages.js';
import type { ToolChoice } from '../text/tool-choice.js';
import { readTypedSchema } from './typed-schema.js';
import type {
  ChatRequest,
  Delta,
  EngineChatMessage,
  Generation,
  GenerationResult,
  ToolCall,
} from './types.js';

/** What a handler is told besides its arguments. */
export interface ToolContext {
  /** The call's id. */
  readonly id: string;
  /** Aborted when the request is. */
  readonly signal: AbortSignal | undefined;
}

/** A tool that carries its handler. */
export interface RunnableTool {
  readonly name: string;
  readonly description?: string | undefined;
  /** A JSON schema, or one of zod 4, by which arguments are read. */
  readonly parameters?: unknown | undefined;
  readonly strict?: boolean | undefined;
  /** What it returns, a text or anything that JSON can say, is sent to the model; so is the message of what it throws. */
  run(args: never, context: ToolContext): unknown;
}

/** A chat that runs its tools. One choice, and what is not about tools as in a plain chat. */
export type ToolRunRequest = Omit<ChatRequest, 'tools' | 'n' | 'bestOf'> & {
  readonly tools: readonly RunnableTool[];
  /** Most answers that the model may give. Default 8. */
  readonly maxRounds?: number | undefined;
};

export interface ToolRunResult extends GenerationResult {
  /** What was added to the conversation: answers with calls, results of tools, the last answer. */
  readonly messages: readonly EngineChatMessage[];
  /** Answers that the model gave. */
  readonly rounds: number;
}

/** A chat that runs its tools, under way. Iterated, it gives what is new of one answer after the other. */
export interface ToolRun extends AsyncIterable<Delta> {
  readonly result: Promise<ToolRunResult>;
  /** Ends the answer that is being given with `cancelled`, or while tools run the next one, and the run with it. */
  cancel(): void;
}

const MAX_ROUNDS = 8;

interface Handler {
  readonly tool: RunnableTool;
  readonly read: ((text: string) => Promise<unknown>) | null;
}

/** Whether a request has a tool that carries its handler. */
export const hasHandlers = (
  request: { readonly tools?: readonly unknown[] | undefined } | undefined,
): boolean =>
  Array.isArray(request?.tools) &&
  request.tools.some((tool) => typeof (tool as RunnableTool | null)?.run === 'function');

/** Starts a run whose answers can be read as they come. Errors, of `result` and of the iteration: those of `runTools`. */
export function startToolRun(chat: (request: ChatRequest) => Generation, request: ToolRunRequest): ToolRun {
  const answers: Generation[] = [];
  let wake = (): void => {};
  const cancelled = new AbortController();
  const result = runTools(
    (one) => {
      const answer = chat(one);
      // Tools may have run when it was asked for.
      if (cancelled.signal.aborted) answer.cancel();
      answers.push(answer);
      wake();
      return answer;
    },
    request,
    cancelled.signal,
  );
  let isOver = false;
  const end = (): void => {
    isOver = true;
  };
  // A reader may look at the result alone, or at the deltas alone.
  const ended = result.then(end, end);
  return {
    result,
    cancel() {
      cancelled.abort();
      answers.at(-1)?.cancel();
    },
    async *[Symbol.asyncIterator]() {
      for (let i = 0; ; i++) {
        while (answers.length === i && !isOver)
          await Promise.race([ended, new Promise<void>((resolve) => (wake = resolve))]);
        const answer = answers[i];
        if (answer === undefined) break;
        yield* answer;
      }
      await result;
    },
  };
}

/**
 * Errors, of the promise: `invalid-parameter`; those of the chats. What a tool throws is told the model, and so are arguments that are no JSON object; the run goes on. At the limit of rounds
 * the last answer's calls are left as they are. `cancelled`: told the tools beside the request's own signal; the answer after them is for `chat` to end.
 */
export async function runTools(
  chat: (request: ChatRequest) => Generation,
  given: ToolRunRequest,
  cancelled?: AbortSignal,
): Promise<ToolRunResult> {
  checkArgument('request', given, FIELDS);
  const { tools, maxRounds = MAX_ROUNDS, ...request } = given;
  checkArgument('tools', tools, LIST);
  // All else that may be wrong with them is for the chats to say.
  if (!Array.isArray(request.messages)) checkMessages(request.messages);
  if (!Number.isInteger(maxRounds) || maxRounds < 1) throw invalid('maxRounds', 'a whole number above 0');
  const handlers = new Map<string, Handler>();
  const shown = tools.map((tool, i) => {
    checkArgument(`tools[${i}]`, tool, FIELDS);
    const { run, parameters, ...rest } = tool;
    if (typeof run !== 'function') throw invalid(`tools[${i}].run`, 'a function');
    const typed = readTypedSchema(parameters, `tools[${i}].parameters`);
    handlers.set(tool.name, { tool, read: typed?.read ?? null });
    const schema = typed?.json ?? parameters;
    return {
      type: 'function',
      function: { ...rest, ...(schema === undefined ? {} : { parameters: schema }) },
    };
  });
  const added: EngineChatMessage[] = [];
  const results: GenerationResult[] = [];
  let toolChoice = request.toolChoice;
  for (;;) {
    const result = await chat({
      ...request,
      tools: shown,
      ...(toolChoice === undefined ? {} : { toolChoice }),
      messages: [...request.messages, ...added],
    }).result;
    results.push(result);
    const { toolCalls, text, reasoning } = result;
    const over = toolCalls.length === 0 || result.finishReason !== 'stop' || results.length === maxRounds;
    added.push({
      role: 'assistant',
      content: text,
      ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
      ...(toolCalls.length === 0 ? {} : { tool_calls: over ? toolCalls : toolCalls.map(sendable) }),
    });
    if (over) return { ...result, usage: usageOf(results), messages: added, rounds: results.length };
    request.signal?.throwIfAborted();
    const signals = [request.signal, cancelled].filter((signal) => signal !== undefined);
    const signal = signals.length > 1 ? AbortSignal.any(signals) : signals[0];
    added.push(...(await Promise.all(toolCalls.map((call) => answerOf(call, handlers, signal)))));
    request.signal?.throwIfAborted();
    // What had to be called has been.
    toolChoice = afterCalls(toolChoice);
  }
}

/** A call as a conversation takes it: where the arguments are no JSON object, without any. Its result says what they were. */
function sendable(call: ToolCall): ToolCall {
  const { name, arguments: given } = call.function;
  return objectIn(given) === null ? { ...call, function: { name, arguments: '{}' } } : call;
}

/** Null where a text is no JSON object. */
function objectIn(text: string): object | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

async function answerOf(
  { id, function: { name, arguments: given } }: ToolCall,
  handlers: ReadonlyMap<string, Handler>,
  signal: AbortSignal | undefined,
): Promise<EngineChatMessage> {
  const message = (content: string): EngineChatMessage => ({ role: 'tool', tool_call_id: id, name, content });
  const failed = (why: string): EngineChatMessage => message(JSON.stringify({ error: why }));
  const handler = handlers.get(name);
  if (handler === undefined) return failed(`There is no tool "${name}".`);
  let args: unknown = objectIn(given);
  if (args === null) return failed(`The arguments are no JSON object: ${shown(given)}`);
  try {
    if (handler.read !== null) {
      args = await handler.read(given);
      if (args === null) return failed('The arguments are not what the tool takes.');
    }
    const value = await handler.tool.run(args as never, { id, signal });
    return message(typeof value === 'string' ? value : (JSON.stringify(value) ?? 'null'));
  } catch (error) {
    return failed(error instanceof Error ? error.message : String(error));
  }
}

function afterCalls(choice: ToolChoice | undefined): ToolChoice | undefined {
  if (choice === undefined || choice === 'none') return choice;
  return typeof choice === 'object' && 'mode' in choice ? { ...choice, mode: 'auto' } : 'auto';
}

function usageOf(results: readonly GenerationResult[]): GenerationResult['usage'] {
  const sum = (pick: (usage: GenerationResult['usage']) => number): number =>
    results.reduce((total, { usage }) => total + pick(usage), 0);
  const imageTokens = sum((usage) => usage.imageTokens ?? 0);
  const videoTokens = sum((usage) => usage.videoTokens ?? 0);
  return {
    promptTokens: sum((usage) => usage.promptTokens),
    cachedTokens: sum((usage) => usage.cachedTokens),
    completionTokens: sum((usage) => usage.completionTokens),
    ...(imageTokens === 0 ? {} : { imageTokens }),
    ...(videoTokens === 0 ? {} : { videoTokens }),
    reasoningTokens: sum((usage) => usage.reasoningTokens),
    totalTokens: sum((usage) => usage.totalTokens),
  };
}

function invalid(where: string, wanted: string): KvantError {
  return new KvantError('invalid-parameter', `\`${where}\` takes ${wanted}.`, {
    kind: 'invalid-request',
    where,
    fix: `Send ${wanted}.`,
  });
}
