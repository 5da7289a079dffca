import { sequence } from '../../grammar/expression.js';
import { SPACE } from '../../grammar/json/terminals.js';
import { jsonListOf } from './call-grammar.js';
import { jsonCalls } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const [TOKEN, TAG] = ['<|tool_call|>', '<tool_call>'];

/** Granite 3: `<|tool_call|>[{"name": …, "arguments": …}]`, `<tool_call>[…]` in versions before. Granite 4 writes as Hermes does. */
export const GRANITE: ToolFormat = {
  name: 'granite',
  tokens: [TOKEN, TAG],
  detect: ({ template, hasToken }) =>
    template.includes(TOKEN) || (!template.includes(TAG) && hasToken(TOKEN)),
  grammar: {
    values: 'json',
    triggers: [TOKEN, TAG],
    calls: (kit) => sequence(kit.mark(kit.hasToken(TOKEN) ? TOKEN : TAG), SPACE, jsonListOf(kit)),
  },
  parser: () =>
    new MarkedParser({
      marks: [TOKEN, TAG],
      closers: ['</tool_call>'],
      read: (input, sink) => jsonCalls(input, sink),
    }),
};
