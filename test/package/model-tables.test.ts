/** The tables of families in docs/models.md and of formats in docs/tool-calls.md name what there is, and all of it. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { knownArchitectures } from '../../src/models/families.js';
import { TOOL_FORMATS } from '../../src/text/formats/formats.js';

const page = (name: string): string => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8');
const models = page('models.md');

/** The rows of the first table behind a heading, cells apart. */
function rowsOf(text: string, heading: string): string[][] {
  const section = text.split(`\n## ${heading}\n`)[1]!.split('\n## ')[0]!;
  const lines = section.split('\n').map((line) => line.trim());
  const first = lines.findIndex((line) => line.startsWith('|'));
  const table = lines.slice(first, lines.indexOf('', first));
  return table.slice(2).map((line) =>
    line
      .split(/(?<!\\)\|/)
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

const named = (cell: string): string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name!);

/** Architectures, apart from fields that stand beside them. */
const architecturesIn = (cell: string): string[] => named(cell).filter((name) => /^[A-Z]/.test(name));

describe('the tables of families', () => {
  const families = rowsOf(models, 'Families');
  const wrappers = rowsOf(models, 'Wrappers');
  const encoders = rowsOf(models, 'Encoders');
  const listed = [...families, ...encoders].flatMap(([, architectures]) => architecturesIn(architectures!));
  const wrapped = wrappers.flatMap(([architecture]) => architecturesIn(architecture!));

  it('have every architecture that can be loaded, and no other', () => {
    const known = new Set(knownArchitectures().map((name) => name.toLowerCase()));
    const told = [...listed, ...wrapped].map((name) => name.toLowerCase());
    expect([...known].filter((name) => !told.includes(name))).toEqual([]);
    expect(told.filter((name) => !known.has(name))).toEqual([]);
  });

  it('have text models of wrappers that are families', () => {
    const names = new Set(families.map(([name]) => named(name!)[0]!));
    const told = wrappers.flatMap(([, texts]) => named(texts!));
    expect(told.length).toBeGreaterThan(20);
    // Text models of wrappers alone.
    const own = ['glm4v_text', 'glm_ocr_text'];
    expect(told.filter((name) => !names.has(name) && !own.includes(name))).toEqual([]);
  });
});

it('the table of formats has every format of tool calls, and no other', () => {
  const rows = rowsOf(page('tool-calls.md'), 'How models write calls');
  expect(rows.flatMap(([names]) => named(names!)).sort()).toEqual(
    TOOL_FORMATS.map(({ name }) => name).sort(),
  );
  expect(readFileSync(new URL('../../README.md', import.meta.url), 'utf8')).toContain(
    `of ${TOOL_FORMATS.length} formats`,
  );
});
