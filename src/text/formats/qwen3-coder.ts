import { sequence, text } from '../../grammar/expression.js';
import { ArgumentTypes } from './argument-types.js';
import { anyTool, endsOf, several, taggedArguments } from './call-grammar.js';
import { jsonCalls, jsonObject } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { TagStyle } from './tag-style.js';
import { taggedCall } from './tagged-call.js';
import type { ToolFormat } from './tool-format.js';

const FUNCTION = '<function=';

/** Values stand on lines of their own. */
const ON_LINES: TagStyle = {
  open: '<parameter=',
  named: ['>'],
  close: '</parameter>',
  end: '</function>',
  lines: true,
};

/** Calls with their arguments in tags. The outer tag may be left out, or hold JSON. */
const functionCalls = (name: string, outer: string, close: string, tags: TagStyle): ToolFormat => ({
  name,
  tokens: [outer, close],
  detect: ({ template }) => template.includes(FUNCTION) && template.includes(outer),
  grammar: {
    values: 'raw',
    ends: endsOf(tags),
    triggers: [outer, FUNCTION],
    calls(kit) {
      const call = anyTool(kit, (tool) =>
        sequence(
          kit.mark(outer),
          text(`\n${FUNCTION}${tool.name}>\n`),
          taggedArguments(kit, tool, { ...tags, close: `${tags.close}\n` }, text('')),
          text('</function>\n'),
          kit.mark(close),
        ),
      );
      return several(kit, call, text('\n'));
    },
  },
  parser: (tools) => {
    const types = new ArgumentTypes(tools);
    return new MarkedParser({
      marks: [outer, FUNCTION],
      closers: [close, tags.end],
      *read(input, sink, mark) {
        if (mark === outer) {
          if ((yield* input.next()) !== '<') return yield* jsonCalls(input, sink);
          if (!(yield* input.literal(FUNCTION))) return null;
        }
        const found = yield* input.name(['>']);
        if (found === null) return null;
        if ((yield* input.next()) === '{') {
          sink.call(found.name);
          yield* jsonObject(input, (more) => sink.args(more));
          return '';
        }
        yield* taggedCall(input, sink, found.name, tags, types);
        return '';
      },
    });
  },
});

/**
 * Qwen3-Coder, Qwen3.5 and later: `<tool_call>\n<function=f>\n<parameter=k>\nv\n</parameter>\n</function>\n</tool_call>`. Models leave the
 * outer tag out now and then, or write JSON into it as their elders did. Functionary and Llama 3.1 have all arguments as JSON: `<function=f>{…}</function>`.
 */
export const QWEN3_CODER: ToolFormat = {
  ...functionCalls('qwen3_coder', '<tool_call>', '</tool_call>', ON_LINES),
  interrupts: ['<tool_call>\n<function='],
  detect: ({ template }) => template.includes(FUNCTION),
};

/** Seed-OSS: the same within marks of its own, and values as they are. */
export const SEED_OSS: ToolFormat = functionCalls('seed_oss', '<seed:tool_call>', '</seed:tool_call>', {
  ...ON_LINES,
  lines: false,
});
