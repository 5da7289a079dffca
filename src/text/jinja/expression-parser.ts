import { TemplateSyntaxError } from './errors.js';
import { type Token, type TokenType, tokenize } from './lexer.js';
import type { CallArguments, CompareOperator, Expression, FilterExpression } from './nodes.js';

interface TupleOptions {
  /** `a if b else c` may stand in it. Default true. */
  readonly conditional?: boolean;
  /** Names that end it. */
  readonly ends?: readonly string[];
  /** It stands in brackets, where it may be empty. */
  readonly bracketed?: boolean;
}

const COMPARISONS: readonly string[] = ['==', '!=', '<', '<=', '>', '>='];
const CONSTANTS: ReadonlyMap<string, null | boolean> = new Map([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
]);
const NO_ARGUMENTS: CallArguments = { positional: [], keywords: [], rest: null, restKeywords: null };

/** Jinja's expressions, from `or` down to names. */
export class ExpressionParser {
  readonly #tokens: readonly Token[];
  #index = 0;

  constructor(template: string) {
    this.#tokens = tokenize(template);
  }

  protected get current(): Token {
    return this.#tokens[this.#index]!;
  }

  protected next(): Token {
    const token = this.current;
    if (token.type !== 'eof') this.#index++;
    return token;
  }

  protected at(type: TokenType, text?: string): boolean {
    return this.current.type === type && (text === undefined || this.current.text === text);
  }

  #follows(type: TokenType, text: string): boolean {
    const token = this.#tokens[this.#index + 1];
    return token?.type === type && token.text === text;
  }

  protected skip(type: TokenType, text: string): boolean {
    const found = this.at(type, text);
    if (found) this.#index++;
    return found;
  }

  protected expect(type: TokenType, text?: string): Token {
    if (this.at(type, text)) return this.next();
    const wanted =
      text ??
      { variable_end: 'end of print statement', block_end: 'end of statement block' }[type as string] ??
      type;
    if (this.at('eof')) this.fail(`unexpected end of template, expected '${wanted}'`);
    this.fail(`expected token '${wanted}', got '${this.current.text || this.current.type}'`);
  }

  protected fail(message: string, line = this.current.line): never {
    throw new TemplateSyntaxError(message, line);
  }

  protected tupleEnds(ends: readonly string[] = []): boolean {
    const { type, text } = this.current;
    if (type === 'variable_end' || type === 'block_end' || (type === 'operator' && text === ')')) return true;
    return type === 'name' && ends.includes(text);
  }

  /** One expression, or several with commas between them: a tuple. */
  protected tuple({ conditional = true, ends = [], bracketed = false }: TupleOptions = {}): Expression {
    const items: Expression[] = [];
    let several = false;
    for (;;) {
      if (items.length > 0) this.expect('operator', ',');
      if (this.tupleEnds(ends)) break;
      items.push(conditional ? this.expression() : this.#or());
      if (!this.at('operator', ',')) break;
      several = true;
    }
    if (!several) {
      if (items[0] !== undefined) return items[0];
      if (!bracketed) this.fail(`Expected an expression, got '${this.current.text || this.current.type}'`);
    }
    return { type: 'Tuple', items };
  }

  /** `a if b else c`, and all below. */
  protected expression(): Expression {
    let yes = this.#or();
    while (this.skip('name', 'if')) {
      const test = this.#or();
      const no = this.skip('name', 'else') ? this.expression() : null;
      yes = { type: 'Conditional', test, yes, no };
    }
    return yes;
  }

  #or(): Expression {
    let left = this.#and();
    while (this.skip('name', 'or')) left = { type: 'Or', left, right: this.#and() };
    return left;
  }

  #and(): Expression {
    let left = this.#not();
    while (this.skip('name', 'and')) left = { type: 'And', left, right: this.#not() };
    return left;
  }

  #not(): Expression {
    return this.skip('name', 'not') ? { type: 'Not', operand: this.#not() } : this.#compare();
  }

  #compare(): Expression {
    const first = this.#sum();
    const rest: { operator: CompareOperator; operand: Expression }[] = [];
    for (;;) {
      let operator: string;
      if (this.current.type === 'operator' && COMPARISONS.includes(this.current.text))
        operator = this.next().text;
      else if (this.skip('name', 'in')) operator = 'in';
      else if (this.at('name', 'not') && this.#follows('name', 'in')) {
        this.#index += 2;
        operator = 'not in';
      } else break;
      rest.push({ operator: operator as CompareOperator, operand: this.#sum() });
    }
    return rest.length === 0 ? first : { type: 'Compare', first, rest };
  }

  /** Operators of one rank, from the left. */
  #binary(operators: readonly string[], operand: () => Expression): Expression {
    let left = operand();
    while (this.current.type === 'operator' && operators.includes(this.current.text)) {
      const operator = this.next().text as (Expression & { type: 'Binary' })['operator'];
      left = { type: 'Binary', operator, left, right: operand() };
    }
    return left;
  }

  #sum(): Expression {
    return this.#binary(['+', '-'], () => this.#concat());
  }

  #concat(): Expression {
    const parts = [this.#product()];
    while (this.skip('operator', '~')) parts.push(this.#product());
    return parts.length === 1 ? parts[0]! : { type: 'Concat', parts };
  }

  #product(): Expression {
    return this.#binary(['*', '/', '//', '%'], () => this.#binary(['**'], () => this.#unary(true)));
  }

  #unary(filters: boolean): Expression {
    let node: Expression;
    if (this.skip('operator', '-')) node = { type: 'Unary', operator: '-', operand: this.#unary(false) };
    else if (this.skip('operator', '+')) node = { type: 'Unary', operator: '+', operand: this.#unary(false) };
    else node = this.#primary();
    node = this.#postfix(node);
    return filters ? this.#filtersAndTests(node) : node;
  }

  #primary(): Expression {
    const token = this.next();
    switch (token.type) {
      case 'name': {
        const constant = CONSTANTS.get(token.text);
        return constant === undefined
          ? { type: 'Name', name: token.text }
          : { type: 'Const', value: constant };
      }
      case 'string': {
        let value = token.value as string;
        while (this.at('string')) value += this.next().value as string;
        return { type: 'Const', value };
      }
      case 'integer':
      case 'float':
        return { type: 'Const', value: token.value };
      case 'operator':
        if (token.text === '(') {
          const node = this.tuple({ bracketed: true });
          this.expect('operator', ')');
          return node;
        }
        if (token.text === '[') return { type: 'List', items: this.#list() };
        if (token.text === '{') return this.#dict();
    }
    this.fail(`unexpected '${token.text || token.type}'`, token.line);
  }

  #list(): Expression[] {
    const items: Expression[] = [];
    while (!this.at('operator', ']')) {
      if (items.length > 0) this.expect('operator', ',');
      if (this.at('operator', ']')) break;
      items.push(this.expression());
    }
    this.next();
    return items;
  }

  #dict(): Expression {
    const entries: [Expression, Expression][] = [];
    while (!this.at('operator', '}')) {
      if (entries.length > 0) this.expect('operator', ',');
      if (this.at('operator', '}')) break;
      const key = this.expression();
      this.expect('operator', ':');
      entries.push([key, this.expression()]);
    }
    this.next();
    return { type: 'Dict', entries };
  }

  #postfix(start: Expression): Expression {
    let node = start;
    for (;;) {
      if (this.skip('operator', '.')) node = this.#attribute(node);
      else if (this.skip('operator', '[')) node = { type: 'Getitem', object: node, key: this.#subscript() };
      else if (this.at('operator', '(')) node = { type: 'Call', callee: node, args: this.#callArguments() };
      else return node;
    }
  }

  #attribute(object: Expression): Expression {
    const token = this.next();
    if (token.type === 'name') return { type: 'Getattr', object, name: token.text };
    if (token.type !== 'integer') this.fail('expected name or number', token.line);
    return { type: 'Getitem', object, key: { type: 'Const', value: token.value } };
  }

  #subscript(): Expression {
    const keys: Expression[] = [];
    while (!this.at('operator', ']')) {
      if (keys.length > 0) this.expect('operator', ',');
      keys.push(this.#subscribed());
    }
    this.next();
    return keys.length === 1 ? keys[0]! : { type: 'Tuple', items: keys };
  }

  #subscribed(): Expression {
    let start: Expression | null = null;
    if (!this.skip('operator', ':')) {
      start = this.expression();
      if (!this.skip('operator', ':')) return start;
    }
    const part = (): Expression | null =>
      this.at('operator', ':') || this.at('operator', ']') || this.at('operator', ',')
        ? null
        : this.expression();
    const stop = part();
    const step = this.skip('operator', ':') ? part() : null;
    return { type: 'Slice', start, stop, step };
  }

  #callArguments(): CallArguments {
    const { line } = this.expect('operator', '(');
    const positional: Expression[] = [];
    const keywords: [string, Expression][] = [];
    let rest: Expression | null = null;
    let restKeywords: Expression | null = null;
    const ensure = (holds: boolean): void => {
      if (!holds) this.fail('invalid syntax for function call expression', line);
    };
    let comma = false;
    while (!this.at('operator', ')')) {
      if (comma) {
        this.expect('operator', ',');
        if (this.at('operator', ')')) break;
      }
      comma = true;
      if (this.skip('operator', '*')) {
        ensure(rest === null && restKeywords === null);
        rest = this.expression();
      } else if (this.skip('operator', '**')) {
        ensure(restKeywords === null);
        restKeywords = this.expression();
      } else if (this.at('name') && this.#follows('operator', '=')) {
        ensure(restKeywords === null);
        const key = this.next().text;
        this.next();
        if (keywords.some(([known]) => known === key)) this.fail(`keyword argument repeated: ${key}`, line);
        keywords.push([key, this.expression()]);
      } else {
        ensure(rest === null && restKeywords === null && keywords.length === 0);
        positional.push(this.expression());
      }
    }
    this.next();
    return { positional, keywords, rest, restKeywords };
  }

  #filtersAndTests(start: Expression): Expression {
    let node = start;
    for (;;) {
      if (this.at('operator', '|')) node = this.filter(node, false)!;
      else if (this.skip('name', 'is')) node = this.#test(node);
      else if (this.at('operator', '(')) node = { type: 'Call', callee: node, args: this.#callArguments() };
      else return node;
    }
  }

  /** `|name(…)|…` @param inline the first one stands without its bar */
  protected filter(operand: Expression | null, inline: boolean): FilterExpression | null {
    let node: FilterExpression | null = null;
    let first = inline;
    while (first || this.skip('operator', '|')) {
      first = false;
      const { line } = this.current;
      const name = this.#dottedName();
      const args = this.at('operator', '(') ? this.#callArguments() : NO_ARGUMENTS;
      node = { type: 'Filter', operand: node ?? operand, name, args, line };
    }
    return node;
  }

  #dottedName(): string {
    let name = this.expect('name').text;
    while (this.skip('operator', '.')) name += `.${this.expect('name').text}`;
    return name;
  }

  #test(operand: Expression): Expression {
    const negated = this.skip('name', 'not');
    const { line } = this.current;
    const name = this.#dottedName();
    const node: Expression = { type: 'Test', operand, name, args: this.#testArguments(), line };
    return negated ? { type: 'Not', operand: node } : node;
  }

  /** In brackets, or one operand without them. */
  #testArguments(): CallArguments {
    if (this.at('operator', '(')) return this.#callArguments();
    const { type, text } = this.current;
    const begins =
      type === 'string' ||
      type === 'integer' ||
      type === 'float' ||
      (type === 'operator' && (text === '[' || text === '{')) ||
      (type === 'name' && !['else', 'or', 'and'].includes(text));
    if (!begins) return NO_ARGUMENTS;
    if (type === 'name' && text === 'is') this.fail('You cannot chain multiple tests with is');
    return { ...NO_ARGUMENTS, positional: [this.#postfix(this.#primary())] };
  }
}
