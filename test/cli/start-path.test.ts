/** What a command loads before it has anything to do. The schema library takes as long as all the rest together. */
import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

/** Packages that a module needs in order to run its first line: its static imports, and those of its own, and so on. */
function packagesOf(entry: string): Set<string> {
  const packages = new Set<string>();
  const seen = new Set<string>();
  const visit = (path: string): void => {
    if (seen.has(path)) return;
    seen.add(path);
    const source = readFileSync(path, 'utf8');
    for (const [, clause, from] of source.matchAll(/^(?:import|export)\s+([^;]*?)\s*from\s*'([^']+)';/gm)) {
      if (clause!.startsWith('type ')) continue;
      if (from!.startsWith('.')) visit(resolve(dirname(path), from!.replace(/\.js$/, '.ts')));
      else packages.add(from!);
    }
  };
  visit(entry);
  return packages;
}

describe('the way to the first line of a command', () => {
  it.each([
    'cli/main',
    'cli/program',
    'cli/serve-command',
    'cli/generate-command',
    'cli/load',
    'cli/log',
    'engine/engine',
    'engine/worker',
  ])('loads neither zod nor pino: %s', (entry) => {
    const packages = [...packagesOf(`src/${entry}.ts`)];
    expect(packages).not.toContain('zod');
    expect(packages).not.toContain('pino');
  });

  it('finds what is loaded', () => {
    expect([...packagesOf('src/server/openai/schemas.ts')]).toContain('zod');
    expect([...packagesOf('src/server/index.ts')]).toContain('hono');
  });
});
