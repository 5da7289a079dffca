import { sequence, text } from '../../grammar/expression.js';
import { ArgumentTypes } from './argument-types.js';
import { anyTool, endsOf, NEWLINE, several, taggedArguments } from './call-grammar.js';
import { jsonCalls } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { TagStyle } from './tag-style.js';
import { taggedCall } from './tagged-call.js';
import type { ToolFormat } from './tool-format.js';

const [OPEN, CLOSE, KEY] = ['<tool_call>', '</tool_call>', '<arg_key>'];

const TAGS: TagStyle = {
  open: KEY,
  named: ['</arg_key>'],
  value: '<arg_value>',
  close: '</arg_value>',
  end: CLOSE,
  lines: false,
};

/** GLM 4.5 and later: `<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n</tool_call>`, the line breaks left out since 4.7. */
export const GLM: ToolFormat = {
  name: 'glm45',
  tokens: [OPEN, CLOSE, KEY, '</arg_key>', '<arg_value>', '</arg_value>'],
  detect: ({ template }) => template.includes(KEY),
  grammar: {
    values: 'raw',
    ends: endsOf(TAGS),
    triggers: [OPEN],
    calls(kit) {
      const call = anyTool(kit, (tool) =>
        sequence(
          kit.mark(OPEN),
          text(tool.name),
          taggedArguments(kit, tool, TAGS, NEWLINE, () =>
            sequence(kit.mark('</arg_key>'), NEWLINE, kit.mark('<arg_value>')),
          ),
          NEWLINE,
          kit.mark(CLOSE),
        ),
      );
      return several(kit, call, NEWLINE);
    },
  },
  parser: (tools) => {
    const types = new ArgumentTypes(tools);
    return new MarkedParser({
      marks: [OPEN],
      *read(input, sink) {
        const first = yield* input.next();
        if (first === '{' || first === '[') return yield* jsonCalls(input, sink);
        const found = yield* input.name(['\n', KEY, CLOSE]);
        if (found === null) return null;
        yield* taggedCall(input, sink, found.name, TAGS, types, found.mark === '\n' ? null : found.mark);
        return '';
      },
      closers: [CLOSE],
    });
  },
};
