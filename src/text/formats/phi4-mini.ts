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
