/** docs/models.md says which models are not run: each of them is refused by its name, and the text models that it names are there. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../../src/models/families.js';

const page = readFileSync(new URL('../../docs/models.md', import.meta.url), 'utf8');
const section = page.split('## Asked for, and not run yet')[1]!.split('\n## ')[0]!;
const rows = section
  .split('\n')
  .filter((line) => line.startsWith('| ') && !/^\| (?:Models|-)/.test(line))
  .map((line) => line.split('|').map((cell) => cell.trim()));
const named = (cell: string): string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name!);
const configOf = (name: string): Record<string, unknown> =>
  /^[A-Z]/.test(name) ? { architectures: [name] } : { model_type: name };

describe('models that are asked for and not run', () => {
  it.each(
    rows.map(([, models, names, text, lack]) => [models!, named(names!), named(text!), lack!] as const),
  )('%s', (_, names, texts, lack) => {
    expect(names.length).toBeGreaterThan(0);
    expect(lack).not.toBe('');
    for (const name of names)
      expect(() => parseModelConfig(configOf(name))).toThrow(
        expect.objectContaining({ code: 'model-architecture-unknown' }),
      );
    for (const text of texts) expect(page).toMatch(new RegExp(`^\\| \`${text}\` +\\|`, 'm'));
  });

  it('are fourteen rows', () => {
    expect(rows.length).toBe(14);
  });
});
