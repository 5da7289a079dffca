import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { readPackedText } from '../../../test/fixtures/read-packed.js';
import { parseLossless } from '../lossless-json.js';
import { PythonTemplate, TemplateRaised } from './python-template.js';

/** See scripts/fixtures/jinja.py. */
interface Fixture {
  readonly variables: Readonly<Record<string, unknown>>;
  /** Year, month, day, hour, minute, second. */
  readonly moment: readonly [number, number, number, number, number, number];
  readonly tables: readonly {
    readonly name: string;
    readonly pattern: string;
    readonly rows: readonly string[];
    readonly columns: readonly string[];
    /** One for a row. */
    readonly letters: string;
    readonly digest: string;
  }[];
  readonly cases: readonly (readonly [template: string, outcome: string])[];
}

const text = readPackedText('test/fixtures/text/jinja.json.br');
const fixture = parseLossless(text, { constants: true }) as Fixture;
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const [year, month, ...rest] = fixture.moment;
const now = new Date(year, month - 1, ...rest);

/** The rendered text, or how the template fails. */
function outcome(source: string): string {
  let template: PythonTemplate;
  try {
    template = new PythonTemplate(source);
  } catch {
    return '!syntax';
  }
  try {
    return template.render(fixture.variables, now).replace(/<[^<>]* at 0x[0-9a-f]+>/g, '<object>');
  } catch (error) {
    return error instanceof TemplateRaised ? `!raised ${error.message}` : '!error';
  }
}

const sha256 = (line: string): Buffer => createHash('sha256').update(line).digest();

describe('templates come out as in transformers', () => {
  it.each(fixture.tables)('$name', ({ pattern, rows, columns, letters, digest }) => {
    const cells = rows.map((row) =>
      columns.map((column) => outcome(pattern.replaceAll('COL', () => column).replaceAll('ROW', () => row))),
    );
    const lines = cells.map((line) => JSON.stringify(line));
    // Rows whose letter is another; a letter misses one in 64, the digest none.
    const different = rows.filter((_row, i) => LETTERS[sha256(lines[i]!)[0]! % 64] !== letters[i]);
    expect(
      different.map((row) => [
        row,
        Object.fromEntries(columns.map((column, i) => [column, cells[rows.indexOf(row)]![i]])),
      ]),
    ).toEqual([]);
    expect(sha256(lines.join('\n')).toString('hex')).toBe(digest);
  });

  it.each(fixture.cases)('%j', (source, expected) => {
    expect(outcome(source)).toBe(expected);
  });
});
