/** Takes a chat answer apart as it comes: thoughts, content and tool calls, each delivered in its own field. */
import { ReasoningSplitter } from '../text/reasoning.js';
import { ToolCallParser } from '../text/tool-calls.js';

export interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: string };
}

/** What one piece of an answer adds. Texts may be empty. */
export interface AnswerPiece {
  readonly reasoning: string;
  readonly content: string;
  readonly calls: readonly ToolCall[];
}

export interface AnswerParserOptions {
  /** Deliver a `<think>` block apart; `open` if the prompt has begun it already. */
  readonly reasoning: 'off' | 'closed' | 'open';
  /** Look for tool calls: `one` leaves out everything after the first. */
  readonly toolCalls: 'off' | 'one' | 'many';
}

/** One for each choice. */
export class AnswerParser {
  readonly #reasoning: ReasoningSplitter | null;
  readonly #tools: ToolCallParser | null;
  readonly #single: boolean;
  #calls = 0;

  constructor({ reasoning, toolCalls }: AnswerParserOptions) {
    this.#reasoning = reasoning === 'off' ? null : new ReasoningSplitter({ open: reasoning === 'open' });
    this.#tools = toolCalls === 'off' ? null : new ToolCallParser();
    this.#single = toolCalls === 'one';
  }

  /** Calls delivered so far. */
  get calls(): number {
    return this.#calls;
  }

  push(text: string): AnswerPiece {
    if (this.#reasoning === null) return this.#content('', text, false);
    const { reasoning, content } = this.#reasoning.push(text);
    return this.#content(reasoning, content, false);
  }

  end(): AnswerPiece {
    const { reasoning, content } = this.#reasoning?.end() ?? { reasoning: '', content: '' };
    return this.#content(reasoning, content, true);
  }

  /** The whole answer at once. */
  static parse(text: string, options: AnswerParserOptions): AnswerPiece {
    const parser = new AnswerParser(options);
    const [body, rest] = [parser.push(text), parser.end()];
    return {
      reasoning: body.reasoning + rest.reasoning,
      content: body.content + rest.content,
      calls: [...body.calls, ...rest.calls],
    };
  }

  #content(reasoning: string, text: string, last: boolean): AnswerPiece {
    if (this.#tools === null) return { reasoning, content: text, calls: [] };
    const pieces = [...this.#tools.push(text), ...(last ? this.#tools.end() : [])];
    let content = '';
    const calls: ToolCall[] = [];
    for (const piece of pieces) {
      if (this.#single && this.#calls > 0) break;
      if (piece.type === 'text') {
        content += piece.text;
        continue;
      }
      this.#calls++;
      calls.push({
        id: `call_${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`,
        type: 'function',
        function: { name: piece.name, arguments: piece.arguments },
      });
    }
    return { reasoning, content, calls };
  }
}
