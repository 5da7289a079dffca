import { sequence, text } from '../../grammar/expression.js';
import { anyTool, jsonListOf, NEWLINE, several } from './call-grammar.js';
import type { CallInput, Reading } from './call-input.js';
import { jsonCalls, jsonObject } from './json-call.js';
import { type CallSink, MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const [SECTION, SECTION_END] = ['<tool_calls>', '</tool_calls>'];
const [OPEN, CLOSE] = ['<tool_call>', '</tool_call>'];
const [FENCE, FENCE_END] = ['```json', '```'];

/**
 * Hunyuan: the dense models name the tool and fence its arguments, within `<tool_calls>`: `<tool_call>f`, a line of three backquotes and `json`,
 * the arguments, three backquotes and `</tool_call>`. A13B writes `<tool_calls>[{"name": …, "arguments": {…}}]</tool_calls>`, and so
 * does Jamba.
 */
export const HUNYUAN: ToolFormat = {
  name: 'hunyuan',
  tokens: [SECTION, SECTION_END, OPEN, CLOSE],
  detect: ({ template }) => template.includes(SECTION),
  grammar: {
    values: 'json',
    triggers: [SECTION],
    calls(kit) {
      if (!kit.template.includes(FENCE))
        return sequence(kit.mark(SECTION), NEWLINE, jsonListOf(kit), NEWLINE, kit.mark(SECTION_END));
      const call = anyTool(kit, ({ name, object }) =>
        sequence(
          kit.mark(OPEN),
          text(`${name}\n${FENCE}\n`),
          object,
          text(`\n${FENCE_END}`),
          kit.mark(CLOSE),
        ),
      );
      return sequence(
        kit.mark(SECTION),
        NEWLINE,
        several(kit, call, NEWLINE),
        NEWLINE,
        kit.mark(SECTION_END),
      );
    },
  },
  parser: () =>
    new MarkedParser({
      marks: [SECTION, OPEN],
      closers: [CLOSE, SECTION_END],
      *read(input, sink, mark) {
        const first = yield* input.next();
        if (first === '[' || first === '{') return yield* jsonCalls(input, sink);
        if (mark === SECTION && !(yield* input.literal(OPEN))) return null;
        return yield* fencedCall(input, sink);
      },
    }),
};

/** A name, and arguments between fences; the fences may be left out. Null if it is no call. */
function* fencedCall(input: CallInput, sink: CallSink): Reading<string | null> {
  const first = yield* input.next();
  if (first === '{' || first === '[') return yield* jsonCalls(input, sink);
  const found = yield* input.name(NAME_ENDS);
  if (found === null) return null;
  const char = yield* input.next();
  if (char === '`') {
    if (!(yield* input.literal(FENCE))) return null;
  }
  if ((yield* input.next()) !== '{') return null;
  sink.call(found.name);
  if (!(yield* jsonObject(input, (more) => sink.args(more)))) return '';
  let behind = yield* input.gap();
  while ((yield* input.peek()) === '`' && behind.length < LONGEST_GAP) behind += input.take();
  return (yield* input.peek()) === '<' ? '' : behind.replaceAll('`', '');
}

const NAME_ENDS = ['\n'];
const LONGEST_GAP = 64;
