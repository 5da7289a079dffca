import { sequence } from '../../grammar/expression.js';
import { pythonCallsOf } from './call-grammar.js';
import { jsonCalls } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import { pythonCalls } from './python-call.js';
import type { ToolFormat } from './tool-format.js';

const [OPEN, CLOSE] = ['<|tool_call_start|>', '<|tool_call_end|>'];

/** LFM2: `<|tool_call_start|>[f(a=1)]<|tool_call_end|>`, or JSON where a system prompt asks for that. */
export const LFM2: ToolFormat = {
  name: 'lfm2',
  tokens: [OPEN, CLOSE],
  detect: ({ template, hasToken }) => template.includes(OPEN) || hasToken(OPEN),
  grammar: {
    values: 'python',
    triggers: [OPEN],
    calls: (kit) => sequence(kit.mark(OPEN), pythonCallsOf(kit, true), kit.mark(CLOSE)),
  },
  parser: () =>
    new MarkedParser({
      marks: [OPEN],
      closers: [CLOSE],
      *read(input, sink) {
        if ((yield* input.next()) === '{') return yield* jsonCalls(input, sink);
        return yield* pythonCalls(input, sink);
      },
    }),
};
