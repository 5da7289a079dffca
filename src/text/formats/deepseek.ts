import { optional, sequence, text } from '../../grammar/expression.js';
import { anyTool, several } from './call-grammar.js';
import { isName } from './call-input.js';
import { jsonObject } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const mark = (words: string): string => `<｜${words.replaceAll(' ', '▁')}｜>`;
const [SECTION, SECTION_END] = [mark('tool calls begin'), mark('tool calls end')];
const [OPEN, SEPARATOR, CLOSE] = [mark('tool call begin'), mark('tool sep'), mark('tool call end')];

/** Between the arguments and the mark that ends the call: a fence, white space. */
const BEHIND = /^[\s`]*$/;

/**
 * DeepSeek V3 and R1, who name the type first and fence the JSON (`function<｜tool▁sep｜>f`, a line of three backquotes and `json`), and V3.1, which
 * does neither: `f<｜tool▁sep｜>{…}`.
 */
export const DEEPSEEK: ToolFormat = {
  name: 'deepseek_v3',
  tokens: [SECTION, OPEN, SEPARATOR, CLOSE, SECTION_END],
  detect: ({ template, hasToken }) => template.includes(OPEN) || hasToken(OPEN),
  grammar: {
    values: 'json',
    names: isName,
    triggers: [SECTION, OPEN],
    calls(kit) {
      const fenced = kit.template.includes('```json');
      const call = anyTool(kit, ({ name, object }) => {
        const before = fenced
          ? sequence(text('function'), kit.mark(SEPARATOR), text(`${name}\n\`\`\`json\n`))
          : sequence(text(name), kit.mark(SEPARATOR));
        return sequence(kit.mark(OPEN), before, object, text(fenced ? '\n```' : ''), kit.mark(CLOSE));
      });
      const between = fenced ? optional(text('\n')) : sequence();
      return sequence(kit.mark(SECTION), several(kit, call, between), kit.mark(SECTION_END));
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
        let name = (yield* input.name([SEPARATOR]))?.name;
        if (name === 'function') name = (yield* input.name(['\n']))?.name;
        if (name === undefined) return null;
        let char = yield* input.next();
        if (char === '`') {
          if (!(yield* input.literal('```json'))) return null;
          char = yield* input.next();
        }
        if (char !== '{') return null;
        sink.call(name);
        if (!(yield* jsonObject(input, (text) => sink.args(text)))) return '';
        let behind = '';
        for (;;) {
          const next = yield* input.peek();
          if (next === '' || !BEHIND.test(next)) break;
          behind += input.take();
        }
        // Text where the mark was left out: what stands before it was read for the call.
        return (yield* input.peek()) === '<' ? '' : behind.replaceAll('`', '');
      },
    }),
};
