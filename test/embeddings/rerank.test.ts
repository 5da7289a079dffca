/** Encoders that rank, beside transformers' classifiers: pairs of texts, their logits, and what is refused (scripts/fixtures/embeddings.py). */

import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/types.js';
import { devices } from '../devices/devices.js';
import { refusal } from '../engine/engine-harness.js';
import { readPacked } from '../fixtures/read-packed.js';
import type { Json, Shapes } from '../parity/generated.js';
import { embeddingFixture, writeEmbedder } from './fixtures.js';

/** Of the size of logits, which is 1 or so. */
const REFERENCE = 2e-5;
const FOLDER = fileURLToPath(new URL('../fixtures/rerankers/', import.meta.url));

interface RankingFixture {
  readonly files: Readonly<Record<string, Json>>;
  readonly query: string;
  readonly texts: readonly string[];
  readonly ids: readonly (readonly number[])[];
  readonly variants: readonly {
    readonly config: Json;
    readonly weights: Readonly<Record<string, Shapes>>;
    readonly logits: readonly number[];
  }[];
}

const fixtures = readdirSync(FOLDER).flatMap((file) => {
  const fixture = readPacked(join(FOLDER, file)) as RankingFixture;
  return fixture.variants.map((variant, i) => ({ name: `${file.split('.')[0]} ${i}`, fixture, variant }));
});
const logit = (score: number): number => Math.log(score / (1 - score));

function write({ fixture, variant }: (typeof fixtures)[number], changes: object = {}): string {
  const { files, query: _, ...rest } = fixture;
  const config = { ...(variant.config as object), ...changes } as Json;
  return writeEmbedder({
    ...rest,
    files: { ...files, 'config.json': config },
    weights: variant.weights,
    expected: {},
  });
}

describe.each(fixtures)('$name', (one) => {
  const { query, texts, ids } = one.fixture;
  const { logits } = one.variant;
  let folder: string;
  beforeAll(() => {
    folder = write(one);
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it.each(devices.filter(({ precision }) => precision === 'reference'))(
    'ranks as it, on $name',
    async (spec) => {
      await using engine = await Engine.load(
        folder,
        { maxRows: 4, maxBatchTokens: 128, worker: false },
        { makeDevice: async () => ({ device: await spec.create(), reason: 'a test' }) },
      );
      const { scores, usage } = await engine.rerank(query, texts);
      scores.forEach((score, i) => {
        expect(Math.abs(logit(score) - logits[i]!)).toBeLessThan(REFERENCE);
      });
      // Of other pairs they are others.
      const others = logits.map((value, i) => Math.abs(value - logits[(i + 1) % logits.length]!));
      expect(Math.max(...others)).toBeGreaterThan(100 * REFERENCE);
      expect(usage.promptTokens).toBe(ids.reduce((sum, { length }) => sum + length, 0));
    },
  );

  it('scores a pair the same alone and in company', async () => {
    const load = (options: EngineOptions): Promise<Engine> =>
      Engine.load(folder, { device: 'cpu', worker: false, ...options });
    await using engine = await load({ maxRows: 8 });
    const together = (await engine.rerank(query, texts)).scores;
    expect(together.map(logit).map((value, i) => Math.abs(value - logits[i]!) < 0.05)).toEqual(
      texts.map(() => true),
    );
    await using other = await load({ maxRows: 1 });
    for (const [i, text] of texts.entries())
      expect((await other.rerank(query, [text])).scores).toEqual([together[i]]);
  });
});

describe('what is asked of one', () => {
  const [one] = fixtures as [(typeof fixtures)[number]];
  const { query, texts, ids } = one.fixture;
  const load = (folder: string, options: EngineOptions = {}): Promise<Engine> =>
    Engine.load(folder, { device: 'cpu', worker: false, ...options });

  it('cuts documents where it is told to, and the query never', async () => {
    const folder = write(one);
    const longest = ids.findIndex(({ length }) => length === Math.max(...ids.map((own) => own.length)));
    const maxContext = ids[longest]!.length - 7;
    await using engine = await load(folder, { maxContext });
    const long = texts[longest]!;
    expect(await refusal(engine.rerank(query, [texts[0]!, long]))).toMatchObject({
      code: 'input-too-long',
      status: 400,
    });
    const { scores, usage } = await engine.rerank(query, [long], { truncate: true });
    expect(usage.promptTokens).toBe(maxContext);
    expect(scores[0]).toBeGreaterThan(0);
    const queries = await refusal(engine.rerank(long.repeat(2), ['x'], { truncate: true }));
    expect(queries.code).toBe('input-too-long');
    rmSync(folder, { recursive: true });
  });

  it('refuses what is for models that judge in words, and classes', async () => {
    const folder = write(one);
    await using engine = await load(folder);
    for (const options of [
      { instruction: 'x' },
      { method: 'yes-no' },
      { words: ['a', 'b'] },
      { truncate: 1 },
    ])
      expect((await refusal(engine.rerank(query, texts, options as object))).code).toBe('invalid-parameter');
    expect((await refusal(engine.rerank(query, 'x' as unknown as string[]))).where).toBe('documents');
    expect((await refusal(engine.generate({ prompt: 'a' }).result)).code).toBe('model-embeds-only');
    // Hidden states it has, and does not say how they become one.
    expect(engine.info.embedding?.pooling).toBeNull();
    rmSync(folder, { recursive: true });
    for (const id2label of [
      { 0: 'a', 1: 'b' },
      { 0: 'a', 1: 'b', 2: 'c' },
    ]) {
      const classes = write(one, { id2label });
      await expect(load(classes)).rejects.toMatchObject({ code: 'rerank-unsupported' });
      rmSync(classes, { recursive: true });
    }
    const plain = writeEmbedder(embeddingFixture('bert'));
    await using embedder = await load(plain);
    expect((await refusal(embedder.rerank('q', ['d']))).code).toBe('rerank-unsupported');
    rmSync(plain, { recursive: true });
  });
});
