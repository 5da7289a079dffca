/** Kinds of KV formats are asked for their codecs, and by nobody what they are: else a new kind is taken for an old one. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { KV_FORMATS } from '../../src/device/kv-formats/list.js';

const SOURCES = fileURLToPath(new URL('../../src', import.meta.url));

/** Weights have kinds of these names too. */
const OF_WEIGHTS = new Set(['affine', 'float']);

/** A comparison of a kind, or a case of a switch over kinds. */
const asks = (kind: string): RegExp => new RegExp(`(?:[=!]==\\s*|case\\s+)'${kind}'|'${kind}'\\s*[=!]==`);
/** The same of kinds that share a name with those of weights, by what K and V are called. */
const asksOfKv =
  /\b(?:key|value|keys|values|floatStart|kvFormat)(?:\??\.format)?\??\.kind\s*[=!]==\s*'(?:float|affine)'/;

async function lines(): Promise<{ where: string; text: string }[]> {
  const names = (await readdir(SOURCES, { recursive: true })).filter((name) =>
    /(?<!\.test|\.d)\.ts$/.test(name),
  );
  const files = await Promise.all(
    names.map(async (name) => {
      const text = await readFile(join(SOURCES, name), 'utf8');
      return text.split('\n').map((line) => ({ where: name, text: line.trim() }));
    }),
  );
  return files.flat();
}

describe('kinds of KV formats', () => {
  it('are compared with none by name', async () => {
    const own = KV_FORMATS.map(({ kind }) => kind).filter((kind) => !OF_WEIGHTS.has(kind));
    expect(own).toContain('turboquant');
    const all = await lines();
    expect(all.length).toBeGreaterThan(10_000);
    const found = all.filter(({ text }) => own.some((kind) => asks(kind).test(text)) || asksOfKv.test(text));
    expect(found).toEqual([]);
  });

  it('are found where they are compared', () => {
    for (const text of ["x.kind === 'turboquant'", "f.kind !== 'turboquant'", "case 'turboquant':"])
      expect(asks('turboquant').test(text), text).toBe(true);
    expect(asks('turboquant').test("readonly kind: 'turboquant';")).toBe(false);
    for (const text of [
      "shape.key.kind === 'affine'",
      "keys.format.kind !== 'float'",
      "value?.kind === 'float'",
    ])
      expect(asksOfKv.test(text), text).toBe(true);
  });
});
