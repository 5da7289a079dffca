import { ExpressionParser } from './expression-parser.js';
import type { Expression, Signature, Statement, Target } from './nodes.js';

/**
 * Parses a template.
 *
 * @throws TemplateSyntaxError with what Jinja would not take either
 */
export function parse(template: string): readonly Statement[] {
  return new Parser(template).template();
}

class Parser extends ExpressionParser {
  /** How many loops the statement at hand stands in, within one function. */
  #loops = 0;

  template(): readonly Statement[] {
    return this.#statements([]);
  }

  /** Up to one of the closing tags, whose name is the next token then. */
  #statements(closing: readonly string[]): Statement[] {
    const body: Statement[] = [];
    for (;;) {
      const token = this.next();
      switch (token.type) {
        case 'eof':
          if (closing.length > 0) this.fail(`Unexpected end of template, expected ${closing.join(' or ')}`);
          return body;
        case 'data':
          body.push({ type: 'Text', text: token.text });
          break;
        case 'variable_begin':
          body.push({ type: 'Output', value: this.tuple() });
          this.expect('variable_end');
          break;
        case 'block_begin':
          if (this.current.type === 'name' && closing.includes(this.current.text)) return body;
          body.push(...this.#statement());
          this.expect('block_end');
          break;
        default:
          this.fail('internal parsing error', token.line);
      }
    }
  }

  /** The rest of a tag, then the statements up to a closing tag. */
  #body(...closing: string[]): Statement[] {
    this.skip('operator', ':');
    this.expect('block_end');
    return this.#statements(closing);
  }

  /** As {@link #body} in a function of its own, which no loop outside can be left from. */
  #function(closing: string): Statement[] {
    const loops = this.#loops;
    this.#loops = 0;
    const body = this.#body(closing);
    this.next();
    this.#loops = loops;
    return body;
  }

  #closed(closing: string): Statement[] {
    const body = this.#body(closing);
    this.next();
    return body;
  }

  #statement(): Statement[] {
    if (this.current.type !== 'name') this.fail('tag name expected');
    const { text: tag, line } = this.next();
    switch (tag) {
      case 'for':
        return [this.#for()];
      case 'if':
        return [this.#if()];
      case 'set':
        return [this.#set()];
      case 'macro': {
        const name = this.expect('name').text;
        const signature = this.#signature();
        return [{ type: 'Macro', name, signature, body: this.#function('endmacro') }];
      }
      case 'call':
        return [this.#call(line)];
      case 'filter': {
        const filter = this.filter(null, true)!;
        return [{ type: 'FilterBlock', filter, body: this.#closed('endfilter') }];
      }
      case 'with':
        return [this.#with()];
      case 'generation':
        return [{ type: 'Scope', isolated: false, body: this.#function('endgeneration') }];
      case 'block':
        return [this.#block()];
      case 'autoescape': {
        const on = this.expression();
        return [{ type: 'Autoescape', on, body: this.#closed('endautoescape') }];
      }
      case 'print': {
        const values = [this.expression()];
        while (this.skip('operator', ',')) values.push(this.expression());
        return values.map((value) => ({ type: 'Output', value }));
      }
      case 'break':
      case 'continue':
        if (this.#loops === 0) this.fail(`'${tag}' outside loop`, line);
        return [{ type: tag === 'break' ? 'Break' : 'Continue' }];
      case 'include':
      case 'import':
      case 'from':
      case 'extends':
        return [this.#load(tag)];
      default:
        this.fail(`Encountered unknown tag '${tag}'`, line);
    }
  }

  #for(): Statement {
    const target = this.#target(['in']);
    if (names(target).includes('loop')) this.fail("Can't assign to special loop variable in for-loop target");
    this.expect('name', 'in');
    const iterable = this.tuple({ conditional: false, ends: ['recursive'] });
    const test = this.skip('name', 'if') ? this.expression() : null;
    const recursive = this.skip('name', 'recursive');
    const loops = this.#loops;
    // A loop that calls itself is a function.
    this.#loops = recursive ? 1 : loops + 1;
    const body = this.#body('endfor', 'else');
    this.#loops = recursive ? 0 : loops;
    const otherwise = this.next().text === 'else' ? this.#closed('endfor') : [];
    this.#loops = loops;
    return { type: 'For', target, iterable, test, recursive, body, otherwise };
  }

  #if(): Statement {
    const branches = [];
    for (;;) {
      const test = this.tuple({ conditional: false });
      branches.push({ test, body: this.#body('elif', 'else', 'endif') });
      const { text } = this.next();
      if (text === 'elif') continue;
      const otherwise = text === 'else' ? this.#closed('endif') : [];
      return { type: 'If', branches, otherwise };
    }
  }

  #set(): Statement {
    const target = this.#target([], true);
    if (this.skip('operator', '=')) return { type: 'Set', target, value: this.tuple() };
    const filter = this.filter(null, false);
    return { type: 'SetBlock', target, filter, body: this.#closed('endset') };
  }

  #call(line: number): Statement {
    const none: Signature = { parameters: [], defaults: [] };
    const signature = this.at('operator', '(') ? this.#signature() : none;
    const call = this.expression();
    if (call.type !== 'Call') this.fail('expected call', line);
    return { type: 'CallBlock', call, signature, body: this.#function('endcall') };
  }

  #with(): Statement {
    const targets: (readonly [Target, Expression])[] = [];
    while (!this.at('block_end')) {
      if (targets.length > 0) this.expect('operator', ',');
      const target = this.#target();
      this.expect('operator', '=');
      targets.push([target, this.expression()]);
    }
    return { type: 'With', targets, body: this.#closed('endwith') };
  }

  #block(): Statement {
    const name = this.expect('name').text;
    this.skip('name', 'scoped');
    this.skip('name', 'required');
    const body = this.#function('endblock');
    this.skip('name', name);
    return { type: 'Scope', isolated: true, body };
  }

  /** Other templates cannot be loaded; the tag is read to its end, for it may stand where it is never reached. */
  #load(what: string): Statement {
    const values = [this.expression()];
    while (!this.at('block_end') && !this.at('eof')) this.next();
    return { type: 'Load', what, values };
  }

  #signature(): Signature {
    const parameters: string[] = [];
    const defaults: Expression[] = [];
    this.expect('operator', '(');
    while (!this.at('operator', ')')) {
      if (parameters.length > 0) this.expect('operator', ',');
      const { text: name } = this.expect('name');
      if (parameters.includes(name)) this.fail(`duplicate argument '${name}'`);
      parameters.push(name);
      if (this.skip('operator', '=')) defaults.push(this.expression());
      else if (defaults.length > 0) this.fail('non-default argument follows default argument');
    }
    this.next();
    return { parameters, defaults };
  }

  #target(ends: readonly string[] = [], namespaces = false): Target {
    const items: Target[] = [];
    let several = false;
    for (;;) {
      if (items.length > 0) this.expect('operator', ',');
      if (this.tupleEnds(ends)) break;
      items.push(this.#simpleTarget(namespaces));
      if (!this.at('operator', ',')) break;
      several = true;
    }
    const [only] = items;
    if (only === undefined && !several) this.fail('Expected an expression');
    return several ? { type: 'Tuple', items } : only!;
  }

  #simpleTarget(namespaces: boolean): Target {
    if (this.skip('operator', '(')) {
      const target = this.#target([], namespaces);
      this.expect('operator', ')');
      return target;
    }
    const { text: name, line } = this.expect('name');
    if (['true', 'false', 'none', 'True', 'False', 'None'].includes(name))
      this.fail(`can't assign to '${name}'`, line);
    if (!namespaces || !this.skip('operator', '.')) return { type: 'Name', name };
    return { type: 'NamespaceAttribute', name, attribute: this.expect('name').text };
  }
}

/** The names that a target assigns to. */
export function names(target: Target): readonly string[] {
  if (target.type === 'Tuple') return target.items.flatMap(names);
  return target.type === 'Name' ? [target.name] : [];
}
