import { type Expression, sequence, text } from '../../grammar/expression.js';
import { ArgumentTypes } from './argument-types.js';
import { anyTool, endsOf, several, taggedArguments } from './call-grammar.js';
import { MarkedParser } from './marked-parser.js';
import type { TagStyle } from './tag-style.js';
import { taggedCall } from './tagged-call.js';
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

/** As the model writes them: a line each. */
const LINES: TagStyle = { ...TAGS, close: `${TAGS.close}\n` };

/** DeepSeek V3.2 and later: tags as XML has them, each argument saying whether it is a text. */
export const DEEPSEEK_DSML: ToolFormat = {
  name: 'deepseek_v32',
  tokens: [DSML],
  interrupts: OUTER,
  detect: ({ template, hasToken }) => template.includes(DSML) || (template === '' && hasToken(DSML)),
  grammar: {
    values: 'raw',
    ends: endsOf(TAGS),
    triggers: [...OUTER, INVOKE],
    calls(kit) {
      const dsml = (template: string): Expression => {
        const [before, behind] = template.split(DSML);
        return sequence(text(before!), kit.mark(DSML), text(behind!));
      };
      const tags = { ...kit, mark: (mark: string) => (mark.includes(DSML) ? dsml(mark) : text(mark)) };
      const call = anyTool(kit, (tool) =>
        sequence(
          dsml(INVOKE),
          text(`${tool.name}">\n`),
          taggedArguments(tags, tool, LINES, text(''), (isText) => text(isText ? TEXT : '" string="false">')),
          dsml(TAGS.end),
          text('\n'),
        ),
      );
      // V4 has another name for the section.
      const which = kit.template.includes(OUTER[1]!) ? 1 : 0;
      return sequence(dsml(OUTER[which]!), text('\n'), several(kit, call, text('')), dsml(CLOSERS[which]!));
    },
  },
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
