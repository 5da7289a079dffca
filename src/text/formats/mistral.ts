import { randomInt } from 'node:crypto';
import { jsonCalls, jsonObject } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

const [OPEN, ID, ARGUMENTS] = ['[TOOL_CALLS]', '[CALL_ID]', '[ARGS]'];

const ALPHANUMERICS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';

/**
 * Mistral: `[TOOL_CALLS][{"name": …, "arguments": …}]`, and since its tokenizer of version 11 `[TOOL_CALLS]f[CALL_ID]id[ARGS]{…}`, the id or both
 * marks left out at times. The templates take ids of nine letters and digits only.
 */
export const MISTRAL: ToolFormat = {
  name: 'mistral',
  tokens: [OPEN, ID, ARGUMENTS],
  detect: ({ template, hasToken }) => template.includes(OPEN) || hasToken(OPEN),
  callId: () => Array.from({ length: 9 }, () => ALPHANUMERICS[randomInt(ALPHANUMERICS.length)]).join(''),
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
