import { ArgumentTypes } from './argument-types.js';
import { MarkedParser } from './marked-parser.js';
import { type TagStyle, taggedCall } from './tagged-call.js';
import type { ToolFormat } from './tool-format.js';

const DSML = '｜DSML｜';
const OUTER = [`<${DSML}function_calls>`, `<${DSML}tool_calls>`];
const CLOSERS = [`</${DSML}function_calls>`, `</${DSML}tool_calls>`];
const INVOKE = `<${DSML}invoke name="`;
const TEXT = '" string="true">';

const TAGS: TagStyle = {
  open: `<${DSML}parameter name="`,
  named: [TEXT, '" string="false">', '">'],
  close: `</${DSML}parameter>`,
  end: `</${DSML}invoke>`,
  lines: false,
  isText: (named) => (named === '">' ? null : named === TEXT),
};

/** DeepSeek V3.2 and later: tags as XML has them, each argument saying whether it is a text. */
export const DEEPSEEK_DSML: ToolFormat = {
  name: 'deepseek_v32',
  tokens: [DSML],
  detect: ({ template, hasToken }) => template.includes(DSML) || (template === '' && hasToken(DSML)),
  parser: (tools) => {
    const types = new ArgumentTypes(tools);
    return new MarkedParser({
      marks: [...OUTER, INVOKE],
      closers: CLOSERS,
      *read(input, sink, mark) {
        if (mark !== INVOKE) {
          yield* input.gap();
          if (!(yield* input.literal(INVOKE))) return null;
        }
        const found = yield* input.name(['">']);
        if (found === null) return null;
        yield* taggedCall(input, sink, found.name, TAGS, types);
        return '';
      },
    });
  },
};
