import { randomInt } from 'node:crypto';
import { optional, repeat, sequence, set, text } from '../../grammar/expression.js';
import { SPACE } from '../../grammar/json/terminals.js';
import { anyTool, jsonListOf, several } from './call-grammar.js';
import { jsonCalls, jsonObject } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const [OPEN, ID, ARGUMENTS] = ['[TOOL_CALLS]', '[CALL_ID]', '[ARGS]'];

const ALPHANUMERICS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';

const ALPHANUMERIC = set([0x30, 0x39], [0x41, 0x5a], [0x61, 0x7a]);

/**
 * Mistral: `[TOOL_CALLS][{"name": …, "arguments": …}]`, and since its tokenizer of version 11 `[TOOL_CALLS]f[CALL_ID]id[ARGS]{…}`, the id or both
 * marks left out at times. The templates take ids of nine letters and digits only.
 */
export const MISTRAL: ToolFormat = {
  name: 'mistral',
  tokens: [OPEN, ID, ARGUMENTS],
  detect: ({ template, hasToken }) => template.includes(OPEN) || hasToken(OPEN),
  callId: () => Array.from({ length: 9 }, () => ALPHANUMERICS[randomInt(ALPHANUMERICS.length)]).join(''),
  grammar: {
    values: 'json',
    names: (name, hasToken) => !hasToken(ARGUMENTS) || /^[\w.-]{1,256}$/.test(name),
    triggers: [OPEN],
    calls(kit) {
      if (!kit.hasToken(ARGUMENTS)) return sequence(kit.mark(OPEN), SPACE, jsonListOf(kit));
      const id = optional(sequence(kit.mark(ID), repeat(ALPHANUMERIC, 9, 9)));
      const call = anyTool(kit, ({ name, object }) =>
        sequence(kit.mark(OPEN), text(name), ...(kit.hasToken(ID) ? [id] : []), kit.mark(ARGUMENTS), object),
      );
      return several(kit, call, sequence());
    },
  },
  parser: () =>
    new MarkedParser({
      marks: [OPEN],
      *read(input, sink) {
        const first = yield* input.next();
        if (first === '[' || first === '{') return yield* jsonCalls(input, sink);
        let name = '';
        while (/^[\w.-]$/.test(yield* input.peek()) && name.length <= 256) name += input.take();
        if (name === '') return null;
        let id: string | undefined;
        if ((yield* input.next()) === '[') {
          input.take();
          if ((yield* input.peek()) === ID[1]) {
            if (!(yield* input.literal(ID.slice(1)))) return null;
            const found = yield* input.name([ARGUMENTS]);
            if (found === null) return null;
            id = found.name;
          } else if (!(yield* input.literal(ARGUMENTS.slice(1)))) return null;
        }
        if ((yield* input.next()) !== '{') return null;
        sink.call(name, id);
        yield* jsonObject(input, (text) => sink.args(text));
        return '';
      },
    }),
};
