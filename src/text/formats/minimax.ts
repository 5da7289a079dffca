import { ArgumentTypes } from './argument-types.js';
import { MarkedParser } from './marked-parser.js';
import { type TagStyle, taggedCall } from './tagged-call.js';
import type { ToolFormat } from './tool-format.js';

const [OUTER, INVOKE] = ['<minimax:tool_call>', '<invoke name="'];

const TAGS: TagStyle = {
  open: '<parameter name="',
  named: ['">'],
  close: '</parameter>',
  end: '</invoke>',
  lines: false,
};

/** MiniMax M2: `<minimax:tool_call>\n<invoke name="f">\n<parameter name="k">v</parameter>\n</invoke>\n</minimax:tool_call>`. */
export const MINIMAX: ToolFormat = {
  name: 'minimax_m2',
  tokens: [OUTER, '</minimax:tool_call>'],
  detect: ({ template }) => template.includes(OUTER) || template.includes('minimax:tool_call'),
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
