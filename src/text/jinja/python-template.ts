/**
 * Chat templates rendered as Python's Jinja renders them.
 *
 * `@huggingface/jinja` parses and runs the template. This folder holds only what it lacks or gives JavaScript's
 * meaning, each part because a published kind of template comes out differently (or not at all) without it:
 *
 * - `strip`, `lstrip`, `rstrip` with characters (the library ignores them: thoughts lose their indentation), and
 *   `find`, `count`, `rsplit`, `splitlines`, `removeprefix`, `removesuffix`, `join`, which it does not have;
 * - `tojson` and printed values as Python writes them (`1e-07`, `True`, `None`, `{'a': 1}`), equality by content;
 * - filters on strings and undefined values, `selectattr` with any test and operand, `in` as a test, `%`, `+`;
 * - `strftime_now` with a clock that is given, and a scope in which a variable may be called like a global.
 *
 * Of the demo model's own chats 4 in 14 differ from transformers without it. A prompt that differs in one space from
 * what the model was trained on costs quality, and no one sees why.
 */
import { Template } from '@huggingface/jinja';
import { bigArithmetic, bigFilter, bigSign, bigTest } from './big-integers.js';
import { FILTERS, type FilterContext, TESTS } from './filters.js';
import { contains, joinStrings, modulo } from './operators.js';
import { pythonEquals, pythonStr } from './python-values.js';
import { strftime } from './strftime.js';
import { STRING_METHODS } from './string-methods.js';
import {
  ArrayValue,
  BooleanValue,
  Environment,
  FunctionValue,
  fieldOf,
  Interpreter,
  iterate,
  type Node,
  ObjectValue,
  readArguments,
  type Scope,
  StringValue,
  toValue,
  type Value,
} from './values.js';

/** Thrown by `raise_exception(message)` in a template. */
export class TemplateRaised extends Error {
  override readonly name = 'TemplateRaised';
}

/** A parsed template. */
export class PythonTemplate {
  readonly #template: Template;
  readonly #roles: NodeRoles = { outputs: new WeakSet(), iterables: new WeakSet() };

  /** @throws Error from the parser, with what it did not understand */
  constructor(source: string) {
    // Jinja reads all line ends as "\n".
    this.#template = new Template(source.replace(/\r\n?/g, '\n'));
    collectRoles(this.#template.parsed, this.#roles);
  }

  /**
   * @param variables what the template sees, plain values: see `toValue`
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
    globals.setVariable('dict', new FunctionValue((args) => new ObjectValue(readArguments(args).keywords)));
    // A scope of its own, so that a variable may carry the name of a global.
    const scope = new Environment(globals);
    for (const [name, value] of Object.entries(variables)) scope.setVariable(name, toValue(value));
    return String(new PythonInterpreter(scope, this.#roles).run(this.#template.parsed).value);
  }
}

function range(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  if (![from, to, step].every(Number.isInteger) || step === 0) {
    throw new Error('range() wants integers, and a step that is not 0');
  }
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

/** Expressions whose value is used in a way that Python's Jinja and the engine see differently. */
interface NodeRoles {
  /** They stand as statements, `{{ … }}`: their value is printed. */
  readonly outputs: WeakSet<object>;
  /** A loop runs over their value. */
  readonly iterables: WeakSet<object>;
}

function collectRoles(node: object, roles: NodeRoles): void {
  const { iterable } = node as { iterable?: Node & { lhs?: Node } };
  if (iterable !== undefined) roles.iterables.add(iterable.lhs ?? iterable);
  for (const block of BLOCKS) {
    const statements = (node as Record<string, unknown>)[block];
    if (!Array.isArray(statements)) continue;
    for (const statement of statements as Node[]) {
      if (STATEMENTS.has(statement.type)) collectRoles(statement, roles);
      else roles.outputs.add(statement);
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
interface UnaryNode extends Node {
  readonly operator: { readonly value: string };
  readonly argument: Node;
}
interface TestNode extends Node {
  readonly operand: Node;
  readonly negate: boolean;
  readonly test: { readonly value: string };
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

/** A node of our own: a value that is known already. */
const KNOWN = 'KnownValue';
interface KnownNode extends Node {
  readonly known: Value;
}
const knownNode = (known: Value): KnownNode => ({ type: KNOWN, known });

class PythonInterpreter extends Interpreter {
  readonly #roles: NodeRoles;

  constructor(environment: Scope, roles: NodeRoles) {
    super(environment);
    this.#roles = roles;
  }

  override evaluate(node: Node | undefined, environment: Scope): Value {
    const value = this.#evaluate(node, environment);
    if (node === undefined) return value;
    if (this.#roles.outputs.has(node)) return new StringValue(pythonStr(value));
    if (this.#roles.iterables.has(node)) return new ArrayValue(iterate(value));
    return value;
  }

  #evaluate(node: Node | undefined, environment: Scope): Value {
    switch (node?.type) {
      case 'MemberExpression':
        return this.#member(node as MemberNode, environment);
      case 'BinaryExpression':
        return this.#binary(node as BinaryNode, environment);
      case 'FilterExpression':
        return this.#filter(node as FilterNode, environment);
      case 'UnaryExpression':
        return this.#unary(node as UnaryNode, environment);
      case 'TestExpression':
        return this.#test(node as TestNode, environment);
      case KNOWN:
        return (node as KnownNode).known;
      default:
        return super.evaluate(node, environment);
    }
  }

  #member(node: MemberNode, environment: Scope): Value {
    const name = node.computed ? undefined : node.property.value;
    const method = typeof name === 'string' ? STRING_METHODS.get(name) : undefined;
    if (method === undefined) return super.evaluate(node, environment);
    const object = this.evaluate(node.object, environment);
    if (object.type !== 'StringValue') return fieldOf(object, String(name));
    const text = String(object.value);
    return new FunctionValue((args) => method(text, readArguments(args)));
  }

  #binary(node: BinaryNode, environment: Scope): Value {
    const operator = node.operator.value;
    // These two may not need their right side.
    if (operator === 'and' || operator === 'or') return super.evaluate(node, environment);
    const left = this.evaluate(node.left, environment);
    const right = this.evaluate(node.right, environment);
    const big = bigArithmetic(operator, left, right);
    if (big !== undefined) return big;
    const engine = (): Value =>
      super.evaluate({ ...node, left: knownNode(left), right: knownNode(right) } as Node, environment);
    switch (operator) {
      case '==':
        return new BooleanValue(pythonEquals(left, right));
      case '!=':
        return new BooleanValue(!pythonEquals(left, right));
      case '~':
        return new StringValue(pythonStr(left) + pythonStr(right));
      case '%':
        return modulo(left, right);
      case 'in':
      case 'not in':
        return new BooleanValue(contains(right, left) === (operator === 'in'));
      case '+':
        if (left.type === 'StringValue' || right.type === 'StringValue') return joinStrings(left, right);
        return engine();
      default:
        return engine();
    }
  }

  #unary(node: UnaryNode, environment: Scope): Value {
    const argument = this.evaluate(node.argument, environment);
    const known = { ...node, argument: knownNode(argument) };
    return bigSign(node.operator.value, argument) ?? super.evaluate(known, environment);
  }

  #test(node: TestNode, environment: Scope): Value {
    const operand = this.evaluate(node.operand, environment);
    const name = node.test.value;
    const holds = bigTest(name, operand) ?? TESTS.get(name)?.(operand);
    if (holds !== undefined) return new BooleanValue(holds !== node.negate);
    return super.evaluate({ ...node, operand: knownNode(operand) } as Node, environment);
  }

  #filter(node: FilterNode, environment: Scope): Value {
    const called = node.filter.type === 'CallExpression';
    const name = called ? (node.filter.callee as { value?: unknown } | undefined)?.value : node.filter.value;
    const filter = typeof name === 'string' ? FILTERS.get(name) : undefined;
    const operand = this.evaluate(node.operand, environment);
    if (filter === undefined) {
      const big = typeof name === 'string' ? bigFilter(name, operand) : undefined;
      return big ?? super.evaluate({ ...node, operand: knownNode(operand) } as Node, environment);
    }
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
    return filter(operand, { positional, keywords }, this.#context(environment));
  }

  #context(environment: Scope): FilterContext {
    return {
      test: (name) => {
        const test = TESTS.get(name) ?? environment.tests.get(name);
        if (test === undefined) throw new Error(`Unknown test: ${name}`);
        return test;
      },
      apply: (name, operand) => {
        const filter = { type: 'Identifier', value: name };
        const node: FilterNode = { type: 'FilterExpression', operand: knownNode(operand), filter };
        return this.#filter(node, environment);
      },
      truth: (value) => (value as Value & { __bool__(): Value }).__bool__().value === true,
    };
  }
}
