import { sequence, text } from '../../grammar/expression.js';
import { ArgumentTypes } from './argument-types.js';
import { anyTool, endsOf, several, taggedArguments } from './call-grammar.js';
import { MarkedParser } from './marked-parser.js';
import type { TagStyle } from './tag-style.js';
import { taggedCall } from './tagged-call.js';
import type { ToolFormat } from './tool-format.js';

const [OUTER, INVOKE] = ['<minimax:tool_call>', '<invoke name="'];

const TAGS: TagStyle = {
  open: '<parameter name="',
  named: ['">'],
  close: '</parameter>',
  end: '</invoke>',
  lines: false,
};

/** As the model writes them: a line each. */
const LINES: TagStyle = { ...TAGS, close: `${TAGS.close}\n` };

/** MiniMax M2: `<minimax:tool_call>\n<invoke name="f">\n<parameter name="k">v</parameter>\n</invoke>\n</minimax:tool_call>`. */
export const MINIMAX: ToolFormat = {
  name: 'minimax_m2',
  tokens: [OUTER, '</minimax:tool_call>'],
  detect: ({ template }) => template.includes(OUTER) || template.includes('minimax:tool_call'),
  grammar: {
    values: 'raw',
    ends: endsOf(TAGS),
    triggers: [OUTER, INVOKE],
    calls(kit) {
      const call = anyTool(kit, (tool) =>
        sequence(
          text(`${INVOKE}${tool.name}">\n`),
          taggedArguments(kit, tool, LINES, text('')),
          text('</invoke>\n'),
        ),
      );
      return sequence(
        kit.mark(OUTER),
        text('\n'),
        several(kit, call, text('')),
        kit.mark('</minimax:tool_call>'),
      );
    },
  },
  parser: (tools) => {
    const types = new ArgumentTypes(tools);
    return new MarkedParser({
      marks: [OUTER, INVOKE],
      closers: ['</minimax:tool_call>'],
      *read(input, sink, mark) {
        if (mark === OUTER) {
          yield* input.gap();
          if (!(yield* input.literal(INVOKE))) return null;
        }
        const found = yield* input.name(['">']);
        if (found === null) return null;
        yield* taggedCall(input, sink, found.name, TAGS, types);
        return '';
      },
    });
  },
};
