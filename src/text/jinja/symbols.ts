/**
 * Where the variables of a template live.
 *
 * Jinja settles before a template runs which scope each name belongs to, and this shows: a name that a scope sets
 * unconditionally, and reads only in loops or macros inside of it, is undefined there until it is set, whatever the
 * request passes under that name.
 */
import { TemplateSyntaxError } from './errors.js';
import { FILTERS } from './filters.js';
import type { CallArguments, Expression, Statement, StatementOf, Target } from './nodes.js';
import { names } from './parser.js';
import { TESTS } from './tests.js';

/**
 * What a name of a scope is when the scope is entered: a parameter that is filled in, what the template was given, what
 * the scope around it has, or nothing yet.
 */
export type Load = 'parameter' | 'given' | 'outer' | 'unset';

/** The names of a scope. */
export class Symbols {
  readonly parent: Symbols | null;
  readonly loads: Map<string, Load>;
  readonly stores: Set<string>;

  constructor(parent: Symbols | null, loads = new Map<string, Load>(), stores = new Set<string>()) {
    this.parent = parent;
    this.loads = loads;
    this.stores = stores;
  }

  /** What a name that is set here is before that, whether it is read or not. */
  #before(name: string, fallback: Load): Load {
    return knows(this.parent, name) ? 'outer' : fallback;
  }

  load(name: string): void {
    if (!knows(this, name)) this.loads.set(name, 'given');
  }

  store(name: string): void {
    this.stores.add(name);
    if (!this.loads.has(name)) this.loads.set(name, this.#before(name, 'unset'));
  }

  parameter(name: string): void {
    this.stores.add(name);
    this.loads.set(name, 'parameter');
  }

  copy(): Symbols {
    return new Symbols(this.parent, new Map(this.loads), new Set(this.stores));
  }

  /** Takes over what branches of an `if` set: any of them may not have run. */
  merge(branches: readonly Symbols[]): void {
    const before = new Set(this.stores);
    const set = new Set(branches.flatMap((branch) => [...branch.stores]).filter((name) => !before.has(name)));
    for (const branch of branches) {
      for (const [name, load] of branch.loads) this.loads.set(name, load);
      for (const name of branch.stores) this.stores.add(name);
    }
    for (const name of set) this.loads.set(name, this.#before(name, 'given'));
  }
}

function knows(symbols: Symbols | null, name: string): boolean {
  for (let scope = symbols; scope !== null; scope = scope.parent) if (scope.loads.has(name)) return true;
  return false;
}

/** The scopes of a statement. */
export interface Scopes {
  readonly body: Symbols;
  /** Of a loop: where its `else` and its `if` stand. */
  readonly otherwise?: Symbols;
  readonly test?: Symbols;
  /** Of a macro or a call block: which of `caller`, `kwargs` and `varargs` it reads. */
  readonly special?: ReadonlySet<string>;
}

export interface Analysis {
  readonly root: Symbols;
  readonly scopes: ReadonlyMap<Statement, Scopes>;
}

/** @throws TemplateSyntaxError for a filter or test that is not there, and for a loop that sets `loop` */
export function analyze(template: readonly Statement[]): Analysis {
  const scopes = new Map<Statement, Scopes>();
  const root = new Symbols(null);
  new Analyzer(scopes).scope(template, root, false);
  return { root, scopes };
}

class Analyzer {
  readonly #scopes: Map<Statement, Scopes>;

  constructor(scopes: Map<Statement, Scopes>) {
    this.#scopes = scopes;
  }

  /** Reads the statements of a scope, then the scopes inside of it: those are settled by all that it knows. */
  scope(body: readonly Statement[], symbols: Symbols, soft: boolean): void {
    visit(body, symbols);
    this.#inner(body, symbols, soft);
  }

  /** @param soft the statements may not be reached: a filter that is not there is found when they are */
  #inner(body: readonly Statement[], symbols: Symbols, soft: boolean): void {
    for (const statement of body) {
      for (const expression of expressionsOf(statement))
        checkNames(expression, soft || statement.type === 'If');
      switch (statement.type) {
        case 'If':
          for (const branch of statement.branches) this.#inner(branch.body, symbols, true);
          this.#inner(statement.otherwise, symbols, true);
          break;
        case 'For':
          this.#loop(statement, symbols);
          break;
        case 'Macro':
        case 'CallBlock':
          this.#macro(statement, symbols);
          break;
        case 'With': {
          const inner = new Symbols(symbols);
          for (const [target] of statement.targets) for (const name of names(target)) inner.parameter(name);
          this.#add(statement, inner, statement.body);
          break;
        }
        case 'Scope':
          this.#add(statement, new Symbols(statement.isolated ? null : symbols), statement.body);
          break;
        case 'FilterBlock':
        case 'SetBlock':
          this.#add(statement, new Symbols(symbols), statement.body);
          break;
        case 'Autoescape': {
          const inner = new Symbols(symbols);
          loadAll(statement.on, inner);
          this.#add(statement, inner, statement.body);
          break;
        }
      }
    }
  }

  #add(statement: Statement, symbols: Symbols, body: readonly Statement[]): void {
    this.#scopes.set(statement, { body: symbols });
    this.scope(body, symbols, false);
  }

  #loop(statement: StatementOf<'For'>, symbols: Symbols): void {
    if (sets(statement.body, 'loop')) {
      throw new TemplateSyntaxError("Can't assign to special loop variable in for-loop", 1);
    }
    const body = new Symbols(symbols);
    const test = new Symbols(symbols);
    const otherwise = new Symbols(symbols);
    body.parameter('loop');
    for (const name of names(statement.target)) {
      body.parameter(name);
      test.parameter(name);
    }
    if (statement.test !== null) loadAll(statement.test, test);
    this.#scopes.set(statement, { body, test, otherwise });
    this.scope(statement.body, body, false);
    this.scope(statement.otherwise, otherwise, false);
  }

  #macro(statement: StatementOf<'Macro' | 'CallBlock'>, symbols: Symbols): void {
    const inner = new Symbols(symbols);
    const { parameters, defaults } = statement.signature;
    for (const name of parameters) inner.parameter(name);
    for (const value of defaults) loadAll(value, inner);
    const special = new Set(['caller', 'kwargs', 'varargs'].filter((name) => reads(statement.body, name)));
    if (special.has('caller') && parameters.includes('caller')) {
      if (parameters.length - parameters.indexOf('caller') > defaults.length) {
        throw new TemplateSyntaxError('a parameter named "caller" must have a default', 1);
      }
    }
    for (const name of special) inner.parameter(name);
    this.#scopes.set(statement, { body: inner, special });
    this.scope(statement.body, inner, false);
  }
}

/** Enters the names of a scope's own statements in the order in which they run. */
function visit(body: readonly Statement[], symbols: Symbols): void {
  for (const statement of body) {
    switch (statement.type) {
      case 'If': {
        const [first, ...rest] = statement.branches;
        loadAll(first!.test, symbols);
        const branches = [symbols.copy(), symbols.copy(), symbols.copy()];
        visit(first!.body, branches[0]!);
        // Further branches are ifs of their own, one in the other.
        for (const branch of rest) visit([{ type: 'If', branches: [branch], otherwise: [] }], branches[1]!);
        visit(statement.otherwise, branches[2]!);
        symbols.merge(branches);
        break;
      }
      case 'Set':
        loadAll(statement.value, symbols);
        storeAll(statement.target, symbols);
        break;
      case 'SetBlock':
        storeAll(statement.target, symbols);
        if (statement.filter !== null) loadAll(statement.filter, symbols);
        break;
      case 'Macro':
        symbols.store(statement.name);
        break;
      case 'Autoescape':
        break;
      default:
        for (const expression of expressionsOf(statement)) loadAll(expression, symbols);
    }
  }
}

/** The expressions that are a part of a statement itself, and stand in the scope around it. */
function expressionsOf(statement: Statement): readonly Expression[] {
  switch (statement.type) {
    case 'Output':
    case 'Set':
      return [statement.value];
    case 'For':
      return [statement.iterable];
    case 'If':
      return statement.branches.map(({ test }) => test);
    case 'SetBlock':
      return statement.filter === null ? [] : [statement.filter];
    case 'FilterBlock':
      return [statement.filter];
    case 'With':
      return statement.targets.map(([, value]) => value);
    case 'CallBlock':
      return [statement.call, ...statement.signature.defaults];
    case 'Macro':
      return statement.signature.defaults;
    case 'Autoescape':
      return [statement.on];
    case 'Load':
      return statement.values;
    default:
      return [];
  }
}

function loadAll(expression: Expression, symbols: Symbols): void {
  walk(expression, (node) => {
    if (node.type === 'Name') symbols.load(node.name);
  });
}

function storeAll(target: Target, symbols: Symbols): void {
  if (target.type === 'Name') symbols.store(target.name);
  else if (target.type === 'Tuple') for (const item of target.items) storeAll(item, symbols);
  else symbols.load(target.name);
}

function checkNames(expression: Expression, soft: boolean): void {
  if (soft) return;
  walk(
    expression,
    (node) => {
      if (node.type === 'Filter' && !FILTERS.has(node.name)) {
        throw new TemplateSyntaxError(`No filter named '${node.name}'.`, node.line);
      }
      if (node.type === 'Test' && !TESTS.has(node.name)) {
        throw new TemplateSyntaxError(`No test named '${node.name}'.`, node.line);
      }
    },
    // What stands in `a if b else c` may not be reached either.
    (node) => node.type !== 'Conditional',
  );
}

/** Visits an expression and all parts of it, from the left. @param enter whether to go into the parts of one */
function walk(
  expression: Expression,
  see: (node: Expression) => void,
  enter: (node: Expression) => boolean = () => true,
): void {
  see(expression);
  if (!enter(expression)) return;
  for (const part of partsOf(expression)) walk(part, see, enter);
}

function partsOf(node: Expression): readonly Expression[] {
  switch (node.type) {
    case 'Const':
    case 'Name':
      return [];
    case 'Tuple':
    case 'List':
      return node.items;
    case 'Dict':
      return node.entries.flat();
    case 'Getattr':
      return [node.object];
    case 'Getitem':
      return [node.object, node.key];
    case 'Slice':
      return present([node.start, node.stop, node.step]);
    case 'Call':
      return [node.callee, ...argumentsOf(node.args)];
    case 'Filter':
      return [...present([node.operand]), ...argumentsOf(node.args)];
    case 'Test':
      return [node.operand, ...argumentsOf(node.args)];
    case 'Not':
    case 'Unary':
      return [node.operand];
    case 'And':
    case 'Or':
    case 'Binary':
      return [node.left, node.right];
    case 'Concat':
      return node.parts;
    case 'Compare':
      return [node.first, ...node.rest.map(({ operand }) => operand)];
    case 'Conditional':
      return present([node.test, node.yes, node.no]);
  }
}

function present<T>(values: readonly (T | null)[]): T[] {
  return values.filter((value) => value !== null);
}

function argumentsOf({ positional, keywords, rest, restKeywords }: CallArguments): Expression[] {
  return [...positional, ...keywords.map(([, value]) => value), ...present([rest, restKeywords])];
}

/** The statements inside of a statement. */
function bodiesOf(statement: Statement): readonly (readonly Statement[])[] {
  switch (statement.type) {
    case 'For':
      return [statement.body, statement.otherwise];
    case 'If':
      return [...statement.branches.map(({ body }) => body), statement.otherwise];
    case 'SetBlock':
    case 'FilterBlock':
    case 'With':
    case 'Macro':
    case 'CallBlock':
    case 'Autoescape':
      return [statement.body];
    case 'Scope':
      return statement.isolated ? [] : [statement.body];
    default:
      return [];
  }
}

/** Whether statements read a name, at any depth, before one of them sets it. */
function reads(body: readonly Statement[], name: string): boolean {
  for (const statement of body) {
    const expressions = [
      ...expressionsOf(statement),
      ...(statement.type === 'For' && statement.test ? [statement.test] : []),
    ];
    let found = false;
    for (const expression of expressions) {
      walk(expression, (node) => {
        found ||= node.type === 'Name' && node.name === name;
      });
    }
    if (found) return true;
    if (targetsOf(statement).includes(name)) return false;
    for (const inner of bodiesOf(statement)) if (reads(inner, name)) return true;
  }
  return false;
}

function targetsOf(statement: Statement): readonly string[] {
  switch (statement.type) {
    case 'Set':
    case 'SetBlock':
    case 'For':
      return names(statement.target);
    case 'With':
      return statement.targets.flatMap(([target]) => names(target));
    default:
      return [];
  }
}

function sets(body: readonly Statement[], name: string): boolean {
  return body.some(
    (statement) =>
      targetsOf(statement).includes(name) || bodiesOf(statement).some((inner) => sets(inner, name)),
  );
}
