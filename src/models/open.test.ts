import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MODEL_FIXTURES } from '../../test/parity/runner.js';
import { buildSpelling, type Spelling } from '../../test/parity/spelling.js';
import { parseModelConfig } from './families.js';
import { type OpenModel, openModel } from './open.js';
import { resolveWeights } from './resolve-weights.js';

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
    const wrong = async () => model.source.vector('model.norm.weight', [7]);
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
        ['add', 'reward.layers.0.weight', 'bf16', [2, 2]],
        ['add', 'model.position_ids', 'i64', [1, 4]],
        ['add', 'model.layers.0.self_attn.rotary_emb.inv_freq', 'f32', [8]],
      ],
    });
    const { left } = resolveWeights(model.source, model.definition.layout, undefined);
    expect(left).toEqual(expect.arrayContaining(['value_head.weight', 'reward.layers.0.weight']));
    const others = left.filter((name) => !name.startsWith('model.layers.1.'));
    expect(others).toHaveLength(2);
  });
});

/** The text models of wrappers, in each spelling that their tensors have had. */
describe('a wrapper', () => {
  const inside = (text: Record<string, unknown>, architecture: string, modelType: string) => ({
    set: {
      architectures: JSON.stringify([architecture]),
      model_type: JSON.stringify(modelType),
      text_config: JSON.stringify(text),
    },
    remove: Object.keys(text).filter((name) => name !== 'architectures' && name !== 'model_type'),
  });
  const fieldsOf = async (base: string): Promise<Record<string, unknown>> =>
    JSON.parse(await readFile(join(MODEL_FIXTURES, base, 'config.json'), 'utf8'));

  it('ties where there is no head and neither config says anything, and not where the inner one does', async () => {
    const { tie_word_embeddings: _, ...text } = await fieldsOf('llama-tied-f16');
    const wrapped = (fields: Record<string, unknown>) =>
      inside({ ...text, ...fields }, 'LlavaForConditionalGeneration', 'llava');
    const untied = wrapped({});
    await using model = await open('llama-tied-f16', {
      config: { ...untied, remove: [...untied.remove, 'tie_word_embeddings'] },
    });
    expect(model.definition.facts.tied).toBe(true);
    expect(model.notices.at(-1)).toMatchObject({ message: expect.stringMatching(/have no head/) });
    await using stated = await open('llama-tied-f16', { config: wrapped({ tie_word_embeddings: false }) });
    expect(stated.definition.facts.tied).toBe(false);
    expect(() => resolveWeights(stated.source, stated.definition.layout, undefined)).toThrow(
      expect.objectContaining({ code: 'weights-tensor-missing', where: 'lm_head.weight' }),
    );
  });

  it.each([
    ['model.language_model.', 'lm_head.', 'model.vision_tower.'],
    ['language_model.model.', 'language_model.lm_head.', 'vision_tower.'],
    ['model.', 'lm_head.', 'visual.'],
  ])('is read with its tensors under %s', async (prefix, head, vision) => {
    const { tie_word_embeddings: _, ...text } = await fieldsOf('mistral-head-dim');
    await using model = await open('mistral-head-dim', {
      config: inside(text, 'Mistral3ForConditionalGeneration', 'mistral3'),
      tensors: [
        ['rename', '^lm_head\\.', head],
        ['rename', '^model\\.(?!vision|language)', prefix],
        ['add', `${vision}layers.0.weight`, 'bf16', [4, 4]],
        ['add', `${vision}norm.weight`, 'bf16', [4]],
        ['add', 'multi_modal_projector.linear_1.weight', 'bf16', [4, 4]],
        ['add', 'mtp.layers.0.weight', 'bf16', [2, 2]],
      ],
    });
    await using plain = await open('mistral-head-dim', {});
    const { facts, layout } = model.definition;
    expect(facts).toMatchObject({
      architecture: 'Mistral3ForConditionalGeneration',
      family: 'mistral',
      tied: false,
    });
    expect(layout).toEqual(plain.definition.layout);
    expect(model.notices).toMatchObject([{ message: expect.stringMatching(/text model alone/) }]);
    const { matrices, left } = resolveWeights(model.source, layout, undefined);
    expect(left).toEqual([]);
    const same = resolveWeights(plain.source, layout, undefined).matrices;
    for (const [i, { parts }] of matrices.entries())
      expect(await parts[0]!.readRows(0, 2)).toEqual(await same[i]!.parts[0]!.readRows(0, 2));
  });

  it('is told by the type inside, and fields that stand outside count where the inside has none', () => {
    const text = { hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4 };
    const of = (inner: object, outer: object) =>
      parseModelConfig({ vocab_size: 100, text_config: { ...text, ...inner }, ...outer }).facts;
    const gemma = {
      architectures: ['Gemma3ForConditionalGeneration'],
      model_type: 'gemma3',
      eos_token_id: [1, 106],
    };
    expect(of({}, gemma)).toMatchObject({ family: 'gemma3', tied: true, eosTokenIds: [1, 106] });
    expect(of({ eos_token_id: 7 }, gemma).eosTokenIds).toEqual([7]);
    const qwen = { architectures: ['Qwen3VLForConditionalGeneration'], model_type: 'qwen3_vl' };
    expect(of({ model_type: 'qwen3_vl_text' }, { ...qwen, tie_word_embeddings: true })).toMatchObject({
      family: 'qwen3',
      tied: true,
    });
    const mixed = { architectures: ['LlavaForConditionalGeneration'], model_type: 'llava' };
    expect(of({ model_type: 'qwen2' }, mixed).family).toBe('qwen2');
    expect(() => of({ model_type: 'made_up' }, mixed)).toThrow(/text_config.*"made_up" is not known/);
  });

  it('may be flat, and turn positions of text by three axes as by one', () => {
    const flat = {
      architectures: ['Qwen2VLForConditionalGeneration'],
      model_type: 'qwen2_vl',
      vocab_size: 100,
      hidden_size: 64,
      intermediate_size: 96,
      num_hidden_layers: 2,
      num_attention_heads: 4,
    };
    const { facts } = parseModelConfig({
      ...flat,
      rope_theta: 1e6,
      rope_scaling: { type: 'mrope', mrope_section: [2, 3, 3] },
    });
    expect(facts).toMatchObject({ family: 'qwen2', rope: 'default, theta 1000000' });
  });
});
