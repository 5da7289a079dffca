import { sequence, text } from '../../grammar/expression.js';
import { jsonListOf } from './call-grammar.js';
import { jsonCalls } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const [OPEN, CLOSE, WORD] = ['<|tool_call|>', '<|/tool_call|>', 'functools'];

/** Phi-4-mini: `functools[{"name": …, "arguments": …}]`, or its token before the list. */
export const PHI4_MINI: ToolFormat = {
  name: 'phi4_mini_json',
  tokens: [OPEN, CLOSE],
  detect: ({ template, hasToken }) =>
    template.includes(`${WORD}[`) || template.includes('<|/tool|>') || hasToken(CLOSE),
  grammar: {
    values: 'json',
    triggers: [OPEN, WORD],
    calls(kit) {
      if (kit.template.includes(`${WORD}[`)) return sequence(text(WORD), jsonListOf(kit));
      return sequence(kit.mark(OPEN), jsonListOf(kit), kit.mark(CLOSE));
    },
  },
  parser: () =>
    new MarkedParser({
      marks: [OPEN, WORD],
      closers: [CLOSE],
      *read(input, sink, mark) {
        if (mark === WORD && (yield* input.peek()) !== '[') return null;
        return yield* jsonCalls(input, sink);
      },
    }),
};
