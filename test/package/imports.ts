/** Which source files import which, types too, and what is wrong with it: arrows that point up, and circles. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const src = fileURLToPath(new URL('../../src', import.meta.url));

/** By file, the files that it imports: paths from `src`, with `/`. */
export type Imports = ReadonlyMap<string, readonly string[]>;

/**
 * The folders of `src`, each above those behind it. Folders of one floor know nothing of one another. Files of `src` itself are
 * small helpers at the bottom, but for the package's entry.
 */
export const FLOORS: readonly (readonly string[])[] = [
  ['cli'],
  ['server'],
  ['index.ts'],
  ['engine'],
  ['models'],
  ['kv', 'sampling', 'media', 'text', 'weights'],
  ['grammar'],
  ['device'],
  ['helpers'],
];

/** Imports of types alone count: they too say what a file has to know. */
export function sourceImports(): Imports {
  const names = readdirSync(src, { recursive: true })
    .map((name) => String(name).replaceAll('\\', '/'))
    .filter((name) => /(?<!\.test|\.d)\.ts$/.test(name));
  const known = new Set(names);
  return new Map(names.map((name) => [name, importsOf(name, known)]));
}

function importsOf(name: string, known: ReadonlySet<string>): string[] {
  const { importedFiles } = ts.preProcessFile(readFileSync(join(src, name), 'utf8'), true, true);
  const paths = importedFiles
    .filter(({ fileName }) => fileName.startsWith('.'))
    // AssemblyScript leaves the ending out.
    .map(({ fileName }) => posix.join(dirname(name), fileName).replace(/(?:\.js)?$/, '.ts'));
  return [...new Set(paths)].filter((path) => known.has(path));
}

function placeOf(name: string): string {
  const [folder, ...rest] = name.split('/');
  return rest.length > 0 || name === 'index.ts' ? folder! : 'helpers';
}

/** Imports of a floor above, or of a neighbour on the same one, as `a.ts -> b.ts`. Throws for a folder that has no floor. */
export function upwardImports(imports: Imports): string[] {
  const floorOf = (name: string): number => {
    const floor = FLOORS.findIndex((places) => places.includes(placeOf(name)));
    if (floor < 0) throw new Error(`${name}: its folder has no floor; give it one in FLOORS.`);
    return floor;
  };
  return [...imports].flatMap(([from, targets]) =>
    targets
      .filter((to) => placeOf(to) !== placeOf(from) && floorOf(to) <= floorOf(from))
      .map((to) => `${from} -> ${to}`),
  );
}

/** Groups of files each of which reaches all others of its group (Tarjan 1972: strongly connected components), sorted. */
export function circles(imports: Imports): string[][] {
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const stack: string[] = [];
  const found: string[][] = [];
  const visit = (name: string): void => {
    order.set(name, order.size);
    lowest.set(name, order.get(name)!);
    stack.push(name);
    const lower = (to: number): unknown => lowest.set(name, Math.min(lowest.get(name)!, to));
    const targets = imports.get(name) ?? [];
    for (const target of targets) {
      if (!order.has(target)) {
        visit(target);
        lower(lowest.get(target)!);
      } else if (stack.includes(target)) lower(order.get(target)!);
    }
    if (lowest.get(name) !== order.get(name)) return;
    const group = stack.splice(stack.indexOf(name));
    if (group.length > 1 || targets.includes(name)) found.push(group.sort());
  };
  for (const name of imports.keys()) if (!order.has(name)) visit(name);
  return found.sort((a, b) => (a[0]! < b[0]! ? -1 : 1));
}
