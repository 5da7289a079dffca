/** The codes of all errors that the sources raise, read from the sources. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const src = fileURLToPath(new URL('../../src', import.meta.url));

type Call = ts.CallExpression | ts.NewExpression;

/** A function that is given a code, and which of its parameters that is. */
interface Maker {
  readonly file: string;
  readonly name: string;
  readonly parameter: number;
}

/** By code, the files that raise it. Throws where an error is made whose code cannot be told. */
export function raisedCodes(): Map<string, Set<string>> {
  const texts = new Map(
    readdirSync(src, { recursive: true })
      .map(String)
      .filter((name) => /\.ts$/.test(name) && !/\.test\.ts$|\/assembly\//.test(name))
      .map((name) => [name, readFileSync(join(src, name), 'utf8')]),
  );
  const parsed = new Map<string, ts.SourceFile>();
  const parse = (name: string): ts.SourceFile => {
    let file = parsed.get(name);
    if (file === undefined) {
      file = ts.createSourceFile(name, texts.get(name)!, ts.ScriptTarget.Latest, true);
      parsed.set(name, file);
    }
    return file;
  };
  /** Calls of a function: in its own file, and in those that import it. */
  const callsOf = (name: string, home: string | null): Call[] =>
    [...texts]
      .filter(([file, text]) => {
        if (!new RegExp(`\\b${name}\\(`).test(text)) return false;
        if (home === null || file === home) return true;
        const base = home.replace(/.*\//, '').replace(/ts$/, 'js');
        return new RegExp(`import[^;]*\\b${name}\\b[^;]*/${base}'`).test(text);
      })
      .flatMap(([file]) => callsIn(parse(file), name));

  const codes = new Map<string, Set<string>>();
  const seen = new Set<ts.Node>();
  const add = (expression: ts.Expression | undefined): void => {
    if (expression === undefined || seen.has(expression)) return;
    seen.add(expression);
    const file = expression.getSourceFile();
    if (ts.isStringLiteralLike(expression)) {
      codes.set(expression.text, (codes.get(expression.text) ?? new Set()).add(file.fileName));
      return;
    }
    if (ts.isConditionalExpression(expression)) {
      add(expression.whenTrue);
      add(expression.whenFalse);
      return;
    }
    // An error made again from another, in other words or on another thread: its code was counted there.
    if (ts.isPropertyAccessExpression(expression) && expression.name.text === 'code') return;
    if (ts.isIdentifier(expression)) {
      const from = origin(expression);
      if (from === 'error') return;
      if (from !== null && 'parameter' in from) {
        for (const call of callsOf(from.name, from.file)) add(call.arguments?.[from.parameter]);
        return;
      }
      if (from !== null) {
        add(from.initializer);
        return;
      }
    }
    const { line } = file.getLineAndCharacterOfPosition(expression.getStart());
    throw new Error(`src/${file.fileName}:${line + 1}: which code is ${expression.getText()}?`);
  };
  for (const made of callsOf('KvantError', null)) if (ts.isNewExpression(made)) add(made.arguments?.[0]);
  return codes;
}

function callsIn(file: ts.SourceFile, name: string): Call[] {
  const calls: Call[] = [];
  const visit = (node: ts.Node): void => {
    if ((ts.isCallExpression(node) || ts.isNewExpression(node)) && node.expression.getText() === name)
      calls.push(node);
    ts.forEachChild(node, visit);
  };
  visit(file);
  return calls;
}

/** Where a code comes from: a function's parameter, a constant, or an error that was made before. */
function origin(code: ts.Identifier): Maker | { readonly initializer: ts.Expression } | 'error' | null {
  for (let node: ts.Node = code; node.parent !== undefined; node = node.parent) {
    if (ts.isFunctionDeclaration(node) || ts.isArrowFunction(node)) {
      const parameter = node.parameters.findIndex(({ name }) => name.getText() === code.text);
      const name = ts.isFunctionDeclaration(node)
        ? node.name?.text
        : ts.isVariableDeclaration(node.parent)
          ? node.parent.name.getText()
          : undefined;
      if (parameter >= 0 && name !== undefined)
        return { file: code.getSourceFile().fileName, name, parameter };
    }
    if (!ts.isBlock(node) && !ts.isSourceFile(node)) continue;
    for (const statement of node.statements) {
      if (!ts.isVariableStatement(statement)) continue;
      for (const { name, initializer } of statement.declarationList.declarations) {
        if (ts.isObjectBindingPattern(name)) {
          if (code.text === 'code' && name.elements.some((one) => one.name.getText() === 'code'))
            return 'error';
        } else if (name.getText() === code.text && initializer !== undefined) return { initializer };
      }
    }
  }
  return null;
}
