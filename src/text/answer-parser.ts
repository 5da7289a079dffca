/** Takes a chat answer apart as it comes: thoughts, text and tool calls, each delivered in its own field. */
import type { FrameReader, ToolCallParser, ToolFormat } from './formats/tool-format.js';
import { ReasoningSplitter } from './reasoning.js';
import { openedIn, type ThoughtMarks } from './thought-marks.js';

/** A call that the model wants made, in the form in which a conversation hands it back. */
export interface ToolCall {
  /** Unlike any other, made up by kvant unless the model writes ids; the tool's answer names it as `tool_call_id`. */
  readonly id: string;
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    /** JSON text, as the model wrote it: of an object, unless the model made a mistake or was cut off. */
    readonly arguments: string;
  };
}

/** What is new about a call. */
export interface ToolCallDelta {
  /** Which call of the answer, from 0. */
  readonly index: number;
  /** With the first delta of a call, as are `type` and the name. */
  readonly id?: string;
  readonly type?: 'function';
  readonly function: {
    readonly name?: string;
    /** The next characters of the JSON text. */
    readonly arguments: string;
  };
}

/** What one piece of an answer adds. Texts may be empty. */
export interface AnswerPiece {
  readonly reasoning: string;
  readonly text: string;
  readonly toolCalls: readonly ToolCallDelta[];
}

export interface AnswerParserOptions {
  /** Deliver a block of thoughts apart; its marks if the prompt has begun it already. */
  readonly reasoning: 'off' | 'closed' | ThoughtMarks;
  /** Look for tool calls of this format; null: for none. */
  readonly toolFormat: ToolFormat | null;
  /** End of the prompt, for formats that frame whole answers. Default: an answer begins anew. */
  readonly promptEnd?: string;
  /** Reads the answer of a model whose format frames it; `toolFormat` is null where calls are not looked for. */
  readonly framed?: ToolFormat | null;
  /** The request's, which formats may read. Default: none. */
  readonly tools?: readonly unknown[];
  /** A call may end thoughts whose block is open, where the format knows of such. Default false. */
  readonly interrupts?: boolean;
  /** Leave out everything after the first call. Default false. */
  readonly oneCall?: boolean;
}

/** The fields of a chat request that say how its answer is taken apart. */
export interface AnswerRequest {
  readonly tools?: readonly unknown[] | undefined;
  readonly parseReasoning?: boolean | undefined;
  readonly parseToolCalls?: boolean | undefined;
  readonly parallelToolCalls?: boolean | undefined;
}

/**
 * Makes the parsers of a request's choices.
 *
 * @param prompt the rendered prompt, or its end: it may have begun a block of thoughts
 * @param format in which the model writes calls
 * @param free no grammar holds the answer: it may call with its thoughts still open
 */
export function answerParsers(
  request: AnswerRequest,
  prompt: string,
  format: ToolFormat,
  free = true,
): () => AnswerParser {
  const { tools = [], parseReasoning = true, parseToolCalls = true, parallelToolCalls = true } = request;
  const options: AnswerParserOptions = {
    reasoning: parseReasoning ? (openedIn(prompt) ?? 'closed') : 'off',
    toolFormat: parseToolCalls && tools.length > 0 ? format : null,
    tools,
    interrupts: free,
    oneCall: !parallelToolCalls,
    promptEnd: prompt,
    framed: format.frame === undefined ? null : format,
  };
  return () => new AnswerParser(options);
}

const NO_CALLS: readonly ToolCallDelta[] = [];

/** One for each choice. */
export class AnswerParser {
  readonly #reasoning: ReasoningSplitter | null;
  readonly #tools: ToolCallParser | null;
  readonly #frame: FrameReader | null;
  readonly #oneCall: boolean;
  readonly #makeId: () => string;
  #calls = 0;
  /** The one call that is wanted is over. */
  #over = false;

  constructor({
    reasoning,
    toolFormat,
    tools = [],
    interrupts = false,
    oneCall = false,
    promptEnd = '',
    framed = null,
  }: AnswerParserOptions) {
    const opened = typeof reasoning === 'string' ? null : reasoning;
    this.#frame =
      framed?.frame?.reader({
        promptEnd,
        reasoning: reasoning !== 'off',
        calls: toolFormat !== null,
        tools,
      }) ?? null;
    const ends = interrupts ? (toolFormat?.interrupts ?? []) : [];
    this.#reasoning =
      reasoning === 'off' || this.#frame !== null
        ? null
        : new ReasoningSplitter({ opened, interrupts: ends });
    this.#tools = this.#frame ?? toolFormat?.parser(tools) ?? null;
    this.#makeId = toolFormat?.callId?.bind(toolFormat) ?? callId;
    this.#oneCall = oneCall;
  }

  /** What comes next is thought, as far as is known. */
  get thinking(): boolean {
    return (this.#frame ?? this.#reasoning)?.thinking ?? false;
  }

  push(text: string): AnswerPiece {
    if (this.#reasoning === null) return this.#content('', text, false);
    const { reasoning, content } = this.#reasoning.push(text);
    return this.#content(reasoning, content, false);
  }

  /** The answer is over: what was held back. */
  end(): AnswerPiece {
    const { reasoning, content } = this.#reasoning?.end() ?? { reasoning: '', content: '' };
    return this.#content(reasoning, content, true);
  }

  #content(thoughts: string, given: string, last: boolean): AnswerPiece {
    if (this.#tools === null) return { reasoning: thoughts, text: given, toolCalls: NO_CALLS };
    const pieces = this.#tools.push(given);
    if (last) pieces.push(...this.#tools.end());
    let reasoning = thoughts;
    let text = '';
    const toolCalls: ToolCallDelta[] = [];
    for (const piece of pieces) {
      if (piece.type !== 'arguments') this.#over ||= this.#oneCall && this.#calls > 0;
      if (this.#over) break;
      if (piece.type === 'text') text += piece.text;
      else if (piece.type === 'reasoning') reasoning += piece.text;
      else if (piece.type === 'arguments')
        toolCalls.push({ index: this.#calls - 1, function: { arguments: piece.text } });
      else toolCalls.push(firstDelta(this.#calls++, piece.id ?? this.#makeId(), piece.name, piece.arguments));
    }
    return { reasoning, text, toolCalls };
  }
}

const callId = (): string => `call_${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`;

function firstDelta(index: number, id: string, name: string, given: string): ToolCallDelta {
  return { index, id, type: 'function', function: { name, arguments: given } };
}

/** Adds deltas to calls that are being put together; `calls` and the arguments in it grow. */
export function addToolCalls(calls: ToolCall[], deltas: readonly ToolCallDelta[]): void {
  for (const { index, id = '', function: fn } of deltas) {
    const known = calls[index];
    const name = known?.function.name ?? fn.name ?? '';
    const whole = (known?.function.arguments ?? '') + fn.arguments;
    calls[index] = { id: known?.id ?? id, type: 'function', function: { name, arguments: whole } };
  }
}

/** One list of deltas for two: what is new about the same call is joined. */
export function joinToolCalls(
  deltas: readonly ToolCallDelta[],
  more: readonly ToolCallDelta[],
): readonly ToolCallDelta[] {
  if (deltas.length === 0) return more;
  const joined = [...deltas];
  for (const delta of more) {
    const last = joined.at(-1)!;
    if (last.index !== delta.index) joined.push(delta);
    else {
      const text = last.function.arguments + delta.function.arguments;
      joined[joined.length - 1] = { ...last, function: { ...last.function, arguments: text } };
    }
  }
  return joined;
}
