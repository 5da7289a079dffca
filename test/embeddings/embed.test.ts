/** The library's embeddings: what requests may say, what is refused, and steps that decoding rows and embeddings share. */

import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rerankPrompt } from '../../src/engine/embedding/reranker.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/types.js';
import { refusal } from '../engine/engine-harness.js';
import { embeddingFixture, writeEmbedder } from './fixtures.js';

const DEMO = new URL('../../models/demo-text', import.meta.url).pathname;
const load = (model: string, options: EngineOptions = {}): Promise<Engine> =>
  Engine.load(model, { device: 'cpu', worker: false, maxContext: 256, ...options });
const length = (row: Float32Array): number => Math.hypot(...row);
const code = async (promise: Promise<unknown>): Promise<string> => (await refusal(promise)).code;

describe('a model made for embeddings', () => {
  const fixture = embeddingFixture('qwen3');
  let folder: string;
  let engine: Engine;
  beforeAll(async () => {
    folder = writeEmbedder(fixture);
    engine = await load(folder, { maxContext: 64 });
  });
  afterAll(async () => {
    await engine.close();
    rmSync(folder, { recursive: true });
  });

  it('says what it is, and writes nothing', async () => {
    expect(engine.info.model.writes).toBe(false);
    expect(engine.info.embedding).toEqual({
      size: 32,
      pooling: 'last',
      poolings: ['last'],
      maxTokens: 64,
      tasks: expect.arrayContaining(['query', 'document']),
      dimensions: null,
    });
    expect(await code(engine.generate({ prompt: 'a' }).result)).toBe('model-embeds-only');
  });

  it('needs no head where it is saved without, and says no more than its tensors', async () => {
    const bare = writeEmbedder(fixture);
    try {
      const path = join(bare, 'config.json');
      const config = JSON.parse(readFileSync(path, 'utf8')) as object;
      const stated = { architectures: ['Qwen3Model'], tie_word_embeddings: false };
      writeFileSync(path, JSON.stringify({ ...config, ...stated }));
      rmSync(join(bare, 'modules.json'));
      expect(await code(load(bare))).toBe('weights-tensor-missing');
      await using other = await load(bare, { maxContext: 64, pooling: 'last' });
      expect(other.info.model.writes).toBe(false);
      const { embeddings } = await engine.embed('a fjord', { prompt: '' });
      expect((await other.embed('a fjord')).embeddings).toEqual(embeddings);
      expect(await code(other.generate({ prompt: 'a' }).result)).toBe('model-embeds-only');
    } finally {
      rmSync(bare, { recursive: true });
    }
  });

  it('cuts and normalises as asked', async () => {
    const whole = (await engine.embed('a fjord')).embeddings[0]!;
    expect(length(whole)).toBeCloseTo(1, 5);
    const raw = (await engine.embed('a fjord', { normalize: false })).embeddings[0]!;
    expect(length(raw)).toBeGreaterThan(1.5);
    const cut = (await engine.embed('a fjord', { dimensions: 8 })).embeddings[0]!;
    expect(cut.length).toBe(8);
    expect(length(cut)).toBeCloseTo(1, 5);
    for (let i = 0; i < 8; i++) expect(cut[i]! / cut[0]!).toBeCloseTo(raw[i]! / raw[0]!, 4);
    expect(await code(engine.embed('a', { dimensions: 33 }))).toBe('invalid-parameter');
  });

  it('puts prompts before texts', async () => {
    const asked = (await engine.embed('oslo', { task: 'query' })).embeddings;
    expect((await engine.embed('oslo', { prompt: 'query: ' })).embeddings).toEqual(asked);
    expect((await engine.embed('query: oslo')).embeddings).toEqual(asked);
    expect((await engine.embed('oslo')).embeddings).not.toEqual(asked);
    const unknown = await refusal(engine.embed('a', { task: 'poem' }));
    expect(unknown).toMatchObject({ code: 'invalid-parameter', where: 'task' });
    expect(unknown.message).toContain('query');
    expect(await code(engine.embed('a', { task: 'query', prompt: 'x' }))).toBe('invalid-parameter');
  });

  it('takes as many tokens as the model has, and says what is too long', async () => {
    const end = engine.tokenize('').at(-1)!;
    const ids = Array.from({ length: 64 }, (_, i) => 5 + i);
    expect((await engine.embed(ids)).usage.promptTokens).toBe(64);
    expect(await refusal(engine.embed([...ids, 9]))).toMatchObject({
      code: 'input-too-long',
      status: 400,
      fix: expect.stringContaining('truncate'),
    });
    const long = 'a fjord is narrow '.repeat(40);
    expect(await code(engine.embed(['fine', long]))).toBe('input-too-long');
    // What is cut keeps the tokenizer's own token at its end.
    const cut = [...engine.tokenize(long).slice(0, 63), end];
    const { embeddings, usage } = await engine.embed(long, { truncate: true });
    expect(usage.promptTokens).toBe(64);
    expect(embeddings).toEqual((await engine.embed(cut)).embeddings);
    expect(await code(engine.embed(''))).toBe('prompt-empty');
    expect(await code(engine.embed([]))).toBe('invalid-parameter');
    expect(await code(engine.embed('a', { pooling: 'mean' }))).toBe('pooling-unavailable');
  });

  it('works through more texts than the queue takes, and gives up with its caller', async () => {
    await using small = await load(folder, { maxRows: 2, maxQueue: 4 });
    const texts = Array.from({ length: 40 }, (_, i) => `text ${i}`);
    const { embeddings } = await small.embed(texts);
    expect(embeddings.length).toBe(40);
    expect(embeddings[31]).toEqual((await engine.embed('text 31')).embeddings[0]);
    const controller = new AbortController();
    const given = small.embed(texts, { signal: controller.signal });
    controller.abort(new Error('enough'));
    await expect(given).rejects.toThrow('enough');
    expect((await small.embed('after')).embeddings.length).toBe(1);
  });

  it('is refused where its modules make no sense', async () => {
    const attempt = async (changes: Record<string, unknown>): Promise<string> => {
      const changed = writeEmbedder(fixture, changes);
      try {
        return await code(load(changed).then((loaded) => loaded.close()));
      } finally {
        rmSync(changed, { recursive: true });
      }
    };
    const module = (type: string, path = ''): object => ({
      type: `sentence_transformers.models.${type}`,
      path,
    });
    const pooled = [module('Transformer'), module('Pooling', '1_Pooling')];
    expect(await attempt({ 'modules.json': [...pooled, module('LSTM', '2')] })).toBe('embedding-unsupported');
    expect(await attempt({ 'modules.json': [module('Transformer')] })).toBe('embedding-config');
    expect(await attempt({ 'modules.json': '{' })).toBe('embedding-config');
    expect(await attempt({ '1_Pooling/config.json': { pooling_mode_max_tokens: true } })).toBe(
      'embedding-unsupported',
    );
    expect(await attempt({ '1_Pooling/config.json': null })).toBe('embedding-config');
    expect(await attempt({ 'sentence_bert_config.json': { max_seq_length: 'x' } })).toBe('embedding-config');
  });
});

describe('a model that writes', () => {
  const PROMPT = 'The capital of France is';

  it('makes no embeddings unasked', async () => {
    await using engine = await load(DEMO);
    expect(engine.info.embedding).toBeNull();
    const refused = await refusal(engine.embed('a'));
    expect(refused.code).toBe('embeddings-off');
    expect(refused.fix).toContain('pooling');
  });

  it.each(['last', 'mean'] as const)(
    'shares steps between decoding rows and embeddings: %s',
    async (pooling) => {
      await using engine = await load(DEMO, { pooling, maxRows: 6, maxBatchTokens: 48 });
      const request = { prompt: PROMPT, maxTokens: 60, temperature: 0, ignoreEos: true };
      const alone = await engine.generate(request).result;
      const texts = Array.from(
        { length: 6 },
        (_, i) => `${PROMPT} ${'a small dog by the sea '.repeat(1 + 3 * i)}`,
      );
      const single: Float32Array[] = [];
      for (const text of texts) single.push((await engine.embed(text)).embeddings[0]!);
      await engine.clearPrefixCache();
      const before = (await engine.stats()).steps;
      const writing = engine.generate(request);
      const [together, answer] = await Promise.all([engine.embed(texts), writing.result]);
      expect(answer.tokenIds).toEqual(alone.tokenIds);
      expect(together.embeddings).toEqual(single);
      // 60 steps of the row, and prompts beside them: no step was for an embedding alone.
      expect((await engine.stats()).steps - before).toBeLessThan(75);
    },
  );

  it('has the mean of what its last hidden states are, and the first and the last of them', async () => {
    await using engine = await load(DEMO, { pooling: 'mean' });
    const ids = engine.tokenize(PROMPT);
    const of = async (count: number, pooling: 'last' | 'mean' | 'cls'): Promise<Float32Array> =>
      (await engine.embed(ids.slice(0, count), { pooling, normalize: false })).embeddings[0]!;
    const rows: Float32Array[] = [];
    for (let count = 1; count <= ids.length; count++) rows.push(await of(count, 'last'));
    const mean = await of(ids.length, 'mean');
    mean.forEach((value, col) => {
      const wanted = rows.reduce((sum, row) => sum + row[col]!, 0) / rows.length;
      expect(Math.abs(value - wanted)).toBeLessThan(1e-5 * (1 + Math.abs(wanted)));
    });
    expect(await of(ids.length, 'cls')).toEqual(rows[0]);
  });

  it('ranks documents by the logits of yes and no, if asked by name', async () => {
    await using engine = await load(DEMO, { maxContext: 512 });
    expect(await code(engine.rerank('q', ['d']))).toBe('rerank-unsupported');
    // It has no token for "no".
    expect(await code(engine.rerank('q', ['d'], { method: 'yes-no' }))).toBe('rerank-unsupported');
    const words = ['yes', 'the'] as const;
    const [yes, no] = words.map((word) => engine.tokenize(word, { addSpecialTokens: false })[0]!);
    const documents = ['Paris is the capital of France.', 'Bread is baked.'];
    const { scores } = await engine.rerank('What is the capital of France?', documents, {
      method: 'yes-no',
      words,
    });
    for (const [i, document] of documents.entries()) {
      const instruction = 'Given a web search query, retrieve relevant passages that answer the query';
      const prompt = rerankPrompt(instruction, 'What is the capital of France?', document);
      const logprobs: number[] = [];
      for (const id of [yes!, no!]) {
        // Its own log-probability, drawn by force.
        const { choices } = await engine.generate({
          prompt,
          addSpecialTokens: false,
          maxTokens: 1,
          temperature: 0,
          logprobs: true,
          logitBias: { [id]: 100 },
        }).result;
        expect(choices[0]!.tokenIds).toEqual([id]);
        logprobs.push(choices[0]!.logprobs![0]!.logprob);
      }
      const [p, q] = logprobs.map(Math.exp);
      expect(scores[i]).toBeCloseTo(p! / (p! + q!), 4);
    }
  });
});
