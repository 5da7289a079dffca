import { PythonError, typeError } from './errors.js';
import type { FilterContext } from './filter-context.js';
import { FILTERS } from './filters.js';
import { checkAttribute } from './globals.js';
import { Loop } from './loop.js';
import { escapeHtml } from './markup.js';
import type {
  CallArguments,
  CompareOperator,
  Expression,
  FilterExpression,
  Statement,
  StatementOf,
  Target,
} from './nodes.js';
import { arithmetic, contains, equals, listOf, ordered, signed, truth } from './operators.js';
import { quote } from './quote.js';
import { str } from './repr.js';
import { getAttribute, getItem, item } from './subscript.js';
import type { Analysis, Scopes, Symbols } from './symbols.js';
import { TESTS } from './tests.js';
import {
  type Arguments,
  Callable,
  Dict,
  Iterator,
  Markup,
  Namespace,
  NativeObject,
  orElse,
  Slice,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.js';

/** The variables of a scope while it runs; undefined is one that is not set. */
class Frame {
  readonly parent: Frame | null;
  readonly variables = new Map<string, Value | undefined>();

  constructor(parent: Frame | null) {
    this.parent = parent;
  }

  find(name: string): Value | undefined {
    for (let frame: Frame | null = this; frame !== null; frame = frame.parent) {
      if (frame.variables.has(name)) return frame.variables.get(name);
    }
    return undefined;
  }
}

type Signal = 'break' | 'continue' | undefined;

/** One rendering of a template. */
export class Interpreter {
  readonly #template: readonly Statement[];
  readonly #analysis: Analysis;
  /** What the template was given, and below it what every template has. */
  readonly #given: readonly ReadonlyMap<string, Value>[];
  readonly #filterContext: FilterContext;
  #root: Frame | null = null;
  #autoescape = false;

  constructor(
    template: readonly Statement[],
    analysis: Analysis,
    given: readonly ReadonlyMap<string, Value>[],
  ) {
    this.#template = template;
    this.#analysis = analysis;
    this.#given = given;
    this.#filterContext = {
      filter: (name, value, args) => this.#applyFilter(name, value, args),
      test: (name, value, args) => this.#applyTest(name, value, args),
    };
  }

  /** @throws PythonError, TemplateRaised */
  run(): string {
    const out: string[] = [];
    const frame = this.#enter(this.#analysis.root, null);
    this.#root = frame;
    this.#execute(this.#template, frame, out);
    return out.join('');
  }

  #resolve(name: string, parent: Frame | null): Value | undefined {
    // A block that stands for itself sees what the template has set so far.
    const set = parent === null ? this.#root?.find(name) : undefined;
    if (set !== undefined) return set;
    for (const values of this.#given) {
      const value = values.get(name);
      if (value !== undefined) return value;
    }
    return undefined;
  }

  #enter(symbols: Symbols, parent: Frame | null): Frame {
    const frame = new Frame(parent);
    for (const [name, load] of symbols.loads) {
      const value =
        load === 'given' ? this.#resolve(name, parent) : load === 'outer' ? parent?.find(name) : undefined;
      frame.variables.set(name, value);
    }
    return frame;
  }

  #scopesOf(statement: Statement): Scopes {
    return this.#analysis.scopes.get(statement)!;
  }

  #execute(body: readonly Statement[], frame: Frame, out: string[]): Signal {
    for (const statement of body) {
      const signal = this.#statement(statement, frame, out);
      if (signal !== undefined) return signal;
    }
    return undefined;
  }

  #statement(statement: Statement, frame: Frame, out: string[]): Signal {
    switch (statement.type) {
      case 'Text':
        out.push(statement.text);
        return undefined;
      case 'Output':
        out.push(this.#printed(this.#evaluate(statement.value, frame)));
        return undefined;
      case 'If':
        for (const branch of statement.branches) {
          if (truth(this.#evaluate(branch.test, frame))) return this.#execute(branch.body, frame, out);
        }
        return this.#execute(statement.otherwise, frame, out);
      case 'For':
        return this.#for(statement, frame, out);
      case 'Set':
        this.#assign(statement.target, this.#evaluate(statement.value, frame), frame);
        return undefined;
      case 'SetBlock':
        return this.#setBlock(statement, frame);
      case 'FilterBlock': {
        const inner: string[] = [];
        const scope = this.#enter(this.#scopesOf(statement).body, frame);
        const signal = this.#execute(statement.body, scope, inner);
        if (signal === undefined)
          out.push(this.#printed(this.#filter(statement.filter, scope, this.#text(inner))));
        return signal;
      }
      case 'With': {
        const scope = this.#enter(this.#scopesOf(statement).body, frame);
        for (const [target, value] of statement.targets)
          this.#assign(target, this.#evaluate(value, frame), scope);
        return this.#execute(statement.body, scope, out);
      }
      case 'Macro':
        frame.variables.set(statement.name, this.#macro(statement, statement.name, frame));
        return undefined;
      case 'CallBlock': {
        const caller = this.#macro(statement, 'caller', frame);
        const { callee, args } = statement.call;
        out.push(
          this.#printed(this.#call(this.#evaluate(callee, frame), this.#arguments(args, frame, caller))),
        );
        return undefined;
      }
      case 'Scope': {
        const scope = this.#enter(this.#scopesOf(statement).body, statement.isolated ? null : frame);
        return this.#execute(statement.body, scope, out);
      }
      case 'Autoescape': {
        const before = this.#autoescape;
        const scope = this.#enter(this.#scopesOf(statement).body, frame);
        this.#autoescape = truth(this.#evaluate(statement.on, scope));
        const signal = this.#execute(statement.body, scope, out);
        this.#autoescape = before;
        return signal;
      }
      case 'Load':
        throw new PythonError('TypeError', `'${statement.what}': no loader for this environment specified`);
      case 'Break':
        return 'break';
      case 'Continue':
        return 'continue';
    }
  }

  #printed(value: Value): string {
    return this.#autoescape ? escapeHtml(value) : str(value);
  }

  /** What a block holds, as a value. */
  #text(parts: readonly string[]): Value {
    const text = parts.join('');
    return this.#autoescape ? new Markup(text) : text;
  }

  #setBlock(statement: StatementOf<'SetBlock'>, frame: Frame): Signal {
    const inner: string[] = [];
    const scope = this.#enter(this.#scopesOf(statement).body, frame);
    const signal = this.#execute(statement.body, scope, inner);
    if (signal !== undefined) return signal;
    const text = this.#text(inner);
    this.#assign(
      statement.target,
      statement.filter === null ? text : this.#filter(statement.filter, scope, text),
      frame,
    );
    return undefined;
  }

  #assign(target: Target, value: Value, frame: Frame): void {
    if (target.type === 'Name') {
      frame.variables.set(target.name, value);
    } else if (target.type === 'Tuple') {
      const values = listOf(value);
      const wanted = target.items.length;
      if (values.length !== wanted) {
        const problem = values.length > wanted ? 'too many' : 'not enough';
        const got = values.length > wanted ? '' : `, got ${values.length}`;
        throw new PythonError('ValueError', `${problem} values to unpack (expected ${wanted}${got})`);
      }
      target.items.forEach((part, i) => {
        this.#assign(part, values[i]!, frame);
      });
    } else {
      const namespace = frame.find(target.name);
      if (!(namespace instanceof Namespace)) {
        throw new PythonError('RuntimeError', 'cannot assign attribute on non-namespace object');
      }
      checkAttribute(target.attribute);
      namespace.attributes.set(target.attribute, value);
    }
  }

  #for(statement: StatementOf<'For'>, frame: Frame, out: string[]): Signal {
    const items = this.#evaluate(statement.iterable, frame);
    if (!statement.recursive) return this.#loop(statement, items, 0, frame, out);
    out.push(this.#printed(this.#recursiveLoop(statement, items, 0, frame)));
    return undefined;
  }

  #recursiveLoop(statement: StatementOf<'For'>, items: Value, depth0: number, frame: Frame): Value {
    const inner: string[] = [];
    this.#loop(statement, items, depth0, frame, inner);
    return this.#text(inner);
  }

  #loop(statement: StatementOf<'For'>, items: Value, depth0: number, frame: Frame, out: string[]): Signal {
    const scopes = this.#scopesOf(statement);
    const chosen =
      statement.test === null ? items : new Iterator('generator', this.#filtered(statement, items, frame));
    const loop = new Loop(
      chosen,
      depth0,
      statement.recursive ? (inner, depth) => this.#recursiveLoop(statement, inner, depth, frame) : null,
    );
    let empty = true;
    for (let value = loop.next(); value !== undefined; value = loop.next()) {
      const scope = this.#enter(scopes.body, frame);
      scope.variables.set('loop', loop);
      this.#assign(statement.target, value, scope);
      const signal = this.#execute(statement.body, scope, out);
      // Jinja notes at the end of the body that it ran: what is left or gone on from before leaves the `else` in force.
      if (signal === undefined) empty = false;
      if (signal === 'break') break;
    }
    if (!empty || statement.otherwise.length === 0) return undefined;
    return this.#execute(statement.otherwise, this.#enter(scopes.otherwise!, frame), out);
  }

  *#filtered(statement: StatementOf<'For'>, items: Value, frame: Frame): Generator<Value> {
    for (const value of listOf(items)) {
      const scope = this.#enter(this.#scopesOf(statement).test!, frame);
      this.#assign(statement.target, value, scope);
      if (truth(this.#evaluate(statement.test!, scope))) yield value;
    }
  }

  #macro(statement: StatementOf<'Macro' | 'CallBlock'>, name: string, frame: Frame): Callable {
    const { parameters } = statement.signature;
    const { special } = this.#scopesOf(statement);
    const attributes = new Map<string, Value>([
      ['name', statement.type === 'Macro' ? name : null],
      ['arguments', new Tuple(parameters)],
      ['catch_kwargs', special!.has('kwargs')],
      ['catch_varargs', special!.has('varargs')],
      ['caller', special!.has('caller')],
      ['explicit_caller', parameters.includes('caller')],
    ]);
    return new Callable(name, (args) => this.#invoke(statement, name, frame, args), attributes);
  }

  #invoke(statement: StatementOf<'Macro' | 'CallBlock'>, name: string, frame: Frame, args: Arguments): Value {
    const { parameters, defaults } = statement.signature;
    const { body, special } = this.#scopesOf(statement);
    const scope = this.#enter(body, frame);
    const keywords = new Map(args.keywords);
    parameters.forEach((parameter, i) => {
      let value = args.positional[i];
      if (value === undefined) {
        value = keywords.get(parameter);
        keywords.delete(parameter);
      }
      scope.variables.set(parameter, value);
    });
    if (special!.has('caller') && !parameters.includes('caller')) {
      scope.variables.set('caller', orElse(keywords.get('caller'), new Undefined('No caller defined')));
      keywords.delete('caller');
    }
    if (special!.has('kwargs') && !parameters.includes('kwargs'))
      scope.variables.set('kwargs', new Dict(keywords));
    else if (keywords.size > 0)
      throw typeError(`macro ${quote(name)} takes no keyword argument ${quote([...keywords.keys()][0]!)}`);
    if (special!.has('varargs') && !parameters.includes('varargs')) {
      scope.variables.set('varargs', new Tuple(args.positional.slice(parameters.length)));
    } else if (args.positional.length > parameters.length) {
      throw typeError(`macro ${quote(name)} takes not more than ${parameters.length} argument(s)`);
    }
    parameters.forEach((parameter, i) => {
      if (scope.variables.get(parameter) !== undefined) return;
      const fallback = defaults[i - parameters.length + defaults.length];
      scope.variables.set(
        parameter,
        fallback === undefined
          ? new Undefined(`parameter ${quote(parameter)} was not provided`)
          : this.#evaluate(fallback, scope),
      );
    });
    const out: string[] = [];
    this.#execute(statement.body, scope, out);
    return this.#text(out);
  }

  #evaluate(node: Expression, frame: Frame): Value {
    switch (node.type) {
      case 'Const':
        return node.value;
      case 'Name':
        return orElse(frame.find(node.name), new Undefined(`${quote(node.name)} is undefined`));
      case 'Tuple':
        return new Tuple(node.items.map((part) => this.#evaluate(part, frame)));
      case 'List':
        return node.items.map((part) => this.#evaluate(part, frame));
      case 'Dict':
        return new Dict(
          node.entries.map(
            ([key, value]) => [this.#evaluate(key, frame), this.#evaluate(value, frame)] as const,
          ),
        );
      case 'Getattr':
        return getAttribute(this.#evaluate(node.object, frame), node.name);
      case 'Getitem': {
        const object = this.#evaluate(node.object, frame);
        const key = this.#evaluate(node.key, frame);
        // A slice of what has none is an error, not undefined.
        return node.key.type === 'Slice' ? item(object, key) : getItem(object, key);
      }
      case 'Slice': {
        const part = (bound: Expression | null): Value =>
          bound === null ? null : this.#evaluate(bound, frame);
        return new Slice(part(node.start), part(node.stop), part(node.step));
      }
      case 'Call':
        return this.#call(this.#evaluate(node.callee, frame), this.#arguments(node.args, frame));
      case 'Filter':
        return this.#filter(node, frame, null);
      case 'Test': {
        const operand = this.#evaluate(node.operand, frame);
        return this.#applyTest(node.name, operand, this.#arguments(node.args, frame));
      }
      case 'Not':
        return !truth(this.#evaluate(node.operand, frame));
      case 'And': {
        const left = this.#evaluate(node.left, frame);
        return truth(left) ? this.#evaluate(node.right, frame) : left;
      }
      case 'Or': {
        const left = this.#evaluate(node.left, frame);
        return truth(left) ? left : this.#evaluate(node.right, frame);
      }
      case 'Unary':
        return signed(node.operator, this.#evaluate(node.operand, frame));
      case 'Binary':
        return arithmetic(node.operator, this.#evaluate(node.left, frame), this.#evaluate(node.right, frame));
      case 'Concat':
        return this.#concat(node.parts.map((part) => this.#evaluate(part, frame)));
      case 'Compare':
        return this.#compare(node, frame);
      case 'Conditional':
        if (truth(this.#evaluate(node.test, frame))) return this.#evaluate(node.yes, frame);
        if (node.no !== null) return this.#evaluate(node.no, frame);
        return new Undefined('the inline if-expression evaluated to false and no else section was defined.');
    }
  }

  #concat(values: readonly Value[]): Value {
    if (!this.#autoescape || !values.some((value) => value instanceof Markup))
      return values.map(str).join('');
    return new Markup(values.map(escapeHtml).join(''));
  }

  /** A chain of comparisons ends at the first that fails; each operand is evaluated once. */
  #compare(node: Expression & { readonly type: 'Compare' }, frame: Frame): Value {
    let left = this.#evaluate(node.first, frame);
    for (const { operator, operand } of node.rest) {
      const right = this.#evaluate(operand, frame);
      if (!compare(operator, left, right)) return false;
      left = right;
    }
    return true;
  }

  /** @param block what a filter block holds, for its innermost filter */
  #filter(node: FilterExpression, frame: Frame, block: Value): Value {
    const { operand } = node;
    const value =
      operand === null
        ? block
        : operand.type === 'Filter'
          ? this.#filter(operand, frame, block)
          : this.#evaluate(operand, frame);
    return this.#applyFilter(node.name, value, this.#arguments(node.args, frame));
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

  #arguments(args: CallArguments, frame: Frame, caller?: Value): Arguments {
    const positional = args.positional.map((node) => this.#evaluate(node, frame));
    const keywords = new Map<string, Value>();
    for (const [name, node] of args.keywords) keywords.set(name, this.#evaluate(node, frame));
    if (caller !== undefined) keywords.set('caller', caller);
    if (args.rest !== null) positional.push(...listOf(this.#evaluate(args.rest, frame)));
    if (args.restKeywords !== null) {
      const more = this.#evaluate(args.restKeywords, frame);
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

  #call(callee: Value, args: Arguments): Value {
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
