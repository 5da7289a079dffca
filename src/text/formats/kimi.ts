import { sequence, text } from '../../grammar/expression.js';
import { anyTool, INDEX, several } from './call-grammar.js';
import { isName } from './call-input.js';
import { jsonObject } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const [SECTION, SECTION_END] = ['<|tool_calls_section_begin|>', '<|tool_calls_section_end|>'];
const [OPEN, ARGUMENTS, CLOSE] = ['<|tool_call_begin|>', '<|tool_call_argument_begin|>', '<|tool_call_end|>'];

/** `functions.f:0`, which is the call's id. */
const ID = /^(?:functions\.)?(.+?)(?::\d+)?$/;

/** Kimi K2: `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`, in a section. The model writes ids. */
export const KIMI: ToolFormat = {
  name: 'kimi_k2',
  tokens: [SECTION, OPEN, ARGUMENTS, CLOSE, SECTION_END],
  interrupts: [SECTION, OPEN],
  detect: ({ template, hasToken }) => template.includes(SECTION) || hasToken(SECTION),
  grammar: {
    values: 'json',
    names: isName,
    triggers: [SECTION, OPEN],
    calls(kit) {
      const call = anyTool(kit, ({ name, object }) =>
        sequence(
          kit.mark(OPEN),
          text(`functions.${name}:`),
          INDEX,
          kit.mark(ARGUMENTS),
          object,
          kit.mark(CLOSE),
        ),
      );
      return sequence(kit.mark(SECTION), several(kit, call, sequence()), kit.mark(SECTION_END));
    },
  },
  parser: () =>
    new MarkedParser({
      marks: [SECTION, OPEN],
      closers: [CLOSE, SECTION_END],
      *read(input, sink, began) {
        if (began === SECTION) {
          yield* input.gap();
          if (!(yield* input.literal(OPEN))) return null;
        }
        const found = yield* input.name([ARGUMENTS]);
        if (found === null || (yield* input.next()) !== '{') return null;
        sink.call(ID.exec(found.name)![1]!, found.name);
        yield* jsonObject(input, (text) => sink.args(text));
        return '';
      },
    }),
};
