import { didYouMean } from '../did-you-mean.js';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { checkDepth } from './depth.js';
import { pythonJson } from './jinja/json.js';
import { fromPlain } from './jinja/values.js';
import { isJsonObject, type JsonObject } from './json-file.js';
import { parseLossless } from './lossless-json.js';
import { withToolResponses } from './tool-responses.js';

/** A piece of a message's content. */
export interface TextPart {
  readonly type: 'text';
  readonly text: string;
}

/** What OpenAI's models say in place of an answer; the template is given it as text. */
export interface RefusalPart {
  readonly type: 'refusal';
  readonly refusal: string;
}

/** A message in the form of OpenAI's chat API; further fields are passed to the template as they are. */
export interface ChatMessage {
  readonly role: string;
  readonly content?: string | readonly (TextPart | RefusalPart)[] | null | undefined;
  readonly reasoning_content?: string | null | undefined;
  readonly tool_calls?: readonly ChatToolCall[] | null | undefined;
  readonly tool_call_id?: string | undefined;
  readonly name?: string | undefined;
}

export interface ChatToolCall {
  readonly id?: string | undefined;
  readonly type?: 'function' | undefined;
  /** `arguments` is a JSON text, as OpenAI's API has it, or the object itself. */
  readonly function: { readonly name: string; readonly arguments: string | JsonObject };
}

/** Content types that OpenAI-style clients send for pictures, sound and files. */
const MEDIA = /image|video|audio|file/;

function invalid(where: string, message: string, fix: string): KvantError {
  return new KvantError('invalid-messages', message, { kind: 'invalid-request', where, fix });
}

/**
 * Checks that a value is a list of chat messages that a text model can be given; with `images` parts `{ type: 'image' }` and `{ type: 'video' }` are
 * pictures and videos.
 *
 * @throws KvantError `invalid-messages` naming the field; `unsupported-content` for pictures, sound and files
 */
export function checkMessages(messages: unknown, { images = false } = {}): readonly JsonObject[] {
  if (!Array.isArray(messages)) {
    throw invalid('messages', 'messages must be a list', 'Send [{"role": "user", "content": "…"}].');
  }
  if (messages.length === 0) {
    throw invalid('messages', 'messages is empty', 'Send at least one message.');
  }
  return messages.map((message: unknown, i) => checkMessage(message, `messages[${i}]`, images));
}

function checkMessage(message: unknown, where: string, images: boolean): JsonObject {
  if (!isJsonObject(message)) {
    throw invalid(where, `${where} must be an object`, 'A message has a role and a content.');
  }
  const role = message.role;
  if (typeof role !== 'string' || role === '') {
    throw invalid(`${where}.role`, `${where}.role must be a string`, 'Use system, user, assistant or tool.');
  }
  checkFields(message, where);
  checkToolCalls(message.tool_calls, `${where}.tool_calls`);
  const content = message.content;
  if (Array.isArray(content)) {
    content.forEach((part: unknown, i) => {
      if (!images || !isImage(part)) checkPart(part, role, `${where}.content[${i}]`);
    });
  } else if (content === undefined || content === null) {
    // Clients send answers back as they got them: of a model that said nothing, or called tools, the content is null.
    if (role === 'assistant') return message;
    throw invalid(
      `${where}.content`,
      `${where}.content is missing`,
      'Give a string; only a message of the assistant goes without.',
    );
  } else if (typeof content !== 'string') {
    throw invalid(
      `${where}.content`,
      `${where}.content must be a string or a list of text parts`,
      'Send a string, or [{"type": "text", "text": "…"}].',
    );
  }
  return message;
}

const isText = (value: unknown): boolean => typeof value === 'string';

/** Fields that clients send back as they got them, or that templates read; null says nothing, in any of them. */
const FIELDS: Readonly<Record<string, readonly [accepts: (value: unknown) => boolean, takes: string]>> = {
  name: [isText, 'a string'],
  tool_call_id: [isText, 'a string'],
  refusal: [isText, 'a string'],
  reasoning_content: [isText, 'a string'],
  reasoning: [isText, 'a string'],
  thinking: [isText, 'a string'],
  tool_plan: [isText, 'a string'],
  annotations: [Array.isArray, 'a list'],
  audio: [isJsonObject, 'an object'],
  function_call: [isJsonObject, 'an object'],
};

/** Where other protocols have the pictures of a message. No template reads them there: the model would be asked without. */
const ELSEWHERE = ['images', 'image', 'image_url', 'image_urls', 'videos', 'video', 'video_url'];

function checkFields(message: JsonObject, where: string): void {
  const media = ELSEWHERE.find((name) => message[name] !== undefined && message[name] !== null);
  if (media !== undefined)
    throw invalid(
      `${where}.${media}`,
      `${where}.${media} is no field of a message: pictures are parts of its content`,
      'Send content: [{"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}, {"type": "text", "text": "…"}].',
    );
  for (const [name, [accepts, takes]] of Object.entries(FIELDS)) {
    const value = message[name];
    if (value === undefined || value === null || accepts(value)) continue;
    throw invalid(`${where}.${name}`, `${where}.${name} must be ${takes}`, `Send ${takes}, or leave it out.`);
  }
}

/** Fields of a part that tell a cache where to begin or end: kvant's finds that by itself. */
const HINTS = ['cache_control', 'prompt_cache_breakpoint'];

/** Types of parts that hold what a model sees. */
const SEEN = ['image_url', 'video_url', 'input_image', 'image', 'video'];

/** What a picture or a video has become for templates. */
const isImage = (part: unknown): boolean =>
  isJsonObject(part) && (part.type === 'image' || part.type === 'video');

function checkPart(part: unknown, role: string, where: string): void {
  const type = isJsonObject(part) && isText(part.type) ? (part.type as string) : undefined;
  if (type !== undefined && MEDIA.test(type)) {
    // A model that sees has been given none of those as they came.
    const why = SEEN.includes(type) ? ': this model reads text only' : ', which this model does not read';
    const meant = SEEN.includes(type) ? '' : didYouMean(type, SEEN).trim();
    throw new KvantError('unsupported-content', `${where} is of type "${shown(type)}"${why}`, {
      kind: 'unsupported',
      where,
      fix: `${meant} Leave the part out, or describe it in text.`.trim(),
    });
  }
  const key = type === 'refusal' && role === 'assistant' ? 'refusal' : 'text';
  if (!isJsonObject(part) || type !== key || typeof part[key] !== 'string') {
    const what =
      type === key
        ? `has no ${key}`
        : type === undefined
          ? 'is no content part'
          : `has the unknown type "${shown(type)}"`;
    throw invalid(where, `${where} ${what}`, 'Send {"type": "text", "text": "…"}.');
  }
  const known = ['type', key, ...HINTS];
  for (const name of Object.keys(part)) {
    if (known.includes(name) || part[name] === undefined || part[name] === null) continue;
    const named = `${where}.${shown(name)}`;
    throw invalid(
      named,
      `${named} is no field of a part of type "${key}"`,
      didYouMean(name, known).trim() || 'Check the spelling, or leave it out.',
    );
  }
}

function checkToolCalls(calls: unknown, where: string): void {
  if (calls === undefined || calls === null) return;
  if (!Array.isArray(calls))
    throw invalid(where, `${where} must be a list`, 'Send the calls as the model made them.');
  calls.forEach((call: unknown, i) => {
    const body = isJsonObject(call) ? (call.function ?? call) : undefined;
    if (isJsonObject(call) && isJsonObject(body) && typeof body.name === 'string') {
      for (const name of ['id', 'type'] as const)
        if (call[name] !== undefined && call[name] !== null && !isText(call[name]))
          throw invalid(
            `${where}[${i}].${name}`,
            `${where}[${i}].${name} must be a string`,
            'Send the calls as the model made them.',
          );
      return;
    }
    throw invalid(
      `${where}[${i}]`,
      `${where}[${i}] names no function`,
      'Send {"type": "function", "function": {"name": "…", "arguments": "{}"}}.',
    );
  });
}

/** Names of an assistant's thoughts; clients, servers and templates disagree on it. */
export const REASONING_FIELDS = ['reasoning_content', 'thinking', 'reasoning', 'tool_plan'] as const;

export function reasoningOf(message: JsonObject): unknown {
  return REASONING_FIELDS.map((name) => message[name]).find((given) => given != null);
}

/** Fields whose meaning is in their place: no template need read them. */
const STRUCTURE = new Set(['role', 'content', 'tool_call_id']);

/** The fields of messages that say something, each with where it occurs first. */
export function fieldsOf(messages: readonly JsonObject[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const [m, message] of messages.entries())
    for (const name of Object.keys(message)) {
      if (found.has(name) || STRUCTURE.has(name) || saysNothing(message[name])) continue;
      found.set(name, `messages[${m}].${name}`);
    }
  return found;
}

function saysNothing(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === false) return true;
  return Array.isArray(value) ? value.length === 0 : isJsonObject(value) && Object.keys(value).length === 0;
}

/** What a template is able to read; the rest is put into a form that it can. */
export interface TemplateAbilities {
  /** The forms of `content` whose text the template shows. */
  readonly content: 'string' | 'parts' | 'both';
  /** `arguments` of tool calls may be JSON text. */
  readonly argumentText: boolean;
  /** `arguments` of tool calls may be an object. */
  readonly argumentObject: boolean;
  /** The template knows the role `developer`. */
  readonly developerRole: boolean;
  /** A call without content is told from one with an empty content, or shown alike; else `null` shows as a word. */
  readonly nullContent: boolean;
  /** Each call is a turn of its own whose `metadata` is the tool's name, and the role of results is `observation`, as in GLM-4. */
  readonly observations: boolean;
  /** Results of tools are a field of the turn that called (`tool_responses`), and no messages, as in Gemma 4. */
  readonly toolResponses: boolean;
}

/**
 * The messages as the template is given them.
 *
 * @throws KvantError `invalid-messages` for a call in the history whose arguments are no JSON object
 */
export function adaptMessages(messages: readonly JsonObject[], abilities: TemplateAbilities): JsonObject[] {
  const adapted = messages.map((message, m) => adaptMessage(message, m, abilities));
  if (abilities.toolResponses) return withToolResponses(adapted);
  return abilities.observations ? adapted.flatMap(asTurns) : adapted;
}

function adaptMessage(message: JsonObject, m: number, abilities: TemplateAbilities): JsonObject {
  const adapted: Record<string, unknown> = { ...message };
  // Clients send back what they got, null in fields that said nothing; templates ask whether a field is there.
  for (const name of Object.keys(adapted))
    if (name !== 'content' && (adapted[name] === null || adapted[name] === undefined)) delete adapted[name];
  const reasoning = reasoningOf(message);
  if (reasoning !== undefined) for (const name of REASONING_FIELDS) adapted[name] ??= reasoning;
  if (message.role === 'developer' && !abilities.developerRole) adapted.role = 'system';
  const content: unknown = Array.isArray(message.content)
    ? (message.content as (TextPart | RefusalPart)[]).map((part) => (isImage(part) ? part : textPart(part)))
    : message.content;
  adapted.content = content;
  if (content === undefined) delete adapted.content;
  else if (content === null) {
    const called = hasCalls(message) || isJsonObject(message.function_call);
    if (!called || !abilities.nullContent) adapted.content = '';
  }
  if (Array.isArray(content) && abilities.content === 'string') {
    adapted.content = content.some(isImage) ? content : content.map((part: TextPart) => part.text).join('\n');
  } else if (typeof content === 'string' && abilities.content === 'parts') {
    adapted.content = [{ type: 'text', text: content }];
  }
  if (!hasCalls(message)) {
    // The same of an empty list.
    delete adapted.tool_calls;
  } else {
    adapted.tool_calls = message.tool_calls.map((call: JsonObject, c) =>
      adaptCall(call, abilities, `messages[${m}].tool_calls[${c}]`),
    );
  }
  return adapted;
}

/** A message in the roles of GLM-4's template. */
function asTurns(message: JsonObject): JsonObject[] {
  if (message.role === 'tool') return [{ ...message, role: 'observation' }];
  if (!hasCalls(message)) return [message];
  const { tool_calls: calls, ...rest } = message;
  const turns = calls.map((call) => {
    const { name, arguments: args } = (call.function ?? call) as { name: string; arguments: unknown };
    const content = typeof args === 'string' ? args : pythonJson(fromPlain(args));
    return { role: 'assistant', metadata: name, content };
  });
  return rest.content === undefined || rest.content === '' ? turns : [rest, ...turns];
}

function hasCalls(message: JsonObject): message is JsonObject & { readonly tool_calls: JsonObject[] } {
  return Array.isArray(message.tool_calls) && message.tool_calls.length > 0;
}

const textPart = (part: TextPart | RefusalPart): TextPart => ({
  type: 'text',
  text: part.type === 'text' ? part.text : part.refusal,
});

function adaptCall(call: JsonObject, abilities: TemplateAbilities, where: string): JsonObject {
  if (isJsonObject(call.function))
    return { ...call, function: adaptCall(call.function, abilities, `${where}.function`) };
  const read = readArguments(call.arguments, `${where}.arguments`);
  const { argumentText, argumentObject } = abilities;
  // As they came, unless the template reads the other form only.
  const asText =
    typeof call.arguments === 'string' ? argumentText || !argumentObject : argumentText && !argumentObject;
  return { ...call, arguments: asText ? (read.text ?? pythonJson(fromPlain(read.object))) : read.object };
}

/** The arguments of a call, and the text in which they came. Nothing, in any spelling, is no arguments. */
function readArguments(
  given: unknown,
  where: string,
): { readonly object: JsonObject; readonly text?: string } {
  const refuse = (what: string): never => {
    throw invalid(
      where,
      `${where} ${what}`,
      'Send a JSON object, or its text: {"city": "Rome"}. A call without arguments has {}.',
    );
  };
  let value = given;
  if (typeof given === 'string') {
    try {
      value = given.trim() === '' ? null : parseLossless(given, { constants: true });
    } catch (error) {
      return refuse(`is not JSON: ${(error as Error).message}`);
    }
  }
  // PHP writes an empty object as an empty list.
  if (value === undefined || value === null || (Array.isArray(value) && value.length === 0))
    return { object: {}, text: '{}' };
  if (!isJsonObject(value)) return refuse('must be a JSON object, as text or as it is');
  checkDepth(value, where);
  return typeof given === 'string' ? { object: value, text: given } : { object: value };
}
