import { sequence } from '../../grammar/expression.js';
import { SPACE } from '../../grammar/json/terminals.js';
import { jsonListOf } from './call-grammar.js';
import { jsonCalls } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const [OPEN, CLOSE] = ['<TOOLCALL>', '</TOOLCALL>'];

/** Nemotron Nano v2, and the Llama-Nemotrons: `<TOOLCALL>[{"name": …, "arguments": {…}}]</TOOLCALL>`. Nemotron 3 writes as Qwen3-Coder does. */
export const NEMOTRON: ToolFormat = {
  name: 'nemotron_json',
  tokens: [OPEN, CLOSE],
  detect: ({ template }) => template.includes(OPEN),
  grammar: {
    values: 'json',
    triggers: [OPEN],
    calls: (kit) => sequence(kit.mark(OPEN), SPACE, jsonListOf(kit), SPACE, kit.mark(CLOSE)),
  },
  parser: () =>
    new MarkedParser({
      marks: [OPEN],
      closers: [CLOSE],
      read: (input, sink) => jsonCalls(input, sink),
    }),
};
