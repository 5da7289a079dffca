import { sequence, text } from '../../grammar/expression.js';
import { braces, list, member, SPACE } from '../../grammar/json/terminals.js';
import { anyTool, INDEX, several } from './call-grammar.js';
import { jsonCalls } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const [OPEN, CLOSE] = ['<|START_ACTION|>', '<|END_ACTION|>'];

/** Command R7B and Command A: `<|START_ACTION|>[{"tool_call_id": "0", "tool_name": …, "parameters": {…}}]<|END_ACTION|>`. */
export const COHERE2: ToolFormat = {
  name: 'cohere2',
  tokens: [OPEN, CLOSE],
  detect: ({ template }) => template.includes(OPEN),
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
  parser: () =>
    new MarkedParser({
      marks: [OPEN],
      closers: [CLOSE],
      read: (input, sink) => jsonCalls(input, sink),
    }),
};
