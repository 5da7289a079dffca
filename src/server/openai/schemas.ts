/** The request bodies of OpenAI's routes, as far as they are not sampling parameters (sampling/params.ts). */
import { z } from 'zod';
import { PRIORITY_RANGE } from '../../engine/request-check.js';
import type { ChatRequest, GenerateRequest } from '../../engine/types.js';
import { KvantError } from '../../errors.js';
import type { SamplingOptions } from '../../sampling/options.js';
import { KNOWN_WIRE_FIELDS, samplingFromWire } from '../../sampling/params.js';
import { checkToolList } from '../../text/tool-check.js';
import { anyObject, listOf, prompts } from '../first-fault.js';
import { type Body, type KnownFields, parseFields, refuseUnknown } from '../request-body.js';
import { imageFields } from './image-fields.js';
import { CHAT_LABELS, HINT_FIELDS, LABELS } from './label-fields.js';
import { REASONING_REQUEST_FIELDS, reasoningFields } from './reasoning-fields.js';
import { structuredOutput } from './structured-output.js';
import { readToolChoice } from './tool-choice.js';

const yesOrNo = z.boolean('takes true or false').nullish();

const streamOptions = z.looseObject(
  {
    include_usage: yesOrNo,
    include_obfuscation: yesOrNo,
    continuous_usage_stats: yesOrNo,
  },
  'takes an object',
);

const PRIORITIES = `takes a whole number from -${PRIORITY_RANGE} to ${PRIORITY_RANGE}`;

const common = {
  ...LABELS,
  model: z.string('takes a string').nullish(),
  stream: yesOrNo,
  stream_options: streamOptions.optional().nullable(),
  priority: z.int(PRIORITIES).min(-PRIORITY_RANGE, PRIORITIES).max(PRIORITY_RANGE, PRIORITIES).nullish(),
  queue_timeout: z.number('takes seconds above 0').positive('takes seconds above 0').nullish(),
  cache_salt: z
    .string('takes a string')
    .min(1, 'takes a string that is not empty')
    .max(4096, 'takes at most 4096 characters')
    .optional()
    .nullable(),
  response_format: z.unknown().optional(),
  structured_outputs: z.unknown().optional(),
  json_schema: z.unknown().optional(),
  grammar: z.unknown().optional(),
  store: z.literal(false, 'storing completions is not supported').optional().nullable(),
};

const PART = 'takes an object such as {"type": "text", "text": "…"}';
const parts = listOf(
  z.looseObject({ type: z.string('takes the type of the part, such as "text" or "image_url"') }, PART),
);

/** A union would not say which of the parts is wrong. */
const content = z
  .unknown()
  .transform((value, context): string | null | undefined | z.output<typeof parts> => {
    if (typeof value === 'string' || value === null || value === undefined) return value;
    const message = 'takes a string, or a list of parts such as {"type": "text", "text": "…"}';
    const read = Array.isArray(value) ? parts.safeParse(value) : null;
    if (read?.success === true) return read.data;
    const [issue] = read?.error.issues ?? [];
    context.addIssue({ code: 'custom', message: issue?.message ?? message, path: issue?.path ?? [] });
    return z.NEVER;
  })
  .optional();

const message = z.looseObject(
  {
    role: z.enum(
      ['system', 'developer', 'user', 'assistant', 'tool'],
      'takes "system", "developer", "user", "assistant" or "tool"',
    ),
    content,
  },
  'takes an object such as {"role": "user", "content": "…"}',
);

const tool = z.looseObject(
  { type: z.string('takes "function"') },
  'takes an object such as {"type": "function", "function": {"name": "…"}}',
);

const chatSchema = z.object({
  ...common,
  ...CHAT_LABELS,
  messages: listOf(message).refine((list) => list.length > 0, 'takes at least one message'),
  tools: listOf(tool).nullish(),
  tool_choice: z.unknown().optional(),
  parallel_tool_calls: yesOrNo,
  modalities: z
    .tuple([z.literal('text', 'takes "text"')], 'takes ["text"]')
    .optional()
    .nullable(),
  ...(Object.fromEntries(REASONING_REQUEST_FIELDS.map((name) => [name, z.unknown().optional()])) as Record<
    (typeof REASONING_REQUEST_FIELDS)[number],
    z.ZodOptional<z.ZodUnknown>
  >),
  chat_template_kwargs: anyObject.optional().nullable(),
  mm_processor_kwargs: anyObject.optional().nullable(),
  enable_thinking: yesOrNo,
  add_generation_prompt: yesOrNo,
});

const completionSchema = z.object({
  ...common,
  prompt: prompts,
  add_special_tokens: yesOrNo,
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

const namesOf = (schema: z.ZodObject): ReadonlySet<string> =>
  new Set([...Object.keys(schema.shape), ...KNOWN_WIRE_FIELDS]);
const CHAT_NAMES = namesOf(chatSchema);
const COMPLETION_NAMES = namesOf(completionSchema);

const CHAT_FIELDS: KnownFields = {
  names: CHAT_NAMES,
  elsewhere: (name) =>
    name === 'prompt'
      ? 'Write `messages`, or use /v1/completions.'
      : COMPLETION_NAMES.has(name)
        ? 'It is a parameter of /v1/completions.'
        : undefined,
};
const COMPLETION_FIELDS: KnownFields = {
  names: COMPLETION_NAMES,
  elsewhere: (name) => (CHAT_NAMES.has(name) ? 'It is a parameter of /v1/chat/completions.' : undefined),
};

/** The names of all fields that the routes take: what documentation has to say something of. */
export const requestFields = (): {
  readonly chat: readonly string[];
  readonly completions: readonly string[];
} => ({
  chat: [...CHAT_NAMES],
  completions: [...COMPLETION_NAMES],
});

/** Objects in a body, with the names of what they may hold. */
const NESTED: Readonly<Record<string, readonly string[]>> = {
  ...HINT_FIELDS,
  stream_options: Object.keys(streamOptions.shape),
};

/** What both routes look at: names, values, and names within values. */
function readFields<T extends z.ZodObject>(schema: T, body: Body, known: KnownFields): z.output<T> {
  refuseUnknown(body, known);
  const fields = parseFields(schema, body);
  for (const [name, names] of Object.entries(NESTED)) {
    const inner = body[name];
    if (known.names.has(name) && typeof inner === 'object' && inner !== null && !Array.isArray(inner))
      refuseUnknown(inner as Body, { names: new Set(names), prefix: `${name}.` });
  }
  return fields;
}

/** What both routes ask for besides their requests. */
export interface StreamChoice {
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** Usage so far with every chunk. */
  readonly continuousUsage: boolean;
  /** Chunks of lengths that tell less of the text. */
  readonly obfuscate: boolean;
  readonly model: string | undefined;
}

/** What both routes are told of errors by. */
export interface FormField {
  /** The field that asks for a form of the answer; null for none. */
  readonly formField: string | null;
}

export interface ParsedChat extends StreamChoice, FormField {
  readonly request: ChatRequest;
}

/** What a body of either route comes to. */
export interface OpenAiAsked extends StreamChoice, FormField {
  /** One for each prompt. */
  readonly requests: readonly (ChatRequest | GenerateRequest)[];
}

export interface ParsedCompletion extends StreamChoice, FormField {
  /** One request for each prompt. */
  readonly requests: readonly GenerateRequest[];
}

/** Errors: 400s that name the field, see request-body.ts and sampling/params.ts. */
export function parseChat(body: Body): ParsedChat {
  const fields = readFields(chatSchema, body, CHAT_FIELDS);
  const choice = readToolChoice(fields.tool_choice);
  // What was checked, but as it came: the checks rebuild objects, and the order of their keys shows in the prompt.
  const given = body as Pick<ChatRequest, 'messages' | 'tools'> & {
    readonly chat_template_kwargs?: Readonly<Record<string, unknown>> | null;
  };
  refuseOwnPictures(given.messages);
  const imageProcessor = imageFields(body);
  const { enableThinking, ...reasoning } = reasoningFields(body);
  const templateOptions = templateVariables(
    fields.enable_thinking ?? enableThinking,
    given.chat_template_kwargs ?? {},
  );
  // Also those that the model is not to see.
  const offered = checkToolList(given.tools ?? []);
  const tools = choice === 'none' || offered.length === 0 ? undefined : offered;
  const stream = streamChoice(fields);
  const { form, formField } = structuredOutput(body);
  const sampling = { ...samplingFromWire(body), ...form };
  refuseBestOfStream(stream, sampling);
  return {
    ...stream,
    formField,
    request: {
      ...sampling,
      ...queueOptions(fields),
      ...salt(fields),
      ...reasoning,
      messages: given.messages,
      ...(imageProcessor === undefined ? {} : { imageProcessor }),
      ...(tools === undefined ? {} : { tools }),
      ...(choice === 'auto' || choice === 'none' ? {} : { toolChoice: choice }),
      ...(fields.parallel_tool_calls == null ? {} : { parallelToolCalls: fields.parallel_tool_calls }),
      ...(Object.keys(templateOptions).length === 0 ? {} : { templateOptions }),
      ...(fields.add_generation_prompt == null ? {} : { addGenerationPrompt: fields.add_generation_prompt }),
    },
  };
}

/** The library's own forms of pictures and videos may be a path: nobody reads the server's files by it. */
function refuseOwnPictures(messages: ChatRequest['messages']): void {
  messages.forEach(({ content }, m) => {
    if (!Array.isArray(content)) return;
    const p = content.findIndex((part: { readonly type?: unknown }) =>
      OWN_FORMS.includes(part.type as string),
    );
    if (p < 0) return;
    const { type } = content[p] as { readonly type: string };
    const where = `messages[${m}].content[${p}]`;
    throw new KvantError(
      'invalid-messages',
      `${where} has the type "${type}", which is not of this protocol.`,
      {
        kind: 'invalid-request',
        where,
        fix:
          type === 'video'
            ? 'Send {"type": "video_url", "video_url": {"url": "data:image/gif;base64,…"}}.'
            : 'Send {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}.',
      },
    );
  });
}

const OWN_FORMS: readonly string[] = ['image', 'video'];

function templateVariables(
  thinking: boolean | undefined,
  given: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  if (thinking === undefined) return given;
  const other = given.enable_thinking ?? thinking;
  if (other === thinking) return { ...given, enable_thinking: thinking };
  throw new KvantError(
    'conflicting-parameters',
    '`enable_thinking` and `chat_template_kwargs.enable_thinking` differ.',
    { kind: 'invalid-request', where: 'enable_thinking', fix: 'Send one of them.' },
  );
}

export function parseCompletion(body: Body): ParsedCompletion {
  const fields = readFields(completionSchema, body, COMPLETION_FIELDS);
  const { form, formField } = structuredOutput(body);
  const sampling = { ...samplingFromWire(body, 'text'), ...form };
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
    formField,
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
  readonly stream_options?: z.output<typeof streamOptions> | null | undefined;
  readonly model?: string | null | undefined;
}): StreamChoice {
  const stream = fields.stream ?? false;
  const options = fields.stream_options ?? {};
  if (fields.stream_options != null && !stream) {
    throw new KvantError('invalid-parameter', '`stream_options` is only for streaming requests.', {
      kind: 'invalid-request',
      where: 'stream_options',
      fix: 'Send "stream": true, or leave `stream_options` out.',
    });
  }
  return {
    stream,
    includeUsage: options.include_usage ?? false,
    continuousUsage: options.continuous_usage_stats ?? false,
    obfuscate: options.include_obfuscation ?? false,
    model: fields.model ?? undefined,
  };
}
