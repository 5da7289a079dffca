/** What an answer with tools is held to: calls alone, or free text up to the first call, or calls or an answer of another form. */

import { KvantError } from '../../errors.js';
import { type GrammarAsk, grammarOf } from '../../grammar/ask.js';
import {
  choice,
  type Expression,
  type Grammar,
  optional,
  rule,
  sequence,
  text,
} from '../../grammar/expression.js';
import { argumentForms, schemaGrammar } from '../../grammar/json/schema.js';
import { unsupported } from '../../grammar/json/schema-nodes.js';
import { ANY, anyRules } from '../../grammar/json/terminals.js';
import { type Budget, checkSource } from '../../grammar/limits.js';
import { Renamer } from '../../grammar/rename.js';
import { NO_TOKENS, type TokenNames } from '../../grammar/token-names.js';
import { freeText, wordsWithout } from '../../grammar/triggered.js';
import type { Words } from '../../grammar/words.js';
import { shown } from '../../printable.js';
import { isJsonObject } from '../json-file.js';
import { BracedValues } from './braced-values.js';
import type { CallGrammar, CallKit, GrammarTool } from './call-grammar.js';
import { isArgumentName, isName } from './call-input.js';
import { isPythonName } from './python-call.js';
import type { FormatClues, ToolFormat } from './tool-format.js';

/** A tool of a request. */
export interface AskedTool {
  readonly name: string;
  /** JSON text of the schema of its arguments; null for one that takes none. */
  readonly schema: string | null;
  readonly strict: boolean;
  /** Where the schema stands in the request. */
  readonly where: string;
}

/** Plain data: it crosses threads. */
export interface ToolsAsk {
  /** Name of the format. */
  readonly format: string;
  /** Those that may be called. */
  readonly tools: readonly AskedTool[];
  /** Whether there has to be a call. */
  readonly required: boolean;
  /** Whether there may be several. */
  readonly several: boolean;
}

/** What the tokenizer says of marks. */
export interface TokenClues extends FormatClues {
  idOf(token: string): number | undefined;
}

export interface ToolGrammarOptions {
  /** Tokens by their names, for forms that name some. Default: none. */
  readonly names?: TokenNames;
  /** The answer stands in the format's frame, if it has one. Default true. */
  readonly framed?: boolean;
}

const ROOT = 'answer with tools';

/** A mark: its token where the tokenizer has it as one, else its text. */
export function markOf(mark: string, clues: TokenClues): Expression {
  const id = clues.idOf(mark);
  return id === undefined ? text(mark) : { kind: 'token', id };
}

/**
 * @param form of an answer without calls; null where it is free
 * Errors: `invalid-schema`, `unsupported-schema` and the like, `where` naming the tool; `unsupported-parameter` for a format without
 * a grammar.
 */
export function toolGrammar(
  format: ToolFormat,
  ask: ToolsAsk,
  form: GrammarAsk | null,
  clues: TokenClues,
  budget: Budget,
  { names = NO_TOKENS, framed = true }: ToolGrammarOptions = {},
): Grammar {
  const { grammar } = format;
  if (grammar === undefined) throw withoutGrammar(format.name);
  const rules = new Map<string, Expression>(anyRules());
  const mark = (token: string): Expression => markOf(token, clues);
  const kit: CallKit = {
    tools: ask.tools.map((tool, i) => {
      checkNames(tool, format, clues);
      return readTool(tool, `tool-${i}:`, grammar, rules, budget, mark);
    }),
    several: ask.several,
    template: clues.template,
    hasToken: (token) => clues.hasToken(token),
    mark,
  };
  const calls = grammar.calls(kit);
  rules.set('calls', calls);
  const said = form === null || ask.required ? null : formRule(form, rules, budget, names);
  const frame = framed ? format.frame : undefined;
  const root =
    frame === undefined
      ? rootOf(grammar, ask, said, budget)
      : frame.answer({ mark, calls: rule('calls'), said, free: !ask.required && said === null, budget });
  rules.set(ROOT, root);
  return { rules, root: ROOT };
}

function formRule(
  form: GrammarAsk,
  rules: Map<string, Expression>,
  budget: Budget,
  names: TokenNames,
): Expression {
  const answer = grammarOf(form, budget, names);
  const renamer = new Renamer('form:');
  for (const [name, expression] of renamer.rules(answer)) rules.set(name, expression);
  return rule(renamer.name(answer.root));
}

function rootOf(
  { triggers, starts }: CallGrammar,
  { required, tools }: ToolsAsk,
  said: Expression | null,
  budget: Budget,
): Expression {
  if (required) return rule('calls');
  if (said !== null) return choice(rule('calls'), said);
  // Lazily: the grammar of calls begins where a mark does.
  const marks = typeof triggers === 'function' ? triggers(tools.map(({ name }) => name)) : triggers;
  return sequence(freeText(marks, budget, starts), optional(rule('calls')));
}

const SHARED: ReadonlySet<string> = new Set(anyRules().map(([name]) => name));
const PYTHON_WORDS: Readonly<Record<string, string>> = { true: 'True', false: 'False', null: 'None' };
const NO_ARGUMENTS = '{"type":"object","additionalProperties":false}';

function readTool(
  { name, schema, where }: AskedTool,
  prefix: string,
  { values, ends = [], quote }: CallGrammar,
  rules: Map<string, Expression>,
  budget: Budget,
  mark: CallKit['mark'],
): GrammarTool {
  try {
    const source = schema ?? NO_ARGUMENTS;
    checkSource(source);
    const value = objectSchema(JSON.parse(source));
    if (values === 'json') {
      const grammar = schemaGrammar(value, budget);
      const renamer =
        quote === undefined
          ? new Renamer(prefix, { shared: SHARED })
          : new BracedValues(prefix, quote, mark(quote), budget);
      for (const [name, expression] of renamer.rules(grammar)) rules.set(name, expression);
      return { name, object: rule(renamer.name(grammar.root)), arguments: [], others: null };
    }
    const python = values === 'python';
    const texts = python ? null : wordsWithout(ends, budget);
    const { rules: own, forms } = argumentForms(value, budget, { texts });
    const renamer = python
      ? new Renamer(prefix, { text: (word) => PYTHON_WORDS[word] ?? word })
      : new Renamer(prefix, { shared: SHARED });
    for (const [name, expression] of renamer.rules({ rules: own })) rules.set(name, expression);
    for (const { name: argument } of forms) checkArgument(argument, python);
    const of = (expression: Expression | null): Expression | null =>
      expression === null ? null : renamer.of(expression);
    const members = forms.map((form) => ({ ...form, text: of(form.text), json: of(form.json) }));
    const any = rule(renamer.name(ANY.VALUE));
    const anyValue = texts === null ? { text: null, json: any } : { text: words(texts), json: null };
    const others = members.length === 0 && takesAny(value) ? anyValue : null;
    return { name, object: rule(''), arguments: members, others };
  } catch (cause) {
    throw atTool(cause, where);
  }
}

/** Names of tools, by how the arguments are written. */
const TOOL_NAMES = { raw: isName, python: isPythonName, json: () => true };

/** Errors: `unsupported-tool` for a name that the format's parser would not read again. */
function checkNames(
  { name, where }: AskedTool,
  { name: format, grammar }: ToolFormat,
  clues: TokenClues,
): void {
  const { values, names = TOOL_NAMES[values] } = grammar!;
  if (names(name, (token) => clues.hasToken(token))) return;
  throw new KvantError(
    'unsupported-tool',
    `Calls of the tool ${shown(JSON.stringify(name))} cannot be told in the format "${format}".`,
    {
      kind: 'unsupported',
      where: where.replace(/\.\w+$/, '.name'),
      fix: 'Name tools with letters, digits, _ and -.',
    },
  );
}

/** Errors: `unsupported-schema` for an argument whose name the format's parser would not read again. */
function checkArgument(name: string, python: boolean): void {
  if (python ? isPythonName(name) : isArgumentName(name)) return;
  throw unsupported(
    `#/properties/${shown(name)}`,
    'properties',
    'The model writes each argument by its name: name them with letters, digits, _ and -.',
  );
}

const words = (own: Words): Expression => ({ kind: 'words', words: own, spelling: 'text' });

/** Arguments are an object, also where their schema does not say so. */
function objectSchema(schema: unknown): unknown {
  if (!isJsonObject(schema)) return schema;
  const { type } = schema;
  if (type === undefined || (Array.isArray(type) && type.includes('object')))
    return { ...schema, type: 'object' };
  if (type === 'object' || (typeof type !== 'string' && !Array.isArray(type))) return schema;
  throw unsupported('#', 'type', 'Arguments are an object: write {"type": "object", "properties": {…}}.');
}

/** A schema without names. */
function takesAny(schema: unknown): boolean {
  const { additionalProperties: others = true } = schema as { additionalProperties?: unknown };
  if (others === false) return false;
  if (others === true) return true;
  throw unsupported('#', 'additionalProperties', 'Name the arguments as `properties`.');
}

function atTool(cause: unknown, where: string): unknown {
  if (!(cause instanceof KvantError)) return cause;
  const { code, message, kind, fix } = cause;
  return new KvantError(code, message, { kind, where, ...(fix === undefined ? {} : { fix }), cause });
}

/** The schema of a tool whose arguments may be any. */
export const ANY_ARGUMENTS = '{"type":"object"}';

function withoutGrammar(name: string): KvantError {
  return new KvantError('unsupported-parameter', `Calls in the format "${name}" cannot be forced.`, {
    kind: 'unsupported',
    where: 'toolChoice',
    fix: 'Leave `toolChoice` and `strict` out.',
  });
}
