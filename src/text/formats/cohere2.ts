import { jsonCalls } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const [OPEN, CLOSE] = ['<|START_ACTION|>', '<|END_ACTION|>'];

/** Command R7B and Command A: `<|START_ACTION|>[{"tool_call_id": "0", "tool_name": …, "parameters": {…}}]<|END_ACTION|>`. */
export const COHERE2: ToolFormat = {
  name: 'cohere2',
  tokens: [OPEN, CLOSE],
  detect: ({ template }) => template.includes(OPEN),
  parser: () =>
    new MarkedParser({
      marks: [OPEN],
      closers: [CLOSE],
      read: (input, sink) => jsonCalls(input, sink),
    }),
};
