import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { raisedCodes } from './error-codes.js';

const page = readFileSync(new URL('../../docs/errors.md', import.meta.url), 'utf8');
const rows = [...page.matchAll(/^\| `([a-z0-9-]+)` +\| (.+?) +\| (.+?) +\|$/gm)];

describe('docs/errors.md', () => {
  it('lists every code that the sources raise, each once, and no other', () => {
    const listed = rows.map(([, code]) => code!);
    expect([...listed].sort()).toEqual([...raisedCodes().keys()].sort());
  });

  it('says of each what happened and what to do', () => {
    for (const [, code, what, fix] of rows) {
      expect(what, code).toMatch(/^.{10,}[.]$/);
      expect(fix, code).toMatch(/\S.*[.`)]$/);
    }
  });
});
