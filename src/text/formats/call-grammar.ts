/**
 * Grammars of calls: what a format's parser reads, in the one form in which the model was taught to write it. Formats put theirs
 * together from these parts.
 */
import {
  choice,
  type Expression,
  oneOf,
  optional,
  repeat,
  sequence,
  set,
  text,
} from '../../grammar/expression.js';
import { braces, list, member, SPACE } from '../../grammar/json/terminals.js';
import type { TagStyle } from './tag-style.js';

/** How a format writes the values of arguments. */
export type ValueStyle =
  /** All arguments are one JSON object. */
  | 'json'
  /** Each argument by its name: texts without quotes, all else as JSON. */
  | 'raw'
  /** Each argument by its name, as a literal of Python. */
  | 'python';

/** An argument of a tool, for formats that write each by its name. */
export interface GrammarArgument {
  readonly name: string;
  readonly optional: boolean;
  /** Null where it can be no text, and no JSON. */
  readonly text: Expression | null;
  readonly json: Expression | null;
}

export interface GrammarTool {
  readonly name: string;
  /** All arguments, as a JSON object; of a format of another style it is not there. */
  readonly object: Expression;
  readonly arguments: readonly GrammarArgument[];
  /** The value of any argument, for a tool that names none and takes all; null for others. */
  readonly others: Pick<GrammarArgument, 'text' | 'json'> | null;
}

/** What a grammar of calls is made of. */
export interface CallKit {
  /** Tools that may be called, one at least. */
  readonly tools: readonly GrammarTool[];
  /** Whether an answer may have several calls. */
  readonly several: boolean;
  /** Source of the chat template. */
  readonly template: string;
  hasToken(text: string): boolean;
  /** A mark: its token where the tokenizer has it as one, else its text. */
  mark(text: string): Expression;
}

export interface CallGrammar {
  readonly values: ValueStyle;
  /** With values of style `json`: what stands for the quotes of texts, in which nothing is escaped; names are bare, and there is no white space. */
  readonly quote?: string;
  /** Names of tools that can be read behind the marks. Default: those that arguments may have, any with values of style `json`. */
  readonly names?: (name: string, hasToken: CallKit['hasToken']) => boolean;
  /** With values of style `raw`: texts that end a value, which none holds. */
  readonly ends?: readonly string[];
  /** Texts of which one begins the calls of an answer, where text may stand before them; made of the tools' names where no mark does. */
  readonly triggers: readonly string[] | ((names: readonly string[]) => string[]);
  /** An answer that begins with one of these characters has to be calls. */
  readonly starts?: string;
  /** All calls of an answer, one at least. */
  calls(kit: CallKit): Expression;
}

const MAX_NAME = 63;
export const NEWLINE: Expression = optional(text('\n'));
const DIGIT = set([0x30, 0x39]);
/** A number below 100. */
export const INDEX: Expression = sequence(DIGIT, optional(DIGIT));

/** One call, or several with this between them. */
export const several = (kit: CallKit, call: Expression, between: Expression): Expression =>
  kit.several ? sequence(call, repeat(sequence(between, call), 0, null)) : call;

/** A call of any of the tools. */
export const anyTool = (kit: CallKit, call: (tool: GrammarTool) => Expression): Expression =>
  oneOf(kit.tools.map(call));

/** `{"name": …, "arguments": {…}}`. `key`: that of the arguments. */
export const jsonCallOf = (kit: CallKit, key = 'arguments'): Expression =>
  anyTool(kit, ({ name, object }) => {
    const members = [
      member(text('"name"'), text(JSON.stringify(name))),
      member(text(JSON.stringify(key)), object),
    ];
    return braces(
      '{',
      list(
        members.map((item) => ({ item, optional: false })),
        null,
      ),
      '}',
    );
  });

/** `[{"name": …}, …]`. */
export const jsonListOf = (kit: CallKit): Expression =>
  sequence(
    text('['),
    SPACE,
    several(kit, jsonCallOf(kit), sequence(SPACE, text(','), SPACE)),
    SPACE,
    text(']'),
  );

/** `f(a=1, b="x")`; in a list, or one in a line. */
export function pythonCallsOf(kit: CallKit, brackets: boolean): Expression {
  const comma = sequence(text(','), optional(text(' ')));
  const call = anyTool(kit, ({ name, arguments: all, others }) => {
    const items = all.map(({ name: key, optional: may, json }) => ({
      item: sequence(text(`${key}=`), json!),
      optional: may,
    }));
    const more = others === null ? null : sequence(IDENTIFIER, text('='), others.json!);
    const inner: Expression =
      items.length === 0 && more === null ? text('') : { kind: 'list', items, more, separator: comma };
    return sequence(text(`${name}(`), inner, text(')'));
  });
  if (!brackets) return several(kit, call, text('\n'));
  return sequence(text('['), several(kit, call, comma), text(']'));
}

const LETTERS = [
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
] as const;
/** A name of an argument that no schema names. */
const IDENTIFIER: Expression = sequence(set(...LETTERS), repeat(set([0x30, 0x39], ...LETTERS), 0, MAX_NAME));

/** What ends a value of these tags for the parser. */
export const endsOf = ({ open, close, end }: TagStyle): string[] => [close, `\n${open}`, `\n${end}`];

/**
 * The arguments of a tool in tags, a line break before each where there is one between them.
 *
 * @param between what stands before each tag of an argument
 * @param named what stands behind a name, by whether its value is a text
 */
export function taggedArguments(
  kit: CallKit,
  tool: GrammarTool,
  style: TagStyle,
  between: Expression,
  named: (isText: boolean) => Expression = () => kit.mark(style.named[0]!),
): Expression {
  const line = style.lines ? text('\n') : text('');
  const value = (item: Expression | null, isText: boolean): Expression[] =>
    item === null ? [] : [sequence(named(isText), line, item, line)];
  const argument = (
    name: Expression,
    { text: raw, json }: Pick<GrammarArgument, 'text' | 'json'>,
  ): Expression =>
    sequence(
      between,
      kit.mark(style.open),
      name,
      choice(...value(raw, true), ...value(json, false)),
      kit.mark(style.close),
    );
  if (tool.others !== null) return repeat(argument(IDENTIFIER, tool.others), 0, null);
  const items = tool.arguments.map((one) => {
    const item = argument(text(one.name), one);
    return one.optional ? optional(item) : item;
  });
  return sequence(...items);
}
