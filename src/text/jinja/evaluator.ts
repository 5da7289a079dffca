/** Values of expressions. */
import { PythonError, typeError } from './errors.js';
import type { FilterContext } from './filter-context.js';
import { FILTERS } from './filters.js';
import type { Frame } from './frame.js';
import { escapeHtml } from './markup.js';
import type { CallArguments, CompareOperator, Expression, FilterExpression } from './nodes.js';
import { arithmetic, contains, equals, listOf, ordered, signed, truth } from './operators.js';
import { quote } from './quote.js';
import { str } from './repr.js';
import { getAttribute, getItem, item } from './subscript.js';
import { TESTS } from './tests.js';
import {
  type Arguments,
  Callable,
  Dict,
  Markup,
  NativeObject,
  orElse,
  Slice,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.js';

export class Evaluator {
  /** Texts are escaped where they meet Markup. */
  autoescape = false;
  readonly #filterContext: FilterContext = {
    filter: (name, value, args) => this.#applyFilter(name, value, args),
    test: (name, value, args) => this.#applyTest(name, value, args),
  };

  evaluate(node: Expression, frame: Frame): Value {
    switch (node.type) {
      case 'Const':
        return node.value;
      case 'Name':
        return orElse(frame.find(node.name), new Undefined(`${quote(node.name)} is undefined`));
      case 'Tuple':
        return new Tuple(node.items.map((part) => this.evaluate(part, frame)));
      case 'List':
        return node.items.map((part) => this.evaluate(part, frame));
      case 'Dict':
        return new Dict(
          node.entries.map(
            ([key, value]) => [this.evaluate(key, frame), this.evaluate(value, frame)] as const,
          ),
        );
      case 'Getattr':
        return getAttribute(this.evaluate(node.object, frame), node.name);
      case 'Getitem': {
        const object = this.evaluate(node.object, frame);
        const key = this.evaluate(node.key, frame);
        // A slice of what has none is an error, not undefined.
        return node.key.type === 'Slice' ? item(object, key) : getItem(object, key);
      }
      case 'Slice': {
        const part = (bound: Expression | null): Value =>
          bound === null ? null : this.evaluate(bound, frame);
        return new Slice(part(node.start), part(node.stop), part(node.step));
      }
      case 'Call':
        return this.call(this.evaluate(node.callee, frame), this.arguments(node.args, frame));
      case 'Filter':
        return this.filter(node, frame, null);
      case 'Test': {
        const operand = this.evaluate(node.operand, frame);
        return this.#applyTest(node.name, operand, this.arguments(node.args, frame));
      }
      case 'Not':
        return !truth(this.evaluate(node.operand, frame));
      case 'And': {
        const left = this.evaluate(node.left, frame);
        return truth(left) ? this.evaluate(node.right, frame) : left;
      }
      case 'Or': {
        const left = this.evaluate(node.left, frame);
        return truth(left) ? left : this.evaluate(node.right, frame);
      }
      case 'Unary':
        return signed(node.operator, this.evaluate(node.operand, frame));
      case 'Binary':
        return arithmetic(node.operator, this.evaluate(node.left, frame), this.evaluate(node.right, frame));
      case 'Concat':
        return this.#concat(node.parts.map((part) => this.evaluate(part, frame)));
      case 'Compare':
        return this.#compare(node, frame);
      case 'Conditional':
        if (truth(this.evaluate(node.test, frame))) return this.evaluate(node.yes, frame);
        if (node.no !== null) return this.evaluate(node.no, frame);
        return new Undefined('the inline if-expression evaluated to false and no else section was defined.');
    }
  }

  #concat(values: readonly Value[]): Value {
    if (!this.autoescape || !values.some((value) => value instanceof Markup)) return values.map(str).join('');
    return new Markup(values.map(escapeHtml).join(''));
  }

  /** A chain of comparisons ends at the first that fails; each operand is evaluated once. */
  #compare(node: Expression & { readonly type: 'Compare' }, frame: Frame): Value {
    let left = this.evaluate(node.first, frame);
    for (const { operator, operand } of node.rest) {
      const right = this.evaluate(operand, frame);
      if (!compare(operator, left, right)) return false;
      left = right;
    }
    return true;
  }

  /** @param block what a filter block holds, for its innermost filter */
  filter(node: FilterExpression, frame: Frame, block: Value): Value {
    const { operand } = node;
    const value =
      operand === null
        ? block
        : operand.type === 'Filter'
          ? this.filter(operand, frame, block)
          : this.evaluate(operand, frame);
    return this.#applyFilter(node.name, value, this.arguments(node.args, frame));
  }

  #applyFilter(name: string, value: Value, args: Arguments): Value {
    const filter = FILTERS.get(name);
    if (filter === undefined) throw new PythonError('RuntimeError', `No filter named ${quote(name)}.`);
    return filter(value, args, this.#filterContext);
  }

  #applyTest(name: string, value: Value, args: Arguments): boolean {
    const test = TESTS.get(name);
    if (test === undefined) throw new PythonError('RuntimeError', `No test named ${quote(name)}.`);
    return test(value, args);
  }

  /** `caller`: what a call block passes. */
  arguments(args: CallArguments, frame: Frame, caller?: Value): Arguments {
    const positional = args.positional.map((node) => this.evaluate(node, frame));
    const keywords = new Map<string, Value>();
    for (const [name, node] of args.keywords) keywords.set(name, this.evaluate(node, frame));
    if (caller !== undefined) keywords.set('caller', caller);
    if (args.rest !== null) positional.push(...listOf(this.evaluate(args.rest, frame)));
    if (args.restKeywords !== null) {
      const more = this.evaluate(args.restKeywords, frame);
      if (!(more instanceof Dict)) throw typeError('argument after ** must be a mapping');
      for (const [key, value] of more.entries()) {
        const name = textOf(key);
        if (name === undefined) throw typeError('keywords must be strings');
        if (keywords.has(name)) throw typeError(`got multiple values for keyword argument ${quote(name)}`);
        keywords.set(name, value);
      }
    }
    return { positional, keywords };
  }

  /** Errors: TypeError where it is nothing that can be called. */
  call(callee: Value, args: Arguments): Value {
    if (callee instanceof Callable) return callee.call(args);
    if (callee instanceof NativeObject && callee.call !== undefined) return callee.call(args);
    if (callee instanceof Undefined) callee.fail();
    throw typeError(`'${typeName(callee)}' object is not callable`);
  }
}

function compare(operator: CompareOperator, left: Value, right: Value): boolean {
  switch (operator) {
    case '==':
      return equals(left, right);
    case '!=':
      return !equals(left, right);
    case 'in':
      return contains(right, left);
    case 'not in':
      return !contains(right, left);
    default:
      return ordered(operator, left, right);
  }
}
