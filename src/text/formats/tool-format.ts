/**
 * What a format of tool calls is made of. Each has a file in this folder that exports one object; formats.ts lists them.
 *
 * A parser reads text. A format whose calls are marked by special tokens names them in `tokens`: the detokenizer leaves special
 * tokens out of texts, and spells these.
 */

import type { Expression } from '../../grammar/expression.js';
import type { Budget } from '../../grammar/limits.js';
import type { ThoughtMarks } from '../thought-marks.js';
import type { CallGrammar } from './call-grammar.js';

/** What a piece of an answer brings. */
export type ToolPiece =
  | { readonly type: 'text'; readonly text: string }
  /** A call begins; `arguments`: as much of their JSON text as is known. `id`: the model's own for it, where it writes one. */
  | { readonly type: 'call'; readonly name: string; readonly arguments: string; readonly id?: string }
  /** More of the arguments of the call that began last. */
  | { readonly type: 'arguments'; readonly text: string }
  /** Thoughts, of a format that frames whole answers. */
  | { readonly type: 'reasoning'; readonly text: string };

/**
 * Reads one answer. Text is given out as soon as it can be no call, a call once its name is known. What is no call stays
 * text. The pieces in which the answer arrives make no difference to what comes out.
 */
export interface ToolCallParser {
  push(text: string): ToolPiece[];
  /** The answer is over: what was held back. */
  end(): ToolPiece[];
}

/** Reads one answer whole: thoughts, texts and calls. */
export interface FrameReader extends ToolCallParser {
  /** What comes next is thought, as far as is known. */
  readonly thinking: boolean;
}

export interface FrameReaderOptions {
  /** End of the rendered prompt; empty where an answer begins anew. */
  readonly promptEnd: string;
  /** Thoughts are given out as such; else they stay text, as the model wrote them. */
  readonly reasoning: boolean;
  /** The same of calls. */
  readonly calls: boolean;
  /** The request's tools. */
  readonly tools: readonly unknown[];
}

/** What a grammar of a framed answer is made of. */
export interface FrameParts {
  /** As `CallKit` has it. */
  mark(text: string): Expression;
  /** All calls of an answer; null where there are none. */
  readonly calls: Expression | null;
  /** The form of what is said; null for none. */
  readonly said: Expression | null;
  /** Whether a text without a form may be said. */
  readonly free: boolean;
  readonly budget: Budget;
}

/** How a format frames whole answers, so that nothing stands outside of messages. */
export interface AnswerFrame {
  readonly thoughts: ThoughtMarks;
  /** Where an answer to a prompt that ends so begins: before its first message, in its thoughts, or in what is said. */
  begins(promptEnd: string): 'message' | 'thoughts' | 'text';
  reader(options: FrameReaderOptions): FrameReader;
  /** A whole answer, its thoughts apart. */
  answer(parts: FrameParts): Expression;
}

/** What is known of a model when its format is looked for. */
export interface FormatClues {
  /** Source of the chat template; empty where there is none. */
  readonly template: string;
  /** Whether the tokenizer has this text as one token. */
  hasToken(text: string): boolean;
}

/**
 * The way in which a family of models writes tool calls.
 *
 * @example
 * export const SHOUTING: ToolFormat = {
 *   name: 'shouting',
 *   detect: ({ template }) => template.includes('CALL!'),
 *   parser: () => new MarkedParser({ marks: ['CALL!'], read: jsonCalls }),
 * };
 */
export interface ToolFormat {
  /** As users name it; that of vLLM's parser where there is one. */
  readonly name: string;
  /** Tokens that mark calls, spelled out for the parser where the tokenizer calls them special. */
  readonly tokens?: readonly string[];
  /** Beginnings of calls that end thoughts: models of this format call at times with their block still open. */
  readonly interrupts?: readonly string[];
  /** Whether the model writes calls so. */
  detect(clues: FormatClues): boolean;
  /** The one form of calls that an answer may be held to: what the parser reads. Without it calls cannot be forced. */
  readonly grammar?: CallGrammar;
  /** Where whole answers are framed: then this reads them, and says what thoughts stand in. */
  readonly frame?: AnswerFrame;
  /** A parser for one answer. `tools`: the request's, in OpenAI's form; formats that write values without quotes need their schemas. */
  parser(tools: readonly unknown[]): ToolCallParser;
  /** An id for a call that brings none, where the template wants ids of a certain form. Default `call_` and 24 digits. */
  callId?(): string;
}
