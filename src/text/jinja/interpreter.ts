/** Runs the statements of a template. */
import { PythonError, typeError } from './errors.js';
import { Evaluator } from './evaluator.js';
import { Frame } from './frame.js';
import { checkAttribute } from './globals.js';
import { Loop } from './loop.js';
import { escapeHtml } from './markup.js';
import type { Statement, StatementOf, Target } from './nodes.js';
import { listOf, truth } from './operators.js';
import { quote } from './quote.js';
import { str } from './repr.js';
import type { Analysis, Scopes, Symbols } from './symbols.js';
import {
  type Arguments,
  Callable,
  Dict,
  Iterator,
  Markup,
  Namespace,
  orElse,
  Tuple,
  Undefined,
  type Value,
} from './values.js';

type Signal = 'break' | 'continue' | undefined;

/** One rendering of a template. */
export class Interpreter {
  readonly #template: readonly Statement[];
  readonly #analysis: Analysis;
  /** What the template was given, and below it what every template has. */
  readonly #given: readonly ReadonlyMap<string, Value>[];
  readonly #values = new Evaluator();
  #root: Frame | null = null;

  constructor(
    template: readonly Statement[],
    analysis: Analysis,
    given: readonly ReadonlyMap<string, Value>[],
  ) {
    this.#template = template;
    this.#analysis = analysis;
    this.#given = given;
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
        out.push(this.#printed(this.#values.evaluate(statement.value, frame)));
        return undefined;
      case 'If':
        for (const branch of statement.branches) {
          if (truth(this.#values.evaluate(branch.test, frame))) return this.#execute(branch.body, frame, out);
        }
        return this.#execute(statement.otherwise, frame, out);
      case 'For':
        return this.#for(statement, frame, out);
      case 'Set':
        this.#assign(statement.target, this.#values.evaluate(statement.value, frame), frame);
        return undefined;
      case 'SetBlock':
        return this.#setBlock(statement, frame);
      case 'FilterBlock': {
        const inner: string[] = [];
        const scope = this.#enter(this.#scopesOf(statement).body, frame);
        const signal = this.#execute(statement.body, scope, inner);
        if (signal === undefined)
          out.push(this.#printed(this.#values.filter(statement.filter, scope, this.#text(inner))));
        return signal;
      }
      case 'With': {
        const scope = this.#enter(this.#scopesOf(statement).body, frame);
        for (const [target, value] of statement.targets)
          this.#assign(target, this.#values.evaluate(value, frame), scope);
        return this.#execute(statement.body, scope, out);
      }
      case 'Macro':
        frame.variables.set(statement.name, this.#macro(statement, statement.name, frame));
        return undefined;
      case 'CallBlock': {
        const caller = this.#macro(statement, 'caller', frame);
        const { callee, args } = statement.call;
        out.push(
          this.#printed(
            this.#values.call(
              this.#values.evaluate(callee, frame),
              this.#values.arguments(args, frame, caller),
            ),
          ),
        );
        return undefined;
      }
      case 'Scope': {
        const scope = this.#enter(this.#scopesOf(statement).body, statement.isolated ? null : frame);
        return this.#execute(statement.body, scope, out);
      }
      case 'Autoescape': {
        const before = this.#values.autoescape;
        const scope = this.#enter(this.#scopesOf(statement).body, frame);
        this.#values.autoescape = truth(this.#values.evaluate(statement.on, scope));
        const signal = this.#execute(statement.body, scope, out);
        this.#values.autoescape = before;
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
    return this.#values.autoescape ? escapeHtml(value) : str(value);
  }

  /** What a block holds, as a value. */
  #text(parts: readonly string[]): Value {
    const text = parts.join('');
    return this.#values.autoescape ? new Markup(text) : text;
  }

  #setBlock(statement: StatementOf<'SetBlock'>, frame: Frame): Signal {
    const inner: string[] = [];
    const scope = this.#enter(this.#scopesOf(statement).body, frame);
    const signal = this.#execute(statement.body, scope, inner);
    if (signal !== undefined) return signal;
    const text = this.#text(inner);
    this.#assign(
      statement.target,
      statement.filter === null ? text : this.#values.filter(statement.filter, scope, text),
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
    const items = this.#values.evaluate(statement.iterable, frame);
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
      if (truth(this.#values.evaluate(statement.test!, scope))) yield value;
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
          : this.#values.evaluate(fallback, scope),
      );
    });
    const out: string[] = [];
    this.#execute(statement.body, scope, out);
    return this.#text(out);
  }
}
