import { sequence, text } from '../../grammar/expression.js';
import { braces, list, member, SPACE } from '../../grammar/json/terminals.js';
import { anyTool, several } from './call-grammar.js';
import { jsonObject, jsonString } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const [OPEN, CLOSE] = ['<|tools_prefix|>', '<|tools_suffix|>'];

/** Apertus: `<|tools_prefix|>[{"f": {…}}, …]<|tools_suffix|>`; the key of an object names the tool. */
export const APERTUS: ToolFormat = {
  name: 'apertus',
  tokens: [OPEN, CLOSE],
  detect: ({ template }) => template.includes(OPEN),
  grammar: {
    values: 'json',
    triggers: [OPEN],
    calls(kit) {
      const call = anyTool(kit, ({ name, object }) => {
        const item = member(text(JSON.stringify(name)), object);
        return braces('{', list([{ item, optional: false }], null), '}');
      });
      const calls = several(kit, call, sequence(SPACE, text(','), SPACE));
      return sequence(kit.mark(OPEN), text('['), SPACE, calls, SPACE, text(']'), kit.mark(CLOSE));
    },
  },
  parser: () =>
    new MarkedParser({
      marks: [OPEN],
      closers: [CLOSE],
      *read(input, sink) {
        const first = yield* input.next();
        const listed = first === '[';
        if (listed) input.take();
        let any = false;
        for (;;) {
          const char = yield* input.next();
          if (any && listed && (char === ',' || char === ']')) {
            input.take();
            if (char === ']') return '';
            continue;
          }
          if (char !== '{' || (any && !listed)) return any ? '' : null;
          input.keep();
          input.take();
          const name = (yield* input.next()) === '"' ? yield* jsonString(input) : null;
          if (name === null || name === '' || (yield* input.next()) !== ':') return any ? input.kept : null;
          input.take();
          if ((yield* input.next()) !== '{') return any ? input.kept : null;
          any = true;
          sink.call(name);
          if (!(yield* jsonObject(input, (more) => sink.args(more)))) return '';
          if ((yield* input.next()) !== '}') return '';
          input.take();
        }
      },
    }),
};
