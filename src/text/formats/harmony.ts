/**
 * gpt-oss: an answer is a row of messages, each on a channel: `<|channel|>analysis<|message|>…<|end|>` holds thoughts, `final` what is said,
 * `commentary` what is said before a call, and the call itself, whose message has a recipient:
 * `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>`. Another message begins with `<|start|>assistant`.
 */
import { choice, optional, sequence, text } from '../../grammar/expression.js';
import { freeText } from '../../grammar/triggered.js';
import { anyTool } from './call-grammar.js';
import { MessageReader, type Messages } from './message-reader.js';
import type { AnswerFrame, ToolFormat } from './tool-format.js';

const [START, CHANNEL, CONSTRAIN, MESSAGE] = ['<|start|>', '<|channel|>', '<|constrain|>', '<|message|>'];
const [END, CALL, RETURN] = ['<|end|>', '<|call|>', '<|return|>'];
/** What ends a message. */
const ENDS = [END, CALL, RETURN, START];
const [ROLE, RECIPIENT] = ['assistant', 'to='];
const FUNCTIONS = 'functions.';

const MESSAGES: Messages = {
  start: START,
  message: MESSAGE,
  ends: ENDS,
  between: [START, END],
  headerMarks: [CHANNEL, CONSTRAIN, MESSAGE],
  persons: new Set(['user', 'assistant', 'all']),
  isThought: (header) => /<\|channel\|>\s*analysis/.test(header),
  calledName: (recipient) =>
    recipient.startsWith(FUNCTIONS) ? recipient.slice(FUNCTIONS.length) : recipient,
};

const FRAME: AnswerFrame = {
  thoughts: {
    open: `${CHANNEL}analysis${MESSAGE}`,
    close: END,
    tokens: [CHANNEL, MESSAGE, END, START],
    behind: `${START}${ROLE}`,
  },
  begins(promptEnd) {
    return new MessageReader(MESSAGES, { promptEnd, reasoning: true, calls: true, tools: [] }).place;
  },
  reader: (options) => new MessageReader(MESSAGES, options),
  answer({ mark, calls, said, free, budget }) {
    if (calls !== null && said === null && !free) return calls;
    const content = said ?? freeText(ENDS, budget);
    const final = sequence(mark(CHANNEL), text('final'), mark(MESSAGE), content);
    if (calls === null) return final;
    const before = sequence(
      mark(CHANNEL),
      text('commentary'),
      mark(MESSAGE),
      freeText(ENDS, budget),
      mark(END),
      mark(START),
      text(ROLE),
    );
    // Where what is said has a form, nothing is said besides.
    return sequence(...(said === null ? [optional(before)] : []), choice(calls, final));
  },
};

export const HARMONY: ToolFormat = {
  name: 'harmony',
  tokens: [START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL],
  detect: ({ template, hasToken }) =>
    (template.includes(CHANNEL) && template.includes(MESSAGE)) || (hasToken(CHANNEL) && hasToken(RETURN)),
  frame: FRAME,
  grammar: {
    values: 'json',
    names: (name) => /^[^\s<]+$/.test(name),
    triggers: [CHANNEL],
    // The end of a call ends the answer: there is one in each.
    calls: (kit) =>
      anyTool(kit, ({ name, object }) => {
        const to = ` ${RECIPIENT}${FUNCTIONS}${name}`;
        const json = choice(text(' json'), sequence(text(' '), kit.mark(CONSTRAIN), text('json')));
        const headed = choice(
          sequence(kit.mark(CHANNEL), text(`commentary${to}`), optional(json)),
          sequence(text(to), kit.mark(CHANNEL), text('commentary'), optional(json)),
        );
        return sequence(headed, kit.mark(MESSAGE), object);
      }),
  },
  parser: (tools) => new MessageReader(MESSAGES, { promptEnd: '', reasoning: false, calls: true, tools }),
};
