/** Results of tools where a template has them as a field of the turn that called, as Gemma 4's has `tool_responses`. */
import { isJsonObject, type JsonObject } from './json-file.js';
import { parseLossless } from './lossless-json.js';

/** The conversation with results in the turns that called. What was said before a call is a turn of its own. */
export function withToolResponses(messages: readonly JsonObject[]): JsonObject[] {
  const turns: JsonObject[] = [];
  const names = new Map<unknown, unknown>();
  for (const message of messages) {
    if (message.role === 'tool') {
      const name = message.name ?? names.get(message.tool_call_id);
      const response = { ...(name === undefined ? {} : { name }), response: resultOf(message.content) };
      const last = turns.at(-1);
      if (last === undefined || (last.tool_calls === undefined && last.tool_responses === undefined))
        turns.push({ role: 'tool', content: '', tool_responses: [response] });
      else {
        const given = (last.tool_responses ?? []) as readonly unknown[];
        turns[turns.length - 1] = { ...last, tool_responses: [...given, response] };
      }
      continue;
    }
    if (!Array.isArray(message.tool_calls)) {
      turns.push(message);
      continue;
    }
    for (const call of message.tool_calls as readonly JsonObject[]) {
      const named = isJsonObject(call.function) ? call.function : call;
      if (call.id !== undefined) names.set(call.id, named.name);
    }
    const { content, role } = message;
    const said = typeof content === 'string' ? content.trim() !== '' : Array.isArray(content);
    if (said) turns.push({ role, content });
    turns.push({ ...message, content: '' });
  }
  return turns;
}

/** An object where it is the text of one. */
function resultOf(content: unknown): unknown {
  const text = Array.isArray(content)
    ? content.map((part: { readonly text?: unknown }) => part.text ?? '').join('\n')
    : (content ?? '');
  if (typeof text !== 'string') return text;
  try {
    const value = parseLossless(text);
    return isJsonObject(value) ? value : text;
  } catch {
    return text;
  }
}
