/**
 * What `kvant eval kv` scores teacher-forced: JSON lines with `text` (plain text, every token is scored, or those from `from` on), or with
 * `messages` and `answer` or `reference` (the tokens of the answer and the end of the turn are scored). Lines with pictures are asked alone.
 */
import type { ModelText } from '../../engine/model-text.js';
import type { EngineChatMessage } from '../../engine/types.js';
import { KvantError } from '../../errors.js';
import { parseJson, readText } from '../input.js';
import { hasImages } from './picture-line.js';

export interface ScoredText {
  readonly id: string;
  /** Results are also told by it: a kind of text, a range of lengths. */
  readonly group: string;
  readonly ids: Int32Array;
  /** The first token that is scored; at least 1, for nothing foretells the first. */
  readonly from: number;
}

export interface TextFilter {
  /** Only the first so many lines of the file. */
  readonly limit?: number | undefined;
  /** Only lines whose stated `prompt_tokens` are below this. */
  readonly maxPrompt?: number | undefined;
  /** The file is a question set: its lines with pictures are asked, and not scored. Else they are refused. */
  readonly asked?: boolean;
}

/** Errors: `file-not-readable`, `invalid-json`, `invalid-text-set`; those of the tokenizer and the template. */
export async function readTexts(
  path: string,
  text: ModelText,
  name: string,
  { limit, maxPrompt, asked = false }: TextFilter = {},
): Promise<ScoredText[]> {
  const lines = (await readText(path)).split('\n').filter((line) => line.trim().length > 0);
  const values = lines.map((line, i) => ({
    value: parseJson(line, `${path}:${i + 1}`) as Record<string, unknown>,
    where: `${path}:${i + 1}`,
    id: `${name}-${i + 1}`,
  }));
  const wanted = values.filter(
    ({ value }) => maxPrompt === undefined || Number(value?.prompt_tokens ?? 0) < maxPrompt,
  );
  const seen = wanted.slice(0, limit);
  const picture = seen.find(({ value }) => hasImages(value));
  if (picture !== undefined && !asked)
    throw new KvantError('invalid-text-set', `${picture.where} has pictures: it can be asked, not scored.`, {
      kind: 'invalid-request',
      where: picture.where,
      fix: 'Give its file to --set.',
    });
  const scored = picture !== undefined ? seen.filter(({ value }) => !hasImages(value)) : seen;
  const texts = scored.map((line) => toText(line, text, name));
  if (seen.length === 0) throw invalid(path, 'holds nothing that could be scored');
  return texts;
}

function toText(
  { value, where, id }: { value: Record<string, unknown>; where: string; id: string },
  text: ModelText,
  name: string,
): ScoredText {
  if (typeof value !== 'object' || value === null) throw invalid(where, 'is not an object');
  const label = value.bucket ?? value.group;
  const group = typeof label === 'string' ? `${name} ${label}` : name;
  if (typeof value.text === 'string') {
    const ids = text.encode(value.text, true);
    if (ids.length < 2) throw invalid(where, 'has no two tokens');
    const from = value.from ?? 1;
    if (!(Number.isSafeInteger(from) && (from as number) >= 1 && (from as number) < ids.length))
      throw invalid(where, `has ${ids.length} tokens, and none from ${JSON.stringify(from)} on`);
    return { id: String(value.id ?? id), group, ids, from: from as number };
  }
  const answer = value.reference ?? value.answer;
  if (!Array.isArray(value.messages) || typeof answer !== 'string')
    throw invalid(where, 'has neither a text nor messages with an answer');
  const messages = value.messages as EngineChatMessage[];
  const tools = Array.isArray(value.tools) ? { tools: value.tools as unknown[] } : {};
  const prompt = text.encode(text.render(messages, tools), false);
  const end = endOfTurn(text, messages, answer);
  const ids = Int32Array.from([...prompt, ...text.encode(answer, false), ...end]);
  return { id: String(value.id ?? id), group, ids, from: prompt.length };
}

/** The token with which the template ends an answer: of the several that a model may stop at, the one it was taught here. */
function endOfTurn(text: ModelText, messages: readonly EngineChatMessage[], answer: string): number[] {
  const stops = new Set(text.eosIds ?? []);
  const answered = [...messages, { role: 'assistant', content: answer }];
  const ids = text.encode(text.render(answered, { addGenerationPrompt: false }), false);
  const end = ids.findLast((id) => stops.has(id));
  return end === undefined ? [] : [end];
}

function invalid(where: string, what: string): KvantError {
  return new KvantError('invalid-text-set', `${where} ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: 'Write one JSON object a line, with "text", or with "messages" and "answer" or "reference".',
  });
}
