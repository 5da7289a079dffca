/** Recorded JSON is stored without indentation, which made a third of it: every clone carries it. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';

it.each(['test/fixtures', 'bench/results'])('%s: no JSON is indented', async (folder) => {
  const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.json'));
  expect(names.length).toBeGreaterThan(5);
  const indented: string[] = [];
  for (const name of names)
    if (/\n[ \t]/.test(await readFile(join(folder, name), 'utf8'))) indented.push(name);
  expect(indented).toEqual([]);
});
