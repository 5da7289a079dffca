/**
 * What bundlers find in the built files. An optional package that is not installed must not stop a build: its import is left
 * for when it is wanted, by the comments that webpack, Turbopack and Vite read, and inside `try` for esbuild.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const dist = join(root, 'dist');
const { optionalDependencies, dependencies } = JSON.parse(
  readFileSync(join(root, 'package.json'), 'utf8'),
) as Record<'optionalDependencies' | 'dependencies', Record<string, string>>;

const COMMENTS = ['/* webpackIgnore: true */', '/* turbopackIgnore: true */', '/* @vite-ignore */'];

interface Import {
  readonly file: string;
  readonly specifier: string;
  /** What stands before the specifier of an `import()`; null for an import that is a statement. */
  readonly comments: string | null;
  readonly tried: boolean;
}

function isTried(node: ts.Node): boolean {
  for (let at = node; at.parent !== undefined; at = at.parent)
    if (ts.isTryStatement(at.parent) && at.parent.tryBlock === at) return true;
  return false;
}

/** Imports of packages. Most files have none, and are not parsed. */
function importsOf(file: string): Import[] {
  const text = readFileSync(join(dist, file), 'utf8');
  const names = ts.preProcessFile(text, true, true).importedFiles.map(({ fileName }) => fileName);
  if (!names.some(isPackage)) return [];
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true, ts.ScriptKind.JS);
  const found: Import[] = [];
  const visit = (node: ts.Node): void => {
    if ((ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) && node.moduleSpecifier !== undefined)
      found.push({
        file,
        specifier: (node.moduleSpecifier as ts.StringLiteral).text,
        comments: null,
        tried: false,
      });
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      const [specifier] = node.arguments;
      if (specifier !== undefined && ts.isStringLiteralLike(specifier))
        found.push({
          file,
          specifier: specifier.text,
          comments: text.slice(node.expression.end, specifier.getStart()),
          tried: isTried(node),
        });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found.filter(({ specifier }) => isPackage(specifier));
}

const isPackage = (specifier: string): boolean =>
  !specifier.startsWith('.') && !specifier.startsWith('node:');

const packageOf = (specifier: string): string =>
  specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');

it('imports of optional packages are marked for every bundler, all others are of packages that are always there', () => {
  const files = readdirSync(dist, { recursive: true })
    .map(String)
    .filter((name) => name.endsWith('.js'));
  const imports = files.flatMap(importsOf);
  const optional = imports.filter(({ specifier }) => packageOf(specifier) in optionalDependencies);
  expect([...new Set(optional.map(({ specifier }) => packageOf(specifier)))].sort()).toEqual(
    Object.keys(optionalDependencies).sort(),
  );
  for (const { file, specifier, comments, tried } of optional) {
    const what = `${specifier} in ${file}`;
    expect(comments, what).not.toBeNull();
    for (const comment of COMMENTS) expect(comments, what).toContain(comment);
    expect(tried, what).toBe(true);
  }
  const others = imports.filter(({ specifier }) => !(packageOf(specifier) in optionalDependencies));
  for (const { file, specifier } of others)
    expect(dependencies, `${specifier} in ${file}`).toHaveProperty([packageOf(specifier)]);
});

it('a require that is made in place is asked for packages that are always there, by their names', () => {
  // webpack warns of anything else, and Turbopack does not build it. A function that is given the require hides it.
  const asked = /createRequire\(import\.meta\.url\)(?:\.resolve)?\(([^)]*)\)/g;
  for (const file of readdirSync(dist, { recursive: true }).map(String)) {
    if (!file.endsWith('.js')) continue;
    for (const [, name] of readFileSync(join(dist, file), 'utf8').matchAll(asked)) {
      const literal = /^'([^']+)'$/.exec(name!)?.[1];
      expect(literal === undefined ? name : packageOf(literal), file).toSatisfy(
        (found: string) => found in dependencies,
      );
    }
  }
});
