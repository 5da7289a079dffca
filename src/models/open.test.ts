import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildSpelling, type Spelling } from '../../test/parity/spelling.js';
import { resolveWeights } from './load.js';
import { type OpenModel, openModel } from './open.js';

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-open-'));
});
afterAll(() => rm(scratch, { recursive: true }));

async function open(base: string, changes: Omit<Spelling, 'base' | 'transformers'>): Promise<OpenModel> {
  const folder = await mkdtemp(join(scratch, `${base}-`));
  await buildSpelling({ base, ...changes, transformers: {} }, folder);
  return await openModel(folder);
}

const tie = (value: string) => ({ config: { set: { tie_word_embeddings: value }, remove: [] } });
const untold = { config: { set: {}, remove: ['tie_word_embeddings'] } };

describe('openModel', () => {
  it('uses a head of its own though config.json calls it tied, and says so', async () => {
    await using model = await open('llama-untied', tie('true'));
    expect(model.definition.facts.tied).toBe(false);
    expect(model.notices).toMatchObject([
      { message: expect.stringMatching(/head of their own/), fields: { field: 'tie_word_embeddings' } },
    ]);
  });

  it('takes a head that equals the embedding for tied, and says nothing', async () => {
    const copy = ['copy', 'model.embed_tokens.weight', 'lm_head.weight'] as const;
    await using model = await open('llama-tied-f16', { tensors: [copy] });
    expect(model.definition.facts.tied).toBe(true);
    expect(model.notices).toEqual([]);
  });

  it('ties where there is no head and config.json says nothing, and says so', async () => {
    await using model = await open('llama-tied-f16', untold);
    expect(model.definition.facts.tied).toBe(true);
    expect(model.notices).toMatchObject([{ message: expect.stringMatching(/have no head/) }]);
    await using headless = await open('llama-tied-f16', {
      config: { set: { architectures: '["LlamaModel"]' }, remove: ['tie_word_embeddings'] },
    });
    expect(headless.definition.facts.tied).toBe(false);
  });

  it('says nothing of a checkpoint as it is published', async () => {
    for (const base of ['llama-untied', 'llama-tied-f16', 'qwen3-tied', 'mlx-qwen3-4bit']) {
      await using model = await open(base, {});
      expect(model.notices).toEqual([]);
    }
  });

  it.each([
    ['', 'lm_head.'],
    ['model.model.', 'model.lm_head.'],
    ['module.model.', 'module.lm_head.'],
    ['decoder.', 'decoder.lm_head.'],
  ])('finds a decoder under %j and its head under %j', async (prefix, head) => {
    await using model = await open('llama-untied', {
      tensors: [
        ['rename', '^lm_head\\.', head],
        ['rename', '^model\\.(?!lm_head)', prefix],
      ],
    });
    const { layout } = model.definition;
    expect(resolveWeights(model.source, layout, undefined).left).toEqual([]);
  });

  it('names a tensor as the file does where it is wrong', async () => {
    await using model = await open('llama-untied', { tensors: [['rename', '^model\\.', 'decoder.']] });
    const wrong = async () => model.source.vector('model.norm.weight', 7);
    await expect(wrong()).rejects.toMatchObject({
      code: 'weights-tensor-shape',
      where: 'decoder.norm.weight',
    });
  });

  it('leaves tensors of something else, and knows their names', async () => {
    await using model = await open('llama-untied', {
      config: { set: { num_hidden_layers: '1' }, remove: [] },
      tensors: [
        ['add', 'value_head.weight', 'bf16', [1, 64]],
        ['add', 'mtp.layers.0.weight', 'bf16', [2, 2]],
        ['add', 'model.position_ids', 'i64', [1, 4]],
        ['add', 'model.layers.0.self_attn.rotary_emb.inv_freq', 'f32', [8]],
      ],
    });
    const { left } = resolveWeights(model.source, model.definition.layout, undefined);
    expect(left).toEqual(expect.arrayContaining(['value_head.weight', 'mtp.layers.0.weight']));
    const others = left.filter((name) => !name.startsWith('model.layers.1.'));
    expect(others).toHaveLength(2);
  });
});
