/**
 * Question sets: JSON lines of conversations with the expected answer, and how an answer is judged.
 *
 * - a line with `tools`: the answer must hold one `<tool_call>` whose JSON equals `expected`;
 * - a line with `bucket` (recall): the answer must contain `expected`, in any case of letters;
 * - any other line: the answer must equal `answer`. It may have `images` and a `question` in place of messages.
 */
import { basename } from 'node:path';
import type { Engine } from '../../engine/engine.js';
import type { EngineChatMessage, EngineOptions, GenerationResult } from '../../engine/types.js';
import { hasPictures } from '../../engine/vision/picture-parts.js';
import { KvantError } from '../../errors.js';
import { parseJson, parseLosslessJson, readText } from '../input.js';
import { atPlace, checkPictures, hasImages, withPictures } from './picture-line.js';

export interface Question {
  readonly id: string;
  /** File and line, for errors. */
  readonly place: string;
  /** The message is of the line's `images`. */
  readonly pictures: boolean;
  readonly messages: readonly EngineChatMessage[];
  readonly tools?: readonly unknown[];
  readonly expected: unknown;
  readonly answer?: string;
  /** Questions are counted by it: a kind of fact, a range of lengths. */
  readonly group: string;
  readonly judge: 'tool-call' | 'contains' | 'equals';
  readonly promptTokens?: number;
  /** What the reference answered, and whether that was right. */
  readonly reference?: string;
  readonly referenceOk?: boolean;
}

export interface Judged {
  readonly id: string;
  readonly group: string;
  readonly ok: boolean;
  readonly referenceOk: boolean | undefined;
  readonly sameAsReference: boolean | undefined;
  readonly text: string;
}

export interface SetResult {
  readonly set: string;
  readonly questions: number;
  readonly right: number;
  readonly referenceRight: number;
  readonly sameAsReference: number;
  readonly groups: Readonly<Record<string, { readonly right: number; readonly questions: number }>>;
  readonly wrong: readonly Judged[];
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly seconds: number;
}

/** What a set is called in reports: its file's name without `.jsonl`, `.jsonl.gz` or `.jsonl.br`. */
export function setName(path: string): string {
  return basename(path).replace(/\.jsonl(\.gz|\.br)?$/, '');
}

/** Errors: `file-not-readable`, `invalid-json`, `invalid-question-set`. */
export async function readQuestions(path: string): Promise<Question[]> {
  const lines = (await readText(path))
    .split('\n')
    .map((line, i) => ({ line, place: `${path}:${i + 1}` }))
    .filter(({ line }) => line.trim().length > 0);
  if (lines.length === 0) throw invalid(path, 'is empty');
  return lines.map(({ line, place }, i) => {
    const given = parseJson(line, place) as Record<string, unknown>;
    checkPictures(given, place);
    const value = withPictures(given);
    if (typeof value !== 'object' || value === null || !Array.isArray(value.messages))
      throw invalid(place, 'has no messages');
    // The prompt is made of what stands there.
    const prompt = withPictures(parseLosslessJson(line, path) as Record<string, unknown>);
    const tools = Array.isArray(prompt.tools) ? prompt.tools : undefined;
    const judge =
      tools !== undefined ? 'tool-call' : typeof value.bucket === 'string' ? 'contains' : 'equals';
    return {
      id: String(value.id ?? i),
      place,
      pictures: hasImages(given),
      messages: prompt.messages as EngineChatMessage[],
      expected: value.expected,
      group: String(value.bucket ?? value.type ?? 'all'),
      judge,
      ...(tools === undefined ? {} : { tools }),
      ...(typeof value.answer === 'string' ? { answer: value.answer } : {}),
      ...(typeof value.prompt_tokens === 'number' ? { promptTokens: value.prompt_tokens } : {}),
      ...(typeof value.reference === 'string' ? { reference: value.reference } : {}),
      ...(typeof value.reference_ok === 'boolean' ? { referenceOk: value.reference_ok } : {}),
    };
  });
}

/** Before the model is loaded. Errors: those of `checkSight`, in the place that the question has in its file. */
export async function checkSights(
  model: string,
  questions: readonly Question[],
  options: EngineOptions,
): Promise<void> {
  const seen = questions.find(({ messages }) => hasPictures(messages));
  if (seen === undefined) return;
  const { checkSight } = await import('../../engine/vision/sees.js');
  await checkSight(model, seen.messages, options).catch((error) => {
    throw atPlace(error, seen);
  });
}

/** Whether an answer is right. */
export function judgeAnswer(question: Question, text: string): boolean {
  if (question.judge === 'tool-call') return sameJson(toolCallOf(text), question.expected);
  if (question.judge === 'contains')
    return text.toLowerCase().includes(String(question.expected).toLowerCase());
  return text === question.answer;
}

/** Every answer of a set, in the order of its questions. */
export interface Answers {
  readonly judged: readonly Judged[];
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly seconds: number;
}

/** Asks all questions at once, greedily; the engine batches them. */
export async function askEach(
  engine: Engine,
  questions: readonly Question[],
  onAnswer: (done: number) => void = () => {},
): Promise<Answers> {
  const started = performance.now();
  let done = 0;
  let promptTokens = 0;
  let completionTokens = 0;
  const judged = new Array<Judged>(questions.length);
  // No more in the queue than it takes.
  const lanes = Math.min(questions.length, engine.info.limits.maxRows + engine.info.limits.maxQueue, 64);
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < questions.length) {
      const index = next++;
      const question = questions[index]!;
      const { text, usage } = await answerTo(engine, question);
      promptTokens += usage.promptTokens;
      completionTokens += usage.completionTokens;
      judged[index] = {
        id: question.id,
        group: question.group,
        ok: judgeAnswer(question, text),
        referenceOk: question.referenceOk,
        sameAsReference: question.reference === undefined ? undefined : question.reference === text,
        text,
      };
      onAnswer(++done);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return { judged, promptTokens, completionTokens, seconds: (performance.now() - started) / 1000 };
}

/** Errors: the engine's, in the place that the question has in its file. */
async function answerTo(engine: Engine, question: Question): Promise<GenerationResult> {
  try {
    return await engine.chat({
      messages: question.messages,
      ...(question.tools === undefined ? {} : { tools: question.tools }),
      parseReasoning: false,
      parseToolCalls: false,
      temperature: 0,
      maxTokens: question.judge === 'contains' ? 48 : 96,
    }).result;
  } catch (error) {
    throw atPlace(error, question);
  }
}

/** Asks a set and counts. */
export async function askAll(
  engine: Engine,
  set: string,
  questions: readonly Question[],
  onAnswer: (done: number) => void = () => {},
): Promise<SetResult> {
  const { judged, ...cost } = await askEach(engine, questions, onAnswer);
  const count = (test: (j: Judged) => boolean | undefined): number =>
    judged.filter((j) => test(j) === true).length;
  return {
    set,
    questions: questions.length,
    right: count((j) => j.ok),
    referenceRight: count((j) => j.referenceOk),
    sameAsReference: count((j) => j.sameAsReference),
    groups: countGroups(judged),
    wrong: judged.filter((j) => !j.ok),
    ...cost,
  };
}

export function countGroups(judged: readonly Judged[]): SetResult['groups'] {
  const groups: Record<string, { right: number; questions: number }> = {};
  for (const { group, ok } of judged) {
    groups[group] ??= { right: 0, questions: 0 };
    groups[group].questions++;
    if (ok) groups[group].right++;
  }
  return groups;
}

function toolCallOf(text: string): unknown {
  const match = /<tool_call>\s*([\s\S]*?)\s*<\/tool_call>/.exec(text);
  if (match?.[1] === undefined) return null;
  try {
    return JSON.parse(match[1]);
  } catch {
    return null;
  }
}

/** Equal as JSON values: the order of keys does not count. */
function sameJson(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((v, i) => sameJson(v, b[i]));
  if (typeof a === 'object' && typeof b === 'object' && a !== null && b !== null) {
    const [left, right] = [Object.entries(a), b as Record<string, unknown>];
    return (
      left.length === Object.keys(b).length && left.every(([k, v]) => k in right && sameJson(v, right[k]))
    );
  }
  return a === b;
}

function invalid(where: string, what: string): KvantError {
  return new KvantError('invalid-question-set', `${where} ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: 'Write one JSON object a line, with "messages" and "answer" or "expected".',
  });
}
