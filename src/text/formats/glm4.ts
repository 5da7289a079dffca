import { sequence, text } from '../../grammar/expression.js';
import { toolNames } from './argument-types.js';
import { anyTool, several } from './call-grammar.js';
import { jsonObject } from './json-call.js';
import { MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

/** What each turn of the model begins with, and so each call behind the first. It is a special token and stands in no text. */
const TURN = '<|assistant|>';

/**
 * GLM-4 and GLM-4-0414: the name of the tool, and its arguments on the next line. No mark says so: a line that ends with the name of one
 * of the request's tools, and a bracket on the next one, are a call.
 */
export const GLM4: ToolFormat = {
  name: 'glm4_0414',
  detect: ({ template }) => template.includes('<|observation|>') && !template.includes('<tool_call>'),
  grammar: {
    values: 'json',
    names: (name) => name === name.trimEnd(),
    triggers: (names) => names.map((name) => `${name}\n{`),
    calls(kit) {
      const call = anyTool(kit, ({ name, object }) => sequence(text(`${name}\n`), object));
      return several(kit, call, kit.hasToken(TURN) ? kit.mark(TURN) : text('\n'));
    },
  },
  parser: (tools) =>
    new MarkedParser({
      marks: toolNames(tools).map((name) => `${name}\n`),
      *read(input, sink, mark) {
        if ((yield* input.peek()) !== '{') return null;
        sink.call(mark.trimEnd());
        yield* jsonObject(input, (more) => sink.args(more));
        return '';
      },
    }),
};
