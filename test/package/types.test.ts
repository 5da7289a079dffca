/**
 * The package's types, as an application sees them: every type that is named in what `kvant` and `kvant/server` export can be
 * imported from there, and nothing is named that an application does not have.
 */
import { readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { beforeAll, describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const dist = join(root, 'dist');
const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  dependencies: Record<string, string>;
};

/** Declarations as `npm run build` writes them: by the path of one in `dist`, its text; undefined if there is none such. */
function declarations(): (path: string) => string | undefined {
  const path = join(root, 'tsconfig.build.json');
  const { config } = ts.readConfigFile(path, ts.sys.readFile);
  const files = ['src/index.ts', 'src/server/index.ts'];
  const { options } = ts.parseJsonConfigFileContent({ ...config, files, include: [] }, ts.sys, root);
  const program = ts.createProgram(
    files.map((name) => join(root, name)),
    { ...options, emitDeclarationOnly: true, noCheck: true },
  );
  return (path) => {
    if (!path.startsWith(`${dist}/`) || !path.endsWith('.d.ts')) return undefined;
    const source = program.getSourceFile(join(root, 'src', relative(dist, path).replace(/\.d\.ts$/, '.ts')));
    let text: string | undefined;
    if (source !== undefined)
      program.emit(source, (_, written) => {
        text = written;
      });
    return text;
  };
}

const ENTRIES = ['index.d.ts', 'server/index.d.ts'] as const;

/** A program of these declarations. Nothing is read of what lies in `dist`, which may be old. */
function read(
  declared: (path: string) => string | undefined,
  names: readonly string[] = ENTRIES,
  more: ts.CompilerOptions = {},
): ts.Program {
  const options: ts.CompilerOptions = {
    target: ts.ScriptTarget.ES2023,
    lib: ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts'],
    module: ts.ModuleKind.NodeNext,
    types: ['node'],
    strict: true,
    noEmit: true,
    ...more,
  };
  const texts = new Map<string, string | undefined>();
  const text = (path: string): string | undefined => {
    if (!texts.has(path)) texts.set(path, declared(path));
    return texts.get(path);
  };
  const host = ts.createCompilerHost(options, true);
  const { fileExists, readFile, getSourceFile } = host;
  const ours = (path: string): boolean => path.startsWith(`${dist}/`);
  host.fileExists = (path) => (ours(path) ? text(path) !== undefined : fileExists(path));
  host.readFile = (path) => (ours(path) ? text(path) : readFile(path));
  host.getSourceFile = (path, language, ...rest) =>
    ours(path)
      ? ts.createSourceFile(path, text(path) ?? '', language, true)
      : getSourceFile(path, language, ...rest);
  return ts.createProgram(
    names.map((name) => join(dist, name)),
    options,
    host,
  );
}

/** What an application gives, whose values may be undefined: that is the same as leaving a field out. */
const CONSUMER = `
import type * as kvant from './index.js';
import type * as server from './server/index.js';
type Undefined<T> = { [K in keyof T]: {} extends Pick<T, K> ? T[K] | undefined : T[K] };
declare function takes<T>(value: T): void;
${[
  'kvant.EngineOptions',
  'kvant.HubAccess',
  'kvant.ChatRequest',
  'kvant.GenerateRequest',
  'kvant.SamplingOptions',
  'kvant.KvOptions',
  'kvant.CloseOptions',
  'kvant.EmbedOptions',
  'kvant.RerankOptions',
  'kvant.ToolRunRequest',
  'kvant.RunnableTool',
  'server.AppOptions',
  'server.ListenOptions',
  'server.ApiKey',
]
  .map(
    (type) =>
      `declare const _${type.replace('.', '_')}: Undefined<${type}>; takes<${type}>(_${type.replace('.', '_')});`,
  )
  .join('\n')}
declare const engine: kvant.Engine;
const answer = engine.chat({ messages: [] });
for await (const { text, tokenIds } of answer) {
  const first: number | undefined = tokenIds[0];
  takes<[string, number | undefined]>([text, first]);
}
// The flag is on: what is not there is not taken for granted.
// @ts-expect-error
const id: number = (await answer.result).tokenIds[0];
export {};
`;

interface Walk {
  /** What is named and cannot be imported: `name (file) in name`. */
  readonly missing: string[];
  readonly foreign: Set<string>;
}

function walk(program: ts.Program, entry: string): Walk {
  const checker = program.getTypeChecker();
  const resolved = (symbol: ts.Symbol): ts.Symbol =>
    symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  const module = checker.getSymbolAtLocation(program.getSourceFile(join(dist, entry))!)!;
  const exported = new Set(checker.getExportsOfModule(module).map(resolved));
  const missing: string[] = [];
  const foreign = new Set<string>();
  const done = new Set<ts.Symbol>();
  const visitNames = (node: ts.Node, inside: string): void => {
    if (ts.canHaveModifiers(node)) {
      const hidden = ts.getModifiers(node)?.some(({ kind }) => kind === ts.SyntaxKind.PrivateKeyword);
      if (hidden) return;
    }
    const name = ts.isTypeReferenceNode(node)
      ? node.typeName
      : ts.isExpressionWithTypeArguments(node)
        ? node.expression
        : ts.isTypeQueryNode(node)
          ? node.exprName
          : ts.isImportTypeNode(node)
            ? (node.qualifier ?? node.argument)
            : undefined;
    const symbol = name === undefined ? undefined : checker.getSymbolAtLocation(name);
    if (symbol !== undefined) named(resolved(symbol), inside);
    ts.forEachChild(node, (child) => visitNames(child, inside));
  };
  const named = (symbol: ts.Symbol, inside: string): void => {
    if (symbol.flags & ts.SymbolFlags.TypeParameter) return;
    const file = symbol.declarations?.[0]?.getSourceFile().fileName ?? '';
    if (!file.startsWith(`${dist}/`)) {
      foreign.add(file);
      return;
    }
    if (!exported.has(symbol)) missing.push(`${symbol.name} (${relative(dist, file)}) in ${inside}`);
    visit(symbol);
  };
  const visit = (symbol: ts.Symbol): void => {
    if (done.has(symbol)) return;
    done.add(symbol);
    for (const declaration of symbol.declarations ?? []) visitNames(declaration, symbol.name);
  };
  for (const symbol of exported) visit(symbol);
  return { missing: [...new Set(missing)].sort(), foreign };
}

describe('the types of the package', () => {
  let declared: (path: string) => string | undefined;
  let walks: Map<string, Walk>;
  beforeAll(() => {
    declared = declarations();
    const program = read(declared);
    walks = new Map(ENTRIES.map((entry) => [entry, walk(program, entry)]));
  }, 180_000);

  it.each(ENTRIES)('everything that %s names is exported there', (entry) => {
    expect(walks.get(entry)!.missing).toEqual([]);
  });

  it.each([
    ['node16', ts.ModuleKind.Node16, ts.ModuleResolutionKind.Node16],
    ['nodenext', ts.ModuleKind.NodeNext, ts.ModuleResolutionKind.NodeNext],
    ['bundler', ts.ModuleKind.ESNext, ts.ModuleResolutionKind.Bundler],
  ])(
    'fit the strictest application, with moduleResolution %s',
    (_, module, moduleResolution) => {
      const consumer = (path: string): string | undefined =>
        path === join(dist, 'consumer.ts') ? CONSUMER : declared(path);
      const program = read(consumer, ['consumer.ts'], {
        module,
        moduleResolution,
        exactOptionalPropertyTypes: true,
        noUncheckedIndexedAccess: true,
        noPropertyAccessFromIndexSignature: true,
        verbatimModuleSyntax: true,
        skipLibCheck: false,
      });
      const found = ts.getPreEmitDiagnostics(program).map(({ messageText, file, start }) => {
        const line = file?.text.slice(start).split('\n')[0];
        return `${ts.flattenDiagnosticMessageText(messageText, '\n')}: ${line}`;
      });
      expect(found).toEqual([]);
    },
    120_000,
  );

  it('hooks for tests are no part of them', () => {
    const text = declared(join(dist, 'engine/engine.d.ts'));
    expect(text).toMatch(/static load\(model: string/);
    expect(text).not.toMatch(/internals/i);
  });

  it.each(ENTRIES)(
    'what %s names of others comes with the language, with Node, or with a dependency',
    (entry) => {
      const packages = [...walks.get(entry)!.foreign].map((file) => {
        const [, name] = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file) ?? [];
        return name ?? relative(dirname(root), file);
      });
      const allowed = ['typescript', '@types/node', 'undici-types', ...Object.keys(dependencies)];
      expect([...new Set(packages)].filter((name) => !allowed.includes(name))).toEqual([]);
    },
  );
});
