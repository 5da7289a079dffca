import { optional, sequence, text } from '../../grammar/expression.js';
import { jsonCallOf, several } from './call-grammar.js';
import { jsonCall } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const TAG = '<|python_tag|>';

/**
 * Llama 3.1 and 3.2: an answer that is `{"name": …, "parameters": …}`, or several with semicolons between, maybe behind a token. An answer
 * that begins with some other object is text.
 */
export const LLAMA3_JSON: ToolFormat = {
  name: 'llama3_json',
  tokens: [TAG],
  detect: ({ template, hasToken }) =>
    template.includes(TAG) ||
    (template.includes('<|start_header_id|>') && /"parameters"\s*:/.test(template)) ||
    (template === '' && hasToken(TAG)),
  grammar: {
    values: 'json',
    triggers: [TAG],
    starts: '{',
    calls: (kit) =>
      sequence(
        ...(kit.hasToken(TAG) ? [optional(kit.mark(TAG))] : []),
        several(kit, jsonCallOf(kit, 'parameters'), text('; ')),
      ),
  },
  parser: () =>
    new MarkedParser({
      marks: [TAG],
      starts: '{',
      *read(input, sink, mark) {
        if ((yield* input.next()) !== '{') return null;
        if (!(yield* jsonCall(input, sink, { strict: mark === '' }))) return null;
        for (;;) {
          let gap = yield* input.gap();
          const char = yield* input.peek();
          if (char === ';' || char === ',') {
            input.take();
            gap = '';
            if ((yield* input.next()) !== '{') return '';
          } else if (char !== '{') return gap;
          if (!(yield* jsonCall(input, sink, { strict: true }))) return gap + input.kept;
        }
      },
    }),
};
