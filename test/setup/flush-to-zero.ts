/**
 * `let` statements of WGSL on the host, as a GPU may compute them: f32 results that are not normal numbers are zeros, and a quotient is a
 * product with an inverse. A compiler may also put the constants of `a / (x * b)` together; here it does. The scalars f32, u32 and bool,
 * `+ - * / & | >`, `bitcast` and `select`: what else a text has makes it throw.
 */

interface Value {
  readonly type: 'f32' | 'u32' | 'bool';
  readonly value: number;
}
type Node =
  | { readonly kind: 'literal'; readonly of: Value }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'call'; readonly name: string; readonly nodes: readonly Node[] }
  | { readonly kind: 'binary'; readonly op: string; readonly left: Node; readonly right: Node };

const LEAST_NORMAL = 2 ** -126;
const LEVELS: readonly (readonly string[])[] = [['>'], ['|'], ['&'], ['+', '-'], ['*', '/']];
const TOKENS = /bitcast<[uf]32>|0x[0-9a-f]+u|\d+u|\d+\.?\d*(?:e-?\d+)?|\w+|[-+*/&|>(),]/g;
const words = new DataView(new ArrayBuffer(4));

export function f32Of(bits: number): number {
  words.setUint32(0, bits);
  return words.getFloat32(0);
}

export function bitsOf(value: number): number {
  words.setFloat32(0, value);
  return words.getUint32(0);
}

/** All names after the statements. @param given f32s that they read */
export function evaluateFlushed(
  statements: string,
  given: Readonly<Record<string, number>>,
): Map<string, number> {
  const names = new Map<string, Value>();
  for (const [name, value] of Object.entries(given)) names.set(name, { type: 'f32', value });
  for (const line of statements.split('\n')) {
    const [, name, text] = /^\s*let (\w+) = (.*);$/.exec(line) ?? [];
    if (name === undefined || text === undefined) throw new SyntaxError(`no statement: ${line}`);
    names.set(name, evaluate(parse(text), names));
  }
  return new Map([...names].map(([name, { value }]) => [name, value]));
}

function parse(text: string): Node {
  const tokens = text.match(TOKENS) ?? [];
  if (tokens.join('') !== text.replaceAll(' ', '')) throw new SyntaxError(`not read: ${text}`);
  let at = 0;
  const expect = (token: string): void => {
    if (tokens[at++] !== token) throw new SyntaxError(`no ${token} in ${text}`);
  };
  const binary = (level: number): Node => {
    const ops = LEVELS[level];
    if (ops === undefined) return unary();
    let left = binary(level + 1);
    while (ops.includes(tokens[at] ?? ''))
      left = { kind: 'binary', op: tokens[at++]!, left, right: binary(level + 1) };
    return left;
  };
  const unary = (): Node => {
    const token = tokens[at++];
    if (token === undefined) throw new SyntaxError(`ends too soon: ${text}`);
    if (token === '(') {
      const inner = binary(0);
      expect(')');
      return inner;
    }
    if (/^\d/.test(token)) {
      const type = token.endsWith('u') ? 'u32' : 'f32';
      return { kind: 'literal', of: { type, value: Number(token.replace(/u$/, '')) } };
    }
    if (tokens[at] !== '(') return { kind: 'name', name: token };
    const nodes: Node[] = [];
    do {
      at++;
      nodes.push(binary(0));
    } while (tokens[at] === ',');
    expect(')');
    return { kind: 'call', name: token, nodes };
  };
  const whole = binary(0);
  if (at !== tokens.length) throw new SyntaxError(`goes on: ${text}`);
  return whole;
}

function evaluate(node: Node, names: ReadonlyMap<string, Value>): Value {
  switch (node.kind) {
    case 'literal':
      return node.of;
    case 'name': {
      const found = names.get(node.name);
      if (found === undefined) throw new ReferenceError(node.name);
      return found;
    }
    case 'call': {
      const [a, b, which] = node.nodes.map((of) => evaluate(of, names));
      if (node.name === 'bitcast<u32>') return { type: 'u32', value: bitsOf(a!.value) };
      if (node.name === 'bitcast<f32>') return { type: 'f32', value: f32Of(a!.value) };
      if (node.name === 'select') return which!.value === 0 ? a! : b!;
      throw new SyntaxError(`no function ${node.name}`);
    }
    case 'binary': {
      const { op, left, right } = folded(node);
      const [a, b] = [evaluate(left, names), evaluate(right, names)];
      if (a.type !== b.type) throw new TypeError(`${a.type} ${op} ${b.type}`);
      if (op === '>') return { type: 'bool', value: Number(a.value > b.value) };
      return a.type === 'u32'
        ? { type: 'u32', value: integer(op, a.value, b.value) }
        : { type: 'f32', value: float(op, a.value, b.value) };
    }
  }
}

/** `a / (x * b)` as `(a / b) / x`. */
function folded(node: Extract<Node, { kind: 'binary' }>): Extract<Node, { kind: 'binary' }> {
  const { op, left, right } = node;
  if (op !== '/' || left.kind !== 'literal' || right.kind !== 'binary') return node;
  if (right.op !== '*' || right.right.kind !== 'literal') return node;
  const value = Math.fround(left.of.value / right.right.of.value);
  return { ...node, left: { kind: 'literal', of: { type: 'f32', value } }, right: right.left };
}

function integer(op: string, a: number, b: number): number {
  if (op === '+') return (a + b) >>> 0;
  if (op === '-') return (a - b) >>> 0;
  if (op === '&') return (a & b) >>> 0;
  if (op === '|') return (a | b) >>> 0;
  throw new SyntaxError(`no ${op} of u32`);
}

function float(op: string, a: number, b: number): number {
  if (op === '+') return flushed(a + b);
  if (op === '-') return flushed(a - b);
  if (op === '*') return flushed(a * b);
  if (op === '/') return flushed(a * flushed(1 / b));
  throw new SyntaxError(`no ${op} of f32`);
}

function flushed(value: number): number {
  const rounded = Math.fround(value);
  return Math.abs(rounded) < LEAST_NORMAL ? 0 : rounded;
}
