/**
 * Command R7B, Command A: thoughts, then calls or what is said, each between marks of its own:
 *
 *     <|START_THINKING|>…<|END_THINKING|><|START_ACTION|>[{"tool_call_id": "0", "tool_name": …, "parameters": {…}}]<|END_ACTION|>
 *     <|START_RESPONSE|>…<|END_RESPONSE|>
 *
 * Source: the chat templates of CohereForAI/c4ai-command-r7b-12-2024, which tell the model so.
 */
import { choice, sequence, text } from '../../grammar/expression.js';
import { braces, list, member, SPACE } from '../../grammar/json/terminals.js';
import { freeText } from '../../grammar/triggered.js';
import { ReasoningSplitter } from '../reasoning.js';
import { anyTool, INDEX, several } from './call-grammar.js';
import { jsonCalls } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { AnswerFrame, FrameReader, FrameReaderOptions, ToolFormat, ToolPiece } from './tool-format.js';

const [OPEN, CLOSE] = ['<|START_ACTION|>', '<|END_ACTION|>'];
const [SAID, SAID_END] = ['<|START_RESPONSE|>', '<|END_RESPONSE|>'];
const THOUGHTS = { open: '<|START_THINKING|>', close: '<|END_THINKING|>' };
const ROLE = '<|CHATBOT_TOKEN|>';

const callsAndText = (calls: boolean): MarkedParser =>
  new MarkedParser({
    marks: calls ? [OPEN] : [],
    closers: calls ? [CLOSE] : [],
    dropped: [SAID, SAID_END],
    read: (input, sink) => jsonCalls(input, sink),
  });

class Cohere2Reader implements FrameReader {
  /** Null where thoughts stay in the text. */
  readonly #thoughts: ReasoningSplitter | null;
  readonly #rest: MarkedParser;

  constructor({ promptEnd, reasoning, calls }: FrameReaderOptions) {
    const opened = FRAME.begins(promptEnd) === 'thoughts' ? THOUGHTS : null;
    this.#thoughts = reasoning ? new ReasoningSplitter({ opened }) : null;
    this.#rest = callsAndText(calls);
  }

  get thinking(): boolean {
    return this.#thoughts?.thinking ?? false;
  }

  push(text: string): ToolPiece[] {
    if (this.#thoughts === null) return this.#rest.push(text);
    return this.#pieces(this.#thoughts.push(text));
  }

  end(): ToolPiece[] {
    const last = this.#thoughts === null ? [] : this.#pieces(this.#thoughts.end());
    return [...last, ...this.#rest.end()];
  }

  #pieces({ reasoning, content }: { readonly reasoning: string; readonly content: string }): ToolPiece[] {
    const thought: ToolPiece[] = reasoning === '' ? [] : [{ type: 'reasoning', text: reasoning }];
    return content === '' ? thought : [...thought, ...this.#rest.push(content)];
  }
}

const FRAME: AnswerFrame = {
  thoughts: THOUGHTS,
  begins(promptEnd) {
    const at = (mark: string): number => promptEnd.lastIndexOf(mark);
    const begun = Math.max(at(ROLE), at(THOUGHTS.close));
    if (at(THOUGHTS.open) > begun) return 'thoughts';
    if (Math.max(at(SAID), at(OPEN)) > begun) return 'text';
    // Of an answer that goes on as it was begun, without marks.
    const mark = at(ROLE) > at(THOUGHTS.close) ? ROLE : THOUGHTS.close;
    return begun >= 0 && promptEnd.slice(begun + mark.length).trim() !== '' ? 'text' : 'message';
  },
  reader: (options) => new Cohere2Reader(options),
  answer({ mark, calls, said, free, budget }) {
    if (calls !== null && said === null && !free) return calls;
    const final = sequence(mark(SAID), said ?? freeText([SAID_END], budget), mark(SAID_END));
    return calls === null ? final : choice(calls, final);
  },
};

export const COHERE2: ToolFormat = {
  name: 'cohere2',
  tokens: [OPEN, CLOSE, SAID, SAID_END, THOUGHTS.open, THOUGHTS.close],
  detect: ({ template }) => template.includes(OPEN) || template.includes(SAID),
  frame: FRAME,
  grammar: {
    values: 'json',
    triggers: [OPEN],
    calls(kit) {
      const index = sequence(text('"'), INDEX, text('"'));
      const call = anyTool(kit, ({ name, object }) => {
        const members = [
          member(text('"tool_call_id"'), index),
          member(text('"tool_name"'), text(JSON.stringify(name))),
          member(text('"parameters"'), object),
        ];
        return braces(
          '{',
          list(
            members.map((item) => ({ item, optional: false })),
            null,
          ),
          '}',
        );
      });
      const calls = several(kit, call, sequence(text(','), SPACE));
      return sequence(kit.mark(OPEN), text('['), SPACE, calls, SPACE, text(']'), kit.mark(CLOSE));
    },
  },
  parser: () => callsAndText(true),
};
