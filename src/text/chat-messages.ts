import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { checkDepth } from './depth.js';
import { pythonJson } from './jinja/python-values.js';
import { toValue } from './jinja/values.js';
import { isJsonObject, type JsonObject } from './json-file.js';
import { parseLossless } from './lossless-json.js';

/** A piece of a message's content. */
export interface TextPart {
  readonly type: 'text';
  readonly text: string;
}

/** A message in the form of OpenAI's chat API; further fields are passed to the template as they are. */
export interface ChatMessage {
  readonly role: string;
  readonly content?: string | readonly TextPart[] | null | undefined;
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
 * Checks that a value is a list of chat messages that a text model can be given.
 *
 * @throws KvantError `invalid-messages` naming the field; `unsupported-content` for pictures, sound and files
 */
export function checkMessages(messages: unknown): readonly JsonObject[] {
  if (!Array.isArray(messages)) {
    throw invalid('messages', 'messages must be a list', 'Send [{"role": "user", "content": "…"}].');
  }
  if (messages.length === 0) {
    throw invalid('messages', 'messages is empty', 'Send at least one message.');
  }
  return messages.map((message: unknown, i) => checkMessage(message, `messages[${i}]`));
}

function checkMessage(message: unknown, where: string): JsonObject {
  if (!isJsonObject(message)) {
    throw invalid(where, `${where} must be an object`, 'A message has a role and a content.');
  }
  const role = message.role;
  if (typeof role !== 'string' || role === '') {
    throw invalid(`${where}.role`, `${where}.role must be a string`, 'Use system, user, assistant or tool.');
  }
  const hasCalls = checkToolCalls(message.tool_calls, `${where}.tool_calls`);
  const content = message.content;
  if (Array.isArray(content)) {
    content.forEach((part: unknown, i) => {
      checkPart(part, `${where}.content[${i}]`);
    });
  } else if (content === undefined || content === null) {
    const mayBeEmpty = role === 'assistant' && (hasCalls || reasoningOf(message) !== undefined);
    if (!mayBeEmpty) {
      throw invalid(
        `${where}.content`,
        `${where}.content is missing`,
        'Give a string; only an assistant message with tool calls goes without.',
      );
    }
  } else if (typeof content !== 'string') {
    throw invalid(
      `${where}.content`,
      `${where}.content must be a string or a list of text parts`,
      'Send a string, or [{"type": "text", "text": "…"}].',
    );
  }
  return message;
}

function checkPart(part: unknown, where: string): void {
  if (isJsonObject(part) && part.type === 'text' && typeof part.text === 'string') return;
  const type = isJsonObject(part) && typeof part.type === 'string' ? part.type : undefined;
  if (type !== undefined && MEDIA.test(type)) {
    const message = `${where} is of type "${shown(type)}": this model reads text only`;
    throw new KvantError('unsupported-content', message, {
      kind: 'unsupported',
      where,
      fix: 'Leave the part out, or describe it in text.',
    });
  }
  const what = type === undefined ? 'is no content part' : `has the unknown type "${shown(type)}"`;
  throw invalid(where, `${where} ${what}`, 'Send {"type": "text", "text": "…"}.');
}

/** @returns whether there are any */
function checkToolCalls(calls: unknown, where: string): boolean {
  if (calls === undefined || calls === null) return false;
  if (!Array.isArray(calls))
    throw invalid(where, `${where} must be a list`, 'Send the calls as the model made them.');
  calls.forEach((call: unknown, i) => {
    const body = isJsonObject(call) ? (call.function ?? call) : undefined;
    if (isJsonObject(body) && typeof body.name === 'string') return;
    throw invalid(
      `${where}[${i}]`,
      `${where}[${i}] names no function`,
      'Send {"type": "function", "function": {"name": "…", "arguments": "{}"}}.',
    );
  });
  return calls.length > 0;
}

/** The reasoning of an assistant message; clients and servers disagree on its name. */
export function reasoningOf(message: JsonObject): unknown {
  return message.reasoning_content ?? message.thinking ?? message.reasoning ?? undefined;
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
}

/**
 * The messages as the template is given them.
 *
 * @throws KvantError `invalid-messages` for a call in the history whose arguments are no JSON object
 */
export function adaptMessages(messages: readonly JsonObject[], abilities: TemplateAbilities): JsonObject[] {
  return messages.map((message, m) => {
    const adapted: Record<string, unknown> = { ...message };
    const reasoning = reasoningOf(message);
    if (reasoning !== undefined) {
      adapted.thinking ??= reasoning;
      adapted.reasoning_content = reasoning;
    }
    if (message.role === 'developer' && !abilities.developerRole) adapted.role = 'system';
    const content = message.content;
    if (Array.isArray(content) && abilities.content === 'string') {
      adapted.content = content.map((part: TextPart) => part.text).join('\n');
    } else if (typeof content === 'string' && abilities.content === 'parts') {
      adapted.content = [{ type: 'text', text: content }];
    }
    if (!Array.isArray(message.tool_calls) || message.tool_calls.length === 0) {
      // Clients send back `null` and `[]` as they got them; templates ask whether the field is there.
      delete adapted.tool_calls;
    } else {
      adapted.tool_calls = message.tool_calls.map((call: JsonObject, c) =>
        adaptCall(call, abilities, `messages[${m}].tool_calls[${c}]`),
      );
    }
    return adapted;
  });
}

function adaptCall(call: JsonObject, abilities: TemplateAbilities, where: string): JsonObject {
  if (isJsonObject(call.function))
    return { ...call, function: adaptCall(call.function, abilities, `${where}.function`) };
  const read = readArguments(call.arguments, `${where}.arguments`);
  const { argumentText, argumentObject } = abilities;
  // As they came, unless the template reads the other form only.
  const asText =
    typeof call.arguments === 'string' ? argumentText || !argumentObject : argumentText && !argumentObject;
  return { ...call, arguments: asText ? (read.text ?? pythonJson(toValue(read.object))) : read.object };
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
