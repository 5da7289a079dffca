/** Embeddings beside those of sentence-transformers, over the folders that it writes: both devices, in reference precision. */

import { rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { devices } from '../devices/devices.js';
import { type EmbeddingFixture, embeddingFixture, embeddingFixtures, writeEmbedder } from './fixtures.js';

/** Of the largest number of an embedding. */
const REFERENCE = 2e-4;

function worst(got: readonly Float32Array[], wanted: readonly (readonly number[])[]): number {
  let most = 0;
  wanted.forEach((row, i) => {
    const largest = Math.max(...row.map(Math.abs));
    row.forEach((value, col) => {
      most = Math.max(most, Math.abs(got[i]![col]! - value) / largest);
    });
  });
  return most;
}

describe.each(embeddingFixtures)('%s', (name) => {
  let fixture: EmbeddingFixture;
  let folder: string;
  beforeAll(() => {
    fixture = embeddingFixture(name);
    folder = writeEmbedder(fixture);
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it.each(devices.filter(({ precision }) => precision === 'reference'))(
    'is what the reference makes of texts, on $name',
    async (spec) => {
      await using engine = await Engine.load(
        folder,
        { maxRows: 4, maxBatchTokens: 128, worker: false },
        { makeDevice: async () => ({ device: await spec.create(), reason: 'a test' }) },
      );
      const { texts, ids, expected } = fixture;
      expect(texts.map((text) => engine.tokenize(text))).toEqual(ids);
      for (const [task, wanted] of Object.entries(expected)) {
        // The reference cuts what is longer than its model.
        const options = task === '' ? { truncate: true } : { truncate: true, task };
        const { embeddings, usage } = await engine.embed(texts, options);
        expect(embeddings.map((row) => row.length)).toEqual(wanted.map((row) => row.length));
        expect(worst(embeddings, wanted)).toBeLessThan(REFERENCE);
        const most = engine.info.embedding!.maxTokens;
        if (task === '')
          expect(usage.promptTokens).toBe(ids.reduce((sum, own) => sum + Math.min(own.length, most), 0));
      }
      // The figures are of these texts in this order: another order is another result.
      expect(
        worst((await engine.embed([...texts].reverse(), { truncate: true })).embeddings, expected['']!),
      ).toBeGreaterThan(100 * REFERENCE);
    },
  );

  it('rounds little in default precision', async () => {
    await using engine = await Engine.load(folder, { device: 'cpu', worker: false, maxBatchTokens: 128 });
    const { embeddings } = await engine.embed(fixture.texts, { truncate: true });
    const wanted = fixture.expected['']!;
    let squares = 0;
    let off = 0;
    wanted.flat().forEach((value, i) => {
      const row = embeddings[Math.floor(i / wanted[0]!.length)]!;
      squares += value ** 2;
      off += (row[i % wanted[0]!.length]! - value) ** 2;
    });
    expect(off / squares).toBeLessThan(1e-3);
  });

  it('is the same to the last bit alone and in company, whatever the steps hold', async () => {
    const load = (options: object): Promise<Engine> =>
      Engine.load(folder, { device: 'cpu', worker: false, maxBatchTokens: 128, ...options });
    await using engine = await load({ maxRows: 8 });
    const many = [
      ...fixture.texts,
      ...fixture.texts.map((text) => `${text.slice(0, 40)}, ${text.slice(0, 50)}`),
      'another',
    ];
    const together = (await engine.embed(many, { truncate: true })).embeddings;
    await using other = await load({ maxRows: 1, prefixCache: false });
    for (const [i, text] of many.entries())
      expect((await other.embed(text, { truncate: true })).embeddings[0]).toEqual(together[i]);
    // Again: of a decoder the prefix cache has most of it now.
    expect((await engine.embed(many, { truncate: true })).embeddings).toEqual(together);
  });
});
