/** Tiny models that make embeddings, with what sentence-transformers makes of texts by them (scripts/fixtures/embeddings.py). */

import { mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readPacked } from '../fixtures/read-packed.js';
import { generatedWeights, type Json, type Shapes } from '../parity/generated.js';

const FOLDER = fileURLToPath(new URL('../fixtures/embeddings/', import.meta.url));
const FIXTURE = '.json.gz';

export interface EmbeddingFixture {
  readonly files: Readonly<Record<string, Json>>;
  readonly weights: Readonly<Record<string, Shapes>>;
  readonly texts: readonly string[];
  readonly ids: readonly (readonly number[])[];
  /** By the name of a prompt, `''` for none: `[texts][size]`. */
  readonly expected: Readonly<Record<string, readonly (readonly number[])[]>>;
}

export const embeddingFixtures: readonly string[] = readdirSync(FOLDER)
  .filter((name) => name.endsWith(FIXTURE))
  .map((name) => name.slice(0, -FIXTURE.length));

export function embeddingFixture(name: string): EmbeddingFixture {
  return readPacked(join(FOLDER, name + FIXTURE)) as EmbeddingFixture;
}

/** Writes a fixture as the folder of a model, with some of its files changed or left out, and answers where. */
export function writeEmbedder(
  { files, weights }: EmbeddingFixture,
  changes: Readonly<Record<string, unknown>> = {},
): string {
  const folder = mkdtempSync(join(tmpdir(), 'kvant-embedder-'));
  const write = (name: string, content: string | Buffer): void => {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), content);
  };
  for (const [name, json] of Object.entries({ ...files, ...changes }))
    if (json !== null) write(name, typeof json === 'string' ? json : JSON.stringify(json));
  for (const [name, shapes] of Object.entries(weights)) write(name, generatedWeights(shapes, 0));
  return folder;
}
