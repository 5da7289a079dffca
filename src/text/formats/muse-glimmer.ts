/**
 * Muse Glimmer: an answer is a row of messages, each to somebody: `to=self` are thoughts, `to=user` is what is said, and a call goes to its
 * tool, one in each message:
 *
 *     ` to=self<|message|>…<|eom|><|start|>assistant to=f<|message|><atem:function_calls>
 *     <atem:invoke name="f">
 *     <atem:parameter name="k">v</atem:parameter>
 *     </atem:invoke>
 *     </atem:function_calls><|eot|>`
 */
import { choice, sequence, text } from '../../grammar/expression.js';
import { freeText } from '../../grammar/triggered.js';
import { ArgumentTypes, toolNames } from './argument-types.js';
import { anyTool, endsOf, several, taggedArguments } from './call-grammar.js';
import { jsonObject } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import { MessageReader, type Messages } from './message-reader.js';
import type { TagStyle } from './tag-style.js';
import { taggedCall } from './tagged-call.js';
import type { AnswerFrame, ToolCallParser, ToolFormat } from './tool-format.js';

const [START, MESSAGE, END, LAST] = ['<|start|>', '<|message|>', '<|eom|>', '<|eot|>'];
const ENDS = [END, LAST, START];
const [OUTER, OUTER_END, INVOKE] = ['<atem:function_calls>', '</atem:function_calls>', '<atem:invoke name="'];
const [ROLE, SELF, USER] = ['assistant', ' to=self', ' to=user'];

const TAGS: TagStyle = {
  open: '<atem:parameter name="',
  named: ['">'],
  close: '</atem:parameter>',
  end: '</atem:invoke>',
  lines: false,
};
/** As the model writes them: a line each. */
const LINES: TagStyle = { ...TAGS, close: `${TAGS.close}\n` };
const NAMED = ['">'];

/** `recipient`: whose message it is. Without tags it is a call of that tool, with the arguments as JSON. */
function callsOf(tools: readonly unknown[], recipient: string): ToolCallParser {
  const types = new ArgumentTypes(tools);
  const known = new Set(toolNames(tools));
  return new MarkedParser({
    marks: [OUTER, INVOKE],
    starts: '{',
    closers: [OUTER_END],
    *read(input, sink, mark) {
      if (mark === '') {
        sink.call(ownName(recipient, known));
        yield* jsonObject(input, (more) => sink.args(more));
        return '';
      }
      if (mark === OUTER) {
        yield* input.gap();
        if (!(yield* input.literal(INVOKE))) return null;
      }
      const found = yield* input.name(NAMED);
      if (found === null) return null;
      yield* taggedCall(input, sink, ownName(found.name, known), TAGS, types);
      return '';
    },
  });
}

/** The template speaks of the tools `f.*` to the model, so that one that is called `f` is called `f.f` too. */
function ownName(name: string, known: ReadonlySet<string>): string {
  const half = name.slice(0, (name.length - 1) / 2);
  return name === `${half}.${half}` && !known.has(name) && known.has(half) ? half : name;
}

const MESSAGES: Messages = {
  start: START,
  message: MESSAGE,
  ends: ENDS,
  between: [START, END, LAST],
  headerMarks: [MESSAGE],
  persons: new Set(['self', 'user', 'assistant', 'all']),
  isThought: (header) => /to=self(?:<|\s|$)/.test(header),
  calledName: (recipient) => recipient,
  calls: callsOf,
};

const FRAME: AnswerFrame = {
  thoughts: {
    open: `${SELF}${MESSAGE}`,
    close: END,
    tokens: [MESSAGE, END, START],
    behind: `${START}${ROLE}`,
  },
  begins: (promptEnd) =>
    new MessageReader(MESSAGES, { promptEnd, reasoning: true, calls: true, tools: [] }).place,
  reader: (options) => new MessageReader(MESSAGES, options),
  answer({ mark, calls, said, free, budget }) {
    if (calls !== null && said === null && !free) return calls;
    const final = sequence(text(USER), mark(MESSAGE), said ?? freeText(ENDS, budget));
    return calls === null ? final : choice(calls, final);
  },
};

export const MUSE_GLIMMER: ToolFormat = {
  name: 'muse_glimmer',
  tokens: [START, MESSAGE, END],
  detect: ({ template }) => template.includes(INVOKE),
  frame: FRAME,
  grammar: {
    values: 'raw',
    ends: endsOf(TAGS),
    triggers: [OUTER, INVOKE],
    calls(kit) {
      const call = anyTool(kit, (tool) =>
        sequence(
          text(` to=${tool.name}`),
          kit.mark(MESSAGE),
          text(`${OUTER}\n${INVOKE}${tool.name}">\n`),
          taggedArguments(kit, tool, LINES, text('')),
          text(`${TAGS.end}\n${OUTER_END}`),
        ),
      );
      return several(kit, call, sequence(kit.mark(END), kit.mark(START), text(ROLE)));
    },
  },
  parser: (tools) => new MessageReader(MESSAGES, { promptEnd: '', reasoning: false, calls: true, tools }),
};
