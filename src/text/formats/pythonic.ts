import { choice, sequence } from '../../grammar/expression.js';
import { NEWLINE, pythonCallsOf } from './call-grammar.js';
import { MarkedParser } from './marked-parser.js';
import { pythonCalls } from './python-call.js';
import type { ToolFormat } from './tool-format.js';

const [START, END] = ['<|python_start|>', '<|python_end|>'];
const [SECTION, SECTION_END] = ['<function_calls>', '</function_calls>'];

/** Llama 3.2 and 4, Olmo 3: a list of Python calls that is the whole answer, or between marks. */
export const PYTHONIC: ToolFormat = {
  name: 'pythonic',
  tokens: [START, END, SECTION, SECTION_END],
  detect: ({ template, hasToken }) =>
    [START, SECTION, '[func_name1('].some((shown) => template.includes(shown)) || hasToken(START),
  grammar: {
    values: 'python',
    triggers: [START, SECTION],
    starts: '[',
    calls(kit) {
      if (kit.template.includes(SECTION))
        return sequence(
          kit.mark(SECTION),
          NEWLINE,
          pythonCallsOf(kit, false),
          NEWLINE,
          kit.mark(SECTION_END),
        );
      const list = pythonCallsOf(kit, true);
      if (!kit.hasToken(START)) return list;
      return choice(list, sequence(kit.mark(START), list, kit.mark(END)));
    },
  },
  parser: () =>
    new MarkedParser({
      marks: [START, SECTION],
      starts: '[',
      closers: [END, SECTION_END],
      read: (input, sink) => pythonCalls(input, sink),
    }),
};
