import { sequence, text } from '../../grammar/expression.js';
import { ArgumentTypes } from './argument-types.js';
import { anyTool, endsOf, several, taggedArguments } from './call-grammar.js';
import { jsonCalls } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { TagStyle } from './tag-style.js';
import { taggedCall } from './tagged-call.js';
import type { ToolFormat } from './tool-format.js';

const [OUTER, FUNCTION] = ['<tool_call>', '<function='];

const TAGS: TagStyle = {
  open: '<parameter=',
  named: ['>'],
  close: '</parameter>',
  end: '</function>',
  lines: true,
};

/** As the model writes them: a line each. */
const LINES: TagStyle = { ...TAGS, close: `${TAGS.close}\n` };

/**
 * Qwen3-Coder, Qwen3.5 and later: `<tool_call>\n<function=f>\n<parameter=k>\nv\n</parameter>\n</function>\n</tool_call>`. Models leave the
 * outer tag out now and then, or write JSON into it as their elders did.
 */
export const QWEN3_CODER: ToolFormat = {
  name: 'qwen3_coder',
  tokens: [OUTER, '</tool_call>'],
  detect: ({ template }) => template.includes(FUNCTION),
  grammar: {
    values: 'raw',
    ends: endsOf(TAGS),
    triggers: [OUTER, FUNCTION],
    calls(kit) {
      const call = anyTool(kit, (tool) =>
        sequence(
          kit.mark(OUTER),
          text(`\n${FUNCTION}${tool.name}>\n`),
          taggedArguments(kit, tool, LINES, text('')),
          text('</function>\n'),
          kit.mark('</tool_call>'),
        ),
      );
      return several(kit, call, text('\n'));
    },
  },
  parser: (tools) => {
    const types = new ArgumentTypes(tools);
    return new MarkedParser({
      marks: [OUTER, FUNCTION],
      closers: ['</tool_call>'],
      *read(input, sink, mark) {
        if (mark === OUTER) {
          if ((yield* input.next()) !== '<') return yield* jsonCalls(input, sink);
          if (!(yield* input.literal(FUNCTION))) return null;
        }
        const found = yield* input.name(['>']);
        if (found === null) return null;
        yield* taggedCall(input, sink, found.name, TAGS, types);
        return '';
      },
    });
  },
};
