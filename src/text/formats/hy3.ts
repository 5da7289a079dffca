import { sequence, text } from '../../grammar/expression.js';
import { ArgumentTypes } from './argument-types.js';
import { anyTool, endsOf, several, taggedArguments } from './call-grammar.js';
import { MarkedParser } from './marked-parser.js';
import type { TagStyle } from './tag-style.js';
import { taggedCall } from './tagged-call.js';
import type { FormatClues, ToolFormat } from './tool-format.js';

/** `<tool_sep:opensource>` of `<tool_sep>`. */
const marked = (mark: string, suffix: string): string => mark.replace('>', `${suffix}>`);

/**
 * Hy3: `<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n</tool_call>\n</tool_calls>`. In each of its marks a
 * suffix may stand, which its template has once: it makes the marks by `'<tool_sep{}>'.format(…)`.
 */
function hyCalls(name: string, suffix: string, detect: (clues: FormatClues) => boolean): ToolFormat {
  const of = (mark: string): string => marked(mark, suffix);
  const [SECTION, SECTION_END, OPEN, CLOSE] = [
    of('<tool_calls>'),
    of('</tool_calls>'),
    of('<tool_call>'),
    of('</tool_call>'),
  ];
  const [SEPARATOR, KEY, KEY_END, VALUE] = [
    of('<tool_sep>'),
    of('<arg_key>'),
    of('</arg_key>'),
    of('<arg_value>'),
  ];
  const tags: TagStyle = {
    open: KEY,
    named: [KEY_END],
    value: VALUE,
    close: of('</arg_value>'),
    end: CLOSE,
    lines: false,
  };
  const nameEnds = [SEPARATOR, '\n', KEY, CLOSE];
  return {
    name,
    tokens: [SECTION, SECTION_END, OPEN, CLOSE, SEPARATOR, KEY, KEY_END, VALUE, tags.close],
    detect,
    grammar: {
      values: 'raw',
      ends: endsOf(tags),
      triggers: [SECTION, OPEN],
      calls(kit) {
        const line = text('\n');
        const call = anyTool(kit, (tool) =>
          sequence(
            kit.mark(OPEN),
            text(tool.name),
            kit.mark(SEPARATOR),
            taggedArguments(kit, tool, tags, line, () => sequence(kit.mark(KEY_END), line, kit.mark(VALUE))),
            line,
            kit.mark(CLOSE),
          ),
        );
        return sequence(kit.mark(SECTION), line, several(kit, call, line), line, kit.mark(SECTION_END));
      },
    },
    parser: (tools) => {
      const types = new ArgumentTypes(tools);
      return new MarkedParser({
        marks: [SECTION, OPEN],
        closers: [CLOSE, SECTION_END],
        *read(input, sink, mark) {
          if (mark === SECTION) {
            yield* input.gap();
            if (!(yield* input.literal(OPEN))) return null;
          }
          const found = yield* input.name(nameEnds);
          if (found === null) return null;
          const taken = found.mark === KEY || found.mark === CLOSE ? found.mark : null;
          yield* taggedCall(input, sink, found.name, tags, types, taken);
          return '';
        },
      });
    },
  };
}

const SUFFIX = ':opensource';

/** Hy3 as it is published, and its preview, which has no suffix. */
export const HY3_SUFFIXED = hyCalls(
  'hy_v3_opensource',
  SUFFIX,
  ({ template, hasToken }) =>
    (template.includes('<tool_sep') && template.includes(SUFFIX)) || hasToken(marked('<tool_sep>', SUFFIX)),
);

export const HY3 = hyCalls(
  'hy_v3',
  '',
  ({ template, hasToken }) =>
    (template.includes('<tool_sep') && template.includes('<tool_calls')) || hasToken('<tool_sep>'),
);
