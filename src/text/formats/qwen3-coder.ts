import { ArgumentTypes } from './argument-types.js';
import { jsonCalls } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import { type TagStyle, taggedCall } from './tagged-call.js';
import type { ToolFormat } from './tool-format.js';

const [OUTER, FUNCTION] = ['<tool_call>', '<function='];

const TAGS: TagStyle = {
  open: '<parameter=',
  named: ['>'],
  close: '</parameter>',
  end: '</function>',
  lines: true,
};

/**
 * Qwen3-Coder, Qwen3.5 and later: `<tool_call>\n<function=f>\n<parameter=k>\nv\n</parameter>\n</function>\n</tool_call>`. Models leave the
 * outer tag out now and then, or write JSON into it as their elders did.
 */
export const QWEN3_CODER: ToolFormat = {
  name: 'qwen3_coder',
  tokens: [OUTER, '</tool_call>'],
  detect: ({ template }) => template.includes(FUNCTION),
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
