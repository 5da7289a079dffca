import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadGenerationConfig, readGenerationConfig } from './generation-config.js';
import { Tokenizer } from './tokenizer.js';

const eos = (id: number | undefined, special: readonly string[] = [], words: readonly string[] = []) => ({
  specialIds: new Set(special.map((_, i) => 20 + i)),
  idOfSpecial: () => id,
  idOf: (token: string) => {
    const at = [...special, ...words].indexOf(token);
    return at >= 0 ? 20 + at : token === '</s>' ? 6 : undefined;
  },
});

describe('readGenerationConfig', () => {
  it('unites the EOS ids of all files', () => {
    const read = (generation?: object, config?: object, own?: number) =>
      readGenerationConfig(generation as never, config as never, eos(own)).eosTokenIds;
    expect(read({ eos_token_id: 7 })).toEqual([7]);
    expect(read({ eos_token_id: [9, 7, 9] }, { eos_token_id: 8 }, 2)).toEqual([2, 7, 8, 9]);
    expect(read(undefined, { eos_token_id: [5] }, 5)).toEqual([5]);
    expect(read({ eos_token_id: null }, { text_config: { eos_token_id: 3 } })).toEqual([3]);
    expect(read(undefined, undefined)).toEqual([]);
    expect(readGenerationConfig({ eos_token_id: 0 }, undefined).eosTokenIds).toEqual([0]);
    // -1 stands for none in files that some tools write, and a few name the token by its text.
    expect(read({ eos_token_id: -1 }, { eos_token_id: [-1, 4, null] }, 2)).toEqual([2, 4]);
    expect(read({ eos_token_id: '</s>' }, { eos_token_id: ['</s>', '8'] })).toEqual([6, 8]);
  });

  it('adds the special tokens that end an answer in any model', () => {
    const read = (special: readonly string[], words: readonly string[] = [], generation?: object) =>
      readGenerationConfig(generation as never, { eos_token_id: 3 }, eos(3, special, words)).eosTokenIds;
    // Llama 3 fine-tunes whose eos is <|end_of_text|>; files of Gemma 4, gpt-oss, Kimi K2 and Phi that name one id.
    expect(read(['<|eot_id|>', '<|begin_of_text|>', '<|eom_id|>'])).toEqual([3, 20, 22]);
    expect(read(['<bos>', '<turn|>', '<|tool_response>', '</s>'])).toEqual([3, 21, 22]);
    expect(read(['<|return|>', '<|call|>', '<|end|>', '<|start|>'], [], { eos_token_id: 20 })).toEqual([
      3, 20, 21,
    ]);
    expect(read(['<|end|>', '<|user|>', '<|endoftext|>'])).toEqual([3, 20, 22]);
    expect(read(['<|im_end|>', '[EOT]'])).toEqual([3, 20, 21]);
    // An answer of gpt-oss's kind goes on behind <|end|>; a word of that text is no end.
    expect(read(['<|channel|>', '<|end|>'])).toEqual([3]);
    expect(read([], ['<|im_end|>', '<|eot_id|>'])).toEqual([3]);
  });

  it('takes the defaults that are there and no others', () => {
    const read = (generation?: object) => readGenerationConfig(generation as never, undefined).defaults;
    expect(read()).toEqual({ doSample: true });
    expect(read({ temperature: 0.6, top_k: 20, top_p: 0.95, min_p: 0, repetition_penalty: 1.05 })).toEqual({
      doSample: true,
      temperature: 0.6,
      topK: 20,
      topP: 0.95,
      minP: 0,
      repetitionPenalty: 1.05,
    });
    expect(read({ typical_p: 0.9, max_new_tokens: 64, top_k: -5, temperature: null })).toEqual({
      doSample: true,
      typicalP: 0.9,
      maxNewTokens: 64,
      topK: 0,
    });
  });

  it('names the keys that ask for something else, and not those that turn it off', () => {
    const read = (generation: object) => readGenerationConfig(generation as never, undefined).ignored;
    expect(read({ temperature: 0.7, top_k: 5, do_sample: true, eos_token_id: 3, max_new_tokens: 9 })).toEqual(
      [],
    );
    expect(
      read({
        transformers_version: '5.1',
        pad_token_id: 2,
        use_cache: false,
        num_beams: 1,
        length_penalty: 1,
        min_new_tokens: 0,
        early_stopping: false,
        suppress_tokens: [],
        forced_eos_token_id: null,
        output_scores: true,
      }),
    ).toEqual([]);
    expect(
      read({ top_p: 0.9, num_beams: 4, suppress_tokens: [1], no_repeat_ngram_size: 3, flavour: 'mild' }),
    ).toEqual(['num_beams', 'suppress_tokens', 'no_repeat_ngram_size', 'flavour']);
  });

  it('takes do_sample: false for greedy', () => {
    const { defaults } = readGenerationConfig({ do_sample: false, temperature: 0.8, top_p: 0.9 }, undefined);
    expect(defaults).toEqual({ doSample: false, temperature: 0, topP: 0.9 });
  });

  it.each([
    [{ temperature: -1 }, 'temperature'],
    [{ temperature: '0.7' }, 'temperature'],
    [{ top_k: 1.5 }, 'top_k'],
    [{ top_p: 0 }, 'top_p'],
    [{ top_p: 1.1 }, 'top_p'],
    [{ min_p: 2 }, 'min_p'],
    [{ repetition_penalty: 0 }, 'repetition_penalty'],
    [{ max_new_tokens: 0 }, 'max_new_tokens'],
    [{ do_sample: 'yes' }, 'do_sample'],
    [{ eos_token_id: 'x' }, 'eos_token_id'],
    [{ eos_token_id: [1, 2.5] }, 'eos_token_id'],
    [{ temperature: Number.NaN }, 'temperature'],
    [{ temperature: Number.POSITIVE_INFINITY }, 'temperature'],
  ])('leaves out %j, and says so', (generation, field) => {
    const read = readGenerationConfig({ min_p: 0.1, ...generation } as never, undefined);
    const { min_p: minP = 0.1 } = generation as { min_p?: number };
    expect(read.defaults).toEqual({ doSample: true, ...(minP === 0.1 ? { minP } : {}) });
    expect(read.eosTokenIds).toEqual([]);
    expect(read.notices).toMatchObject([{ fields: { field } }]);
  });
});

describe('loadGenerationConfig', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-generation-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  it('reads demo-text', async () => {
    const tokenizer = await Tokenizer.load('models/demo-text');
    expect(await loadGenerationConfig('models/demo-text', tokenizer)).toEqual({
      defaults: { doSample: true, temperature: 0.7, topK: 20, topP: 0.95 },
      eosTokenIds: [4083, 4085],
      ignored: [],
      notices: [],
    });
  });

  it('does without files', async () => {
    expect(await loadGenerationConfig(folder)).toEqual({
      defaults: { doSample: true },
      eosTokenIds: [],
      ignored: [],
      notices: [],
    });
  });

  it.each(['{"eos_token_id": [1,', '', '[]', 'null', 'version https://git-lfs'])(
    'does without a generation_config.json that is broken, and says so: %s',
    async (text) => {
      await writeFile(join(folder, 'config.json'), '{"eos_token_id": 3}');
      await writeFile(join(folder, 'generation_config.json'), text);
      const read = await loadGenerationConfig(folder);
      expect(read).toMatchObject({ defaults: { doSample: true }, eosTokenIds: [3] });
      expect(read.notices).toHaveLength(1);
      expect(read.notices[0]?.fields.reason).toContain('generation_config.json');
    },
  );

  it('reads NaN and a byte-order mark', async () => {
    await writeFile(join(folder, 'config.json'), '\ufeff{"eos_token_id": 3, "dropout": NaN}');
    const text = '\ufeff{"eos_token_id": 4, "temperature": 0.5, "epsilon_cutoff": NaN, "max_time": Infinity}';
    await writeFile(join(folder, 'generation_config.json'), text);
    expect(await loadGenerationConfig(folder)).toMatchObject({
      defaults: { temperature: 0.5 },
      eosTokenIds: [3, 4],
      notices: [],
    });
  });

  it('refuses a broken config.json, naming it', async () => {
    await writeFile(join(folder, 'config.json'), '{"eos_token_id": "no"}');
    await expect(loadGenerationConfig(folder)).rejects.toMatchObject({
      code: 'config-broken',
      where: join(folder, 'config.json'),
    });
  });
});
