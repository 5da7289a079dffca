/**
 * Chat templates rendered as Python's Jinja renders them.
 *
 * `@huggingface/jinja` parses and runs the template; where it gives values JavaScript's meaning, this gives them
 * Python's: how values print, equality, `strip(characters)`, `tojson`, lengths in characters, modulo. A prompt
 * that differs in one space from what the model was trained on costs quality, and no one sees why.
 */
import {
  Environment as LibraryEnvironment,
  Interpreter as LibraryInterpreter,
  Template,
} from '@huggingface/jinja';
import {
  pythonEquals,
  pythonJson,
  pythonSplitLines,
  pythonSplitWhitespace,
  pythonStr,
  pythonStrip,
  strftime,
  type TemplateValue,
} from './python-values.js';

/** A node of the syntax tree. */
interface Node {
  readonly type: string;
}

/** A value at run time. */
type Value = TemplateValue;
type ValueClass<T> = new (value: T) => Value;

/** A scope of variables. */
interface Scope {
  readonly variables: Map<string, Value>;
  set(name: string, value: unknown): Value;
  setVariable(name: string, value: Value): Value;
}

// The engine's own declarations of these two do not resolve under Node's rules: they are declared here, as far
// as they are used.
const Environment = LibraryEnvironment as unknown as new (parent?: Scope) => Scope;
const Interpreter = LibraryInterpreter as unknown as new (
  scope: Scope,
) => {
  run(program: unknown): Value;
  evaluate(node: Node | undefined, scope: Scope): Value;
};

// The value classes are not exported; every environment makes values of them.
const maker = new Environment();
const classOf = <T>(name: string, sample: unknown): ValueClass<T> =>
  maker.set(name, sample).constructor as ValueClass<T>;
const StringValue = classOf<string>('string', '');
const IntegerValue = classOf<number>('integer', 0);
const FloatValue = classOf<number>('float', 0.5);
const BooleanValue = classOf<boolean>('boolean', true);
const ArrayValue = classOf<readonly Value[]>('array', []);
const ObjectValue = classOf<ReadonlyMap<string, Value>>('object', {});
const UndefinedValue = classOf<undefined>('undefined', undefined);
const FunctionValue = classOf<(args: Value[], scope: Scope) => Value>('function', () => null);

/** Thrown by `raise_exception(message)` in a template. */
export class TemplateRaised extends Error {
  override readonly name = 'TemplateRaised';
}

/** A parsed template. */
export class PythonTemplate {
  readonly #template: Template;
  readonly #outputs: WeakSet<object>;

  /** @throws Error from the parser, with what it did not understand */
  constructor(source: string) {
    this.#template = new Template(source);
    this.#outputs = new WeakSet();
    collectOutputs(this.#template.parsed, this.#outputs);
  }

  /**
   * @param variables what the template sees, plain JSON values
   * @param now the time that `strftime_now` tells
   * @throws TemplateRaised where the template refuses its input, Error where it cannot go on
   */
  render(variables: Readonly<Record<string, unknown>>, now: Date): string {
    const globals = new Environment();
    for (const [name, value] of [
      ['true', true],
      ['false', false],
      ['none', null],
      ['True', true],
      ['False', false],
      ['None', null],
    ] as const) {
      globals.set(name, value);
    }
    globals.set('raise_exception', (message: unknown) => {
      throw new TemplateRaised(String(message));
    });
    globals.set('range', range);
    globals.set('strftime_now', (format: unknown) => strftime(now, String(format)));
    globals.setVariable('dict', new FunctionValue((args) => new ObjectValue(new Map(keywordsOf(args)))));
    // A scope of its own, so that a variable may carry the name of a global.
    const scope = new Environment(globals);
    for (const [name, value] of Object.entries(variables)) {
      scope.variables.delete(name);
      scope.set(name, value);
    }
    return String(new PythonInterpreter(scope, this.#outputs).run(this.#template.parsed).value);
  }
}

function range(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  if (![from, to, step].every(Number.isInteger) || step === 0)
    throw new Error('range() wants integers, and a step');
  const length = Math.max(0, Math.ceil((to - from) / step));
  // A template that asks for more is broken or hostile.
  if (length > 100_000) throw new Error('range() is too long');
  return Array.from({ length }, (_, i) => from + i * step);
}

/** Parts of the syntax tree that are lists of statements. */
const BLOCKS = ['body', 'alternate', 'defaultBlock'] as const;
const STATEMENTS = new Set([
  'Program',
  'If',
  'For',
  'Set',
  'Macro',
  'CallStatement',
  'FilterStatement',
  'Comment',
  'Break',
  'Continue',
]);

/** Finds the expressions that stand as statements: `{{ … }}`, whose value is printed. */
function collectOutputs(node: object, outputs: WeakSet<object>): void {
  for (const block of BLOCKS) {
    const statements = (node as Record<string, unknown>)[block];
    if (!Array.isArray(statements)) continue;
    for (const statement of statements as Node[]) {
      if (STATEMENTS.has(statement.type)) collectOutputs(statement, outputs);
      else outputs.add(statement);
    }
  }
}

interface MemberNode extends Node {
  readonly object: Node;
  readonly property: Node & { readonly value?: unknown };
  readonly computed: boolean;
}
interface BinaryNode extends Node {
  readonly operator: { readonly value: string };
  readonly left: Node;
  readonly right: Node;
}
interface FilterNode extends Node {
  readonly operand: Node;
  readonly filter: Node & {
    readonly value?: unknown;
    readonly callee?: Node;
    readonly args?: readonly Node[];
  };
}
interface KeywordNode extends Node {
  readonly key: { readonly value: string };
  readonly value: Node;
}

interface Arguments {
  readonly positional: readonly Value[];
  readonly keywords: ReadonlyMap<string, Value>;
}

class PythonInterpreter extends Interpreter {
  readonly #outputs: WeakSet<object>;

  constructor(environment: Scope, outputs: WeakSet<object>) {
    super(environment);
    this.#outputs = outputs;
  }

  override evaluate(node: Node | undefined, environment: Scope): Value {
    const value = this.#evaluate(node, environment);
    return node !== undefined && this.#outputs.has(node) ? new StringValue(pythonStr(value)) : value;
  }

  #evaluate(node: Node | undefined, environment: Scope): Value {
    switch (node?.type) {
      case 'MemberExpression':
        return this.#member(node as MemberNode, environment);
      case 'BinaryExpression':
        return this.#binary(node as BinaryNode, environment);
      case 'FilterExpression':
        return this.#filter(node as FilterNode, environment);
      default:
        return super.evaluate(node, environment);
    }
  }

  #member(node: MemberNode, environment: Scope): Value {
    const name = node.computed ? undefined : node.property.value;
    const method = typeof name === 'string' ? STRING_METHODS.get(name) : undefined;
    if (method === undefined) return super.evaluate(node, environment);
    const object = this.evaluate(node.object, environment);
    if (object.type === 'StringValue') {
      const text = String(object.value);
      return new FunctionValue((args) => {
        const keywords = new Map(keywordsOf(args));
        return method(text, { positional: args.filter((arg) => !isKeywords(arg)), keywords });
      });
    }
    const field = object.value instanceof Map ? (object.value as Map<unknown, Value>).get(name) : undefined;
    return field ?? new UndefinedValue(undefined);
  }

  #binary(node: BinaryNode, environment: Scope): Value {
    const operator = node.operator.value;
    if (!['==', '!=', '~', 'in', 'not in', '%'].includes(operator)) return super.evaluate(node, environment);
    const left = this.evaluate(node.left, environment);
    const right = this.evaluate(node.right, environment);
    switch (operator) {
      case '==':
        return new BooleanValue(pythonEquals(left, right));
      case '!=':
        return new BooleanValue(!pythonEquals(left, right));
      case '~':
        return new StringValue(pythonStr(left) + pythonStr(right));
      case '%':
        return modulo(left, right);
      default:
        return new BooleanValue(contains(right, left) === (operator === 'in'));
    }
  }

  #filter(node: FilterNode, environment: Scope): Value {
    const called = node.filter.type === 'CallExpression';
    const name = called ? (node.filter.callee as { value?: unknown } | undefined)?.value : node.filter.value;
    const filter = typeof name === 'string' ? FILTERS.get(name) : undefined;
    if (filter === undefined) return super.evaluate(node, environment);
    const operand = this.evaluate(node.operand, environment);
    const positional: Value[] = [];
    const keywords = new Map<string, Value>();
    for (const arg of called ? (node.filter.args ?? []) : []) {
      if (arg.type === 'KeywordArgumentExpression') {
        const keyword = arg as KeywordNode;
        keywords.set(keyword.key.value, this.evaluate(keyword.value, environment));
      } else {
        positional.push(this.evaluate(arg, environment));
      }
    }
    return filter(operand, { positional, keywords });
  }
}

function isKeywords(value: Value): boolean {
  return value.type === 'KeywordArgumentsValue';
}

function keywordsOf(args: readonly Value[]): Iterable<[string, Value]> {
  const last = args.at(-1);
  return last !== undefined && isKeywords(last) ? (last.value as unknown as Map<string, Value>) : [];
}

/** An argument by position or name; `none` counts as absent, as it is the default of all that are read here. */
function argument(args: Arguments, position: number, name: string): Value | undefined {
  const value = args.positional[position] ?? args.keywords.get(name);
  return value === undefined || value.type === 'NullValue' ? undefined : value;
}

function textArgument(args: Arguments, position: number, name: string): string | undefined {
  const value = argument(args, position, name);
  if (value === undefined) return undefined;
  if (value.type !== 'StringValue') throw new Error(`${name} must be a string, not ${value.type}`);
  return String(value.value);
}

function needText(args: Arguments, position: number, name: string): string {
  const text = textArgument(args, position, name);
  if (text === undefined) throw new Error(`${name} is missing`);
  return text;
}

function integerArgument(args: Arguments, position: number, name: string): number | undefined {
  const value = argument(args, position, name);
  if (value === undefined) return undefined;
  if (value.type !== 'IntegerValue') throw new Error(`${name} must be an integer, not ${value.type}`);
  return Number(value.value);
}

const strings = (texts: readonly string[]): Value =>
  new ArrayValue(texts.map((text) => new StringValue(text)));
const elements = (value: TemplateValue): readonly Value[] =>
  Array.isArray(value.value) ? (value.value as readonly Value[]) : [];

type StringMethod = (text: string, args: Arguments) => Value;

/** `str` methods that the engine lacks or gives another meaning. */
const STRING_METHODS: ReadonlyMap<string, StringMethod> = new Map<string, StringMethod>([
  ['strip', (text, args) => new StringValue(pythonStrip(text, textArgument(args, 0, 'chars')))],
  ['lstrip', (text, args) => new StringValue(pythonStrip(text, textArgument(args, 0, 'chars'), 'left'))],
  ['rstrip', (text, args) => new StringValue(pythonStrip(text, textArgument(args, 0, 'chars'), 'right'))],
  ['split', (text, args) => strings(split(text, args))],
  ['rsplit', (text, args) => strings(rsplit(text, args))],
  ['splitlines', (text) => strings(pythonSplitLines(text))],
  ['capitalize', (text) => new StringValue(capitalize(text))],
  ['find', (text, args) => new IntegerValue(characterIndex(text, text.indexOf(needText(args, 0, 'sub'))))],
  [
    'rfind',
    (text, args) => new IntegerValue(characterIndex(text, text.lastIndexOf(needText(args, 0, 'sub')))),
  ],
  ['count', (text, args) => new IntegerValue(countOf(text, needText(args, 0, 'sub')))],
  [
    'removeprefix',
    (text, args) => {
      const prefix = needText(args, 0, 'prefix');
      return new StringValue(text.startsWith(prefix) ? text.slice(prefix.length) : text);
    },
  ],
  [
    'removesuffix',
    (text, args) => {
      const suffix = needText(args, 0, 'suffix');
      const ends = suffix !== '' && text.endsWith(suffix);
      return new StringValue(ends ? text.slice(0, -suffix.length) : text);
    },
  ],
  [
    'join',
    (text, args) => {
      const list = argument(args, 0, 'iterable');
      return new StringValue((list === undefined ? [] : elements(list)).map(pythonStr).join(text));
    },
  ],
  ['isdigit', (text) => new BooleanValue(/^\p{Nd}+$/u.test(text))],
  ['isspace', (text) => new BooleanValue(text !== '' && pythonStrip(text) === '')],
]);

function split(text: string, args: Arguments): string[] {
  const separator = textArgument(args, 0, 'sep');
  const most = integerArgument(args, 1, 'maxsplit') ?? -1;
  if (separator === undefined) {
    const words = pythonSplitWhitespace(text);
    if (most < 0 || words.length <= most + 1) return words;
    let rest = pythonStrip(text, undefined, 'left');
    const head = words.slice(0, most);
    for (const word of head) rest = pythonStrip(rest.slice(word.length), undefined, 'left');
    return [...head, rest];
  }
  if (separator === '') throw new Error('empty separator');
  const parts = text.split(separator);
  return most < 0 || parts.length <= most + 1
    ? parts
    : [...parts.slice(0, most), parts.slice(most).join(separator)];
}

function rsplit(text: string, args: Arguments): string[] {
  const separator = textArgument(args, 0, 'sep');
  const most = integerArgument(args, 1, 'maxsplit') ?? -1;
  if (separator === undefined) {
    if (most >= 0) throw new Error('rsplit() with maxsplit wants a separator');
    return pythonSplitWhitespace(text);
  }
  if (separator === '') throw new Error('empty separator');
  const parts = text.split(separator);
  const joined = parts.length - most;
  return most < 0 || joined <= 1 ? parts : [parts.slice(0, joined).join(separator), ...parts.slice(joined)];
}

function capitalize(text: string): string {
  const [first = '', ...rest] = [...text];
  return first.toUpperCase() + rest.join('').toLowerCase();
}

function countOf(text: string, part: string): number {
  return part === '' ? [...text].length + 1 : text.split(part).length - 1;
}

/** A position in UTF-16 units as one in characters. */
function characterIndex(text: string, unit: number): number {
  return unit < 0 ? -1 : [...text.slice(0, unit)].length;
}

function modulo(left: Value, right: Value): Value {
  const numeric = (value: Value): boolean => value.type === 'IntegerValue' || value.type === 'FloatValue';
  if (!numeric(left) || !numeric(right))
    throw new Error(`% is not known between ${left.type} and ${right.type}`);
  const divisor = Number(right.value);
  if (divisor === 0) throw new Error('modulo by zero');
  const remainder = Number(left.value) % divisor;
  // Python's remainder has the sign of the divisor.
  const result = remainder !== 0 && remainder < 0 !== divisor < 0 ? remainder + divisor : remainder;
  const float = left.type === 'FloatValue' || right.type === 'FloatValue';
  return float ? new FloatValue(result) : new IntegerValue(result);
}

function contains(container: Value, item: Value): boolean {
  switch (container.type) {
    case 'ArrayValue':
    case 'TupleValue':
      return elements(container).some((element) => pythonEquals(element, item));
    case 'ObjectValue':
      return (
        item.type === 'StringValue' &&
        (container.value as unknown as Map<string, Value>).has(String(item.value))
      );
    case 'StringValue':
      if (item.type !== 'StringValue') throw new Error(`a string cannot hold a ${item.type}`);
      return String(container.value).includes(String(item.value));
    case 'UndefinedValue':
      return false;
    default:
      throw new Error(`a ${container.type} holds nothing to look for`);
  }
}

type Filter = (operand: Value, args: Arguments) => Value;

const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ['string', (operand) => new StringValue(pythonStr(operand))],
  [
    'trim',
    (operand, args) => new StringValue(pythonStrip(pythonStr(operand), textArgument(args, 0, 'chars'))),
  ],
  ['capitalize', (operand) => new StringValue(capitalize(pythonStr(operand)))],
  ['length', lengthOf],
  ['count', lengthOf],
  [
    'join',
    (operand, args) => {
      const attribute = textArgument(args, 1, 'attribute');
      const list =
        operand.type === 'StringValue'
          ? [...String(operand.value)].map((c) => new StringValue(c))
          : elements(operand);
      const picked = list.map((item) =>
        attribute !== undefined && item.value instanceof Map
          ? ((item.value as Map<string, Value>).get(attribute) ?? new UndefinedValue(undefined))
          : item,
      );
      return new StringValue(picked.map(pythonStr).join(textArgument(args, 0, 'd') ?? ''));
    },
  ],
  [
    'tojson',
    (operand, args) => {
      const flag = (position: number, name: string): boolean =>
        argument(args, position, name)?.value === true;
      const indent = argument(args, 1, 'indent');
      const pair = argument(args, 2, 'separators');
      const [comma, colon] = pair === undefined ? [] : elements(pair);
      return new StringValue(
        pythonJson(operand, {
          ensureAscii: flag(0, 'ensure_ascii'),
          indent:
            indent?.type === 'IntegerValue'
              ? Number(indent.value)
              : indent === undefined
                ? undefined
                : String(indent.value),
          separators:
            comma === undefined || colon === undefined ? undefined : [pythonStr(comma), pythonStr(colon)],
          sortKeys: flag(3, 'sort_keys'),
        }),
      );
    },
  ],
]);

function lengthOf(operand: Value): Value {
  switch (operand.type) {
    case 'StringValue':
      return new IntegerValue([...String(operand.value)].length);
    case 'ArrayValue':
    case 'TupleValue':
      return new IntegerValue(elements(operand).length);
    case 'ObjectValue':
      return new IntegerValue((operand.value as unknown as Map<string, Value>).size);
    case 'UndefinedValue':
      return new IntegerValue(0);
    default:
      throw new Error(`a ${operand.type} has no length`);
  }
}
