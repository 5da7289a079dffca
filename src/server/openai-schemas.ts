/** The request bodies of OpenAI's routes, as far as they are not sampling parameters (sampling/params.ts). */
import { z } from 'zod';
import { PRIORITY_RANGE } from '../engine/request-check.js';
import type { ChatRequest, GenerateRequest } from '../engine/types.js';
import { KvantError } from '../errors.js';
import type { SamplingOptions } from '../sampling/options.js';
import { KNOWN_WIRE_FIELDS, samplingFromWire } from '../sampling/params.js';
import { anyObject, listOf, prompts } from './first-fault.js';
import { type Body, parseFields, refuseUnknown } from './request-body.js';

/** Accepted, and without any effect by their nature: labels and hints to a billing or caching service. */
const LABELS = [
  'user',
  'metadata',
  'safety_identifier',
  'prompt_cache_key',
  'service_tier',
  'verbosity',
] as const;

const common = {
  model: z.string().optional().nullable(),
  stream: z.boolean().optional().nullable(),
  stream_options: z.strictObject({ include_usage: z.boolean().nullish() }).optional().nullable(),
  priority: z
    .int()
    .min(-PRIORITY_RANGE)
    .max(PRIORITY_RANGE, `takes a whole number from -${PRIORITY_RANGE} to ${PRIORITY_RANGE}`)
    .optional()
    .nullable(),
  queue_timeout: z.number().positive('takes seconds above 0').optional().nullable(),
  cache_salt: z
    .string()
    .min(1, 'takes a string that is not empty')
    .max(4096, 'takes at most 4096 characters')
    .optional()
    .nullable(),
  store: z.literal(false, 'storing completions is not supported').optional().nullable(),
};

const message = z.looseObject({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']),
  content: z.union([z.string(), listOf(z.looseObject({ type: z.string() })), z.null()]).optional(),
});

const chatSchema = z.object({
  ...common,
  messages: listOf(message).refine((list) => list.length > 0, 'takes at least one message'),
  tools: listOf(z.looseObject({ type: z.string() }))
    .optional()
    .nullable(),
  tool_choice: z
    .enum(
      ['auto', 'none'],
      'takes "auto" or "none"; forcing a tool call needs structured output, which is not supported',
    )
    .optional()
    .nullable(),
  parallel_tool_calls: z.boolean().optional().nullable(),
  modalities: z
    .tuple([z.literal('text')], 'takes ["text"]')
    .optional()
    .nullable(),
  reasoning_effort: z.never('is not supported; use chat_template_kwargs').optional().nullable(),
  chat_template_kwargs: anyObject.optional().nullable(),
  enable_thinking: z.boolean().optional().nullable(),
  add_generation_prompt: z.boolean().optional().nullable(),
});

const completionSchema = z.object({
  ...common,
  prompt: prompts,
  echo: z.literal(false, 'echo is not supported').optional().nullable(),
  suffix: z.literal('', 'suffix is not supported').optional().nullable(),
  add_special_tokens: z.boolean().optional().nullable(),
});

/** Which of the answers are the best is known when all have ended. */
function refuseBestOfStream({ stream }: StreamChoice, { n, bestOf }: SamplingOptions): void {
  if (!stream || (bestOf ?? 0) <= (n ?? 1)) return;
  throw new KvantError('conflicting-parameters', '`best_of` above `n` cannot be streamed.', {
    kind: 'invalid-request',
    where: 'best_of',
    fix: 'Send "stream": false, or leave `best_of` out.',
  });
}

/** Members of a chat's body that its template prints: they are read losslessly, and passed on as they came. */
export const TEMPLATE_FIELDS = ['messages', 'tools', 'chat_template_kwargs'] as const;

const known = (schema: z.ZodObject): ReadonlySet<string> =>
  new Set([...Object.keys(schema.shape), ...KNOWN_WIRE_FIELDS, ...LABELS]);
const CHAT_FIELDS = known(chatSchema);
const COMPLETION_FIELDS = known(completionSchema);

export interface StreamChoice {
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly model: string | undefined;
}

export interface ParsedChat extends StreamChoice {
  readonly request: ChatRequest;
}

export interface ParsedCompletion extends StreamChoice {
  /** One request for each prompt. */
  readonly requests: readonly GenerateRequest[];
}

/** Errors: 400s that name the field, see request-body.ts and sampling/params.ts. */
export function parseChat(body: Body): ParsedChat {
  const fields = parseFields(chatSchema, body);
  refuseUnknown(body, CHAT_FIELDS);
  // What was checked, but as it came: the checks rebuild objects, and the order of their keys shows in the prompt.
  const given = body as Pick<ChatRequest, 'messages' | 'tools'> & {
    readonly chat_template_kwargs?: Readonly<Record<string, unknown>> | null;
  };
  const templateOptions = {
    ...(fields.enable_thinking == null ? {} : { enable_thinking: fields.enable_thinking }),
    ...given.chat_template_kwargs,
  };
  // The `developer` role is OpenAI's newer name of `system`; templates know only the latter.
  const messages = given.messages.map((m) => (m.role === 'developer' ? { ...m, role: 'system' } : m));
  const offered = fields.tool_choice === 'none' ? [] : (given.tools ?? []);
  const tools = offered.length === 0 ? undefined : offered;
  const stream = streamChoice(fields);
  const sampling = samplingFromWire(body);
  refuseBestOfStream(stream, sampling);
  return {
    ...stream,
    request: {
      ...sampling,
      ...queueOptions(fields),
      ...salt(fields),
      messages,
      ...(tools === undefined ? {} : { tools }),
      ...(fields.parallel_tool_calls == null ? {} : { parallelToolCalls: fields.parallel_tool_calls }),
      ...(Object.keys(templateOptions).length === 0 ? {} : { templateOptions }),
      ...(fields.add_generation_prompt == null ? {} : { addGenerationPrompt: fields.add_generation_prompt }),
    },
  };
}

export function parseCompletion(body: Body): ParsedCompletion {
  const fields = parseFields(completionSchema, body);
  refuseUnknown(body, COMPLETION_FIELDS);
  const sampling = samplingFromWire(body, 'text');
  const stream = streamChoice(fields);
  refuseBestOfStream(stream, sampling);
  const { prompt } = fields;
  const each: (string | number[])[] =
    typeof prompt === 'string'
      ? [prompt]
      : typeof prompt[0] === 'number'
        ? [prompt as number[]]
        : (prompt as string[] | number[][]);
  return {
    ...stream,
    // OpenAI's default of this route is 16.
    requests: each.map((p) => ({
      maxTokens: 16,
      ...sampling,
      ...queueOptions(fields),
      ...salt(fields),
      prompt: p,
      ...(fields.add_special_tokens == null ? {} : { addSpecialTokens: fields.add_special_tokens }),
    })),
  };
}

/** Where the request wants to stand in the queue. */
function queueOptions(fields: {
  readonly priority?: number | null | undefined;
  readonly queue_timeout?: number | null | undefined;
}): Pick<ChatRequest, 'priority' | 'queueTimeoutMs'> {
  const { priority, queue_timeout: timeout } = fields;
  return {
    ...(priority == null ? {} : { priority }),
    ...(timeout == null ? {} : { queueTimeoutMs: 1000 * timeout }),
  };
}

function salt({ cache_salt }: { readonly cache_salt?: string | null | undefined }): { cacheSalt?: string } {
  return cache_salt == null ? {} : { cacheSalt: cache_salt };
}

function streamChoice(fields: {
  readonly stream?: boolean | null | undefined;
  readonly stream_options?: { readonly include_usage?: boolean | null | undefined } | null | undefined;
  readonly model?: string | null | undefined;
}): StreamChoice {
  const stream = fields.stream ?? false;
  if (fields.stream_options != null && !stream) {
    throw new KvantError('invalid-parameter', '`stream_options` is only for streaming requests.', {
      kind: 'invalid-request',
      where: 'stream_options',
      fix: 'Send "stream": true, or leave `stream_options` out.',
    });
  }
  return {
    stream,
    includeUsage: fields.stream_options?.include_usage ?? false,
    model: fields.model ?? undefined,
  };
}
