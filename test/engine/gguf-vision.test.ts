/** GGUF models with an mmproj file beside them: pixels, features, prompts and answers are those of the reference. */

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { VisionEncoder } from '../../src/engine/vision/encoder.js';
import { KvantError } from '../../src/errors.js';
import { readProcessor } from '../../src/media/read-processor.js';
import { readSight } from '../../src/models/gguf/seeing-source.js';
import { loadModel } from '../../src/models/load.js';
import { openModel } from '../../src/models/open.js';
import { resolveWeights } from '../../src/models/resolve-weights.js';
import { towerInput } from '../../src/models/vision/tower.js';
import { devices } from '../devices/devices.js';
import { Random, relativeError } from '../devices/numbers.js';
import { everyCase } from '../setup/every-case.js';
import { bool, f32s, string, u32, type Value } from '../setup/gguf-writer.js';
import { picture } from '../setup/picture.js';
import { refusal } from './engine-harness.js';
import { writeText } from './gguf-texts.js';
import { writeProjector } from './gguf-towers.js';
import { cases, MODEL as DEMO, withImages } from './vision-cases.js';
import { casesOf, checkAnswer, floats, messagesOf, pictures, ROOT, readJson } from './vision-fixtures.js';

/** By the name of a fixture, the architecture of its decoder. */
const MODELS: Record<string, string> = {
  'qwen2-vl': 'qwen2vl',
  'qwen3-vl': 'qwen3vl',
  'qwen3-vl-moe': 'qwen3vlmoe',
  gemma3: 'gemma3',
  smolvlm: 'llama',
  pixtral: 'llama',
  mistral3: 'llama',
  internvl: 'qwen3',
  llava: 'llama',
  'llava-next': 'llama',
  'llava-onevision': 'qwen2',
};

let scratch: string;
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), 'kvant-gguf-vision-'));
});
afterAll(() => rmSync(scratch, { recursive: true }));

async function written(name: string): Promise<string> {
  const folder = join(scratch, name);
  mkdirSync(folder, { recursive: true });
  const path = join(folder, 'model.gguf');
  await writeText(join(ROOT, name), MODELS[name]!, path);
  await writeProjector(name, join(ROOT, name), join(folder, 'mmproj-model.gguf'));
  return path;
}

describe.each(Object.keys(MODELS))('%s', (name) => {
  let engine: Engine;
  beforeAll(async () => {
    const path = await written(name);
    engine = await Engine.load(path, {
      device: 'cpu',
      worker: false,
      maxRows: 4,
      threads: 2,
      precision: 'reference',
      tokenizer: join(ROOT, name),
    });
  });
  afterAll(() => engine?.close());

  it.each(casesOf(name).map((one) => [JSON.stringify(one.sizes), one] as const))(
    'answers pictures of %s as the reference',
    async (_, one) => {
      await checkAnswer(engine, one);
    },
  );
});

describe('demo-vision', () => {
  it.each([false, true])('answers as the reference, its tower in Q8_0: %s', async (q8) => {
    const folder = join(scratch, `demo-${q8}`);
    mkdirSync(folder);
    const path = join(folder, 'demo.gguf');
    await writeText(DEMO, 'qwen2vl', path);
    await writeProjector('qwen2.5-vl', DEMO, join(folder, 'mmproj-demo.gguf'), {}, q8);
    await using engine = await Engine.load(path, {
      device: 'cpu',
      worker: false,
      threads: 2,
      tokenizer: DEMO,
    });
    for (const one of cases.slice(0, 2)) {
      const answer = engine.chat({ messages: withImages(one), temperature: 0, maxTokens: 40 });
      const { tokenIds } = await answer.result;
      expect(answer.promptTokenIds).toEqual(one.prompt_ids);
      expect(tokenIds).toEqual(one.continuation_ids);
    }
  });
});

/** As the files of LLaVA are that people have: the vocabulary is the language model's, and its template knows texts alone. */
it.each(['llava', 'llava-next'])('%s sees without a token for pictures', async (name) => {
  const folder = join(scratch, `${name}-plain`);
  cpSync(join(ROOT, name), folder, { recursive: true });
  for (const packed of ['tokenizer.json.br', 'tokenizer_config.json.br'])
    rmSync(join(folder, packed), { force: true });
  const tokenizer = readJson(join(ROOT, name), 'tokenizer.json') as { added_tokens: { content: string }[] };
  const { id } = tokenizer.added_tokens.find(({ content }) => content === '<image>') as unknown as {
    id: number;
  };
  const left = tokenizer.added_tokens.filter(({ content }) => content !== '<image>');
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify({ ...tokenizer, added_tokens: left }));
  const config = readJson(join(ROOT, name), 'tokenizer_config.json');
  const template =
    "{% for message in messages %}USER: {{ message['content'] }} {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}";
  writeFileSync(
    join(folder, 'tokenizer_config.json'),
    JSON.stringify({ ...config, chat_template: template }),
  );
  const path = join(folder, 'model.gguf');
  await writeText(folder, MODELS[name]!, path);
  await writeProjector(name, folder, join(folder, 'mmproj-model.gguf'));
  await using engine = await Engine.load(path, {
    device: 'cpu',
    worker: false,
    threads: 2,
    precision: 'reference',
    tokenizer: folder,
  });
  for (const one of casesOf(name)) {
    // A row of the embedding stands where pictures are.
    const ids = one.ids.map((token) => (token === id ? 0 : token));
    await checkAnswer(engine, { ...one, ids });
  }
  // What is typed is text.
  const typed = engine.chat({ messages: [{ role: 'user', content: 'a <image> b' }], maxTokens: 1 });
  await typed.result;
  expect(typed.promptTokenIds!.length).toBeGreaterThan(10);
});

/** Windows of 112 pixels, which a file does not say: demo-vision has them, the tiny checkpoint others. */
it('qwen2.5-vl has the features that the folder of its checkpoint has', async () => {
  const folder = mkdtempSync(join(scratch, 'tower-'));
  const [path, mmproj] = [join(folder, 'model.gguf'), join(folder, 'mmproj.gguf')];
  await writeText(DEMO, 'qwen2vl', path);
  await writeProjector('qwen2.5-vl', DEMO, mmproj);
  await using device = await devices.find(({ kind }) => kind === 'cpu')!.create();
  const features = async (from: string, config: Record<string, unknown>): Promise<Float32Array[]> => {
    await using opened = await openModel(from);
    const processor = readProcessor(config, towerInput(opened.definition.vision!));
    const encoder = new VisionEncoder(device, await loadModel(opened.source, opened.definition, device));
    try {
      const images = [picture(168, 140, 3), picture(224, 56, 4)];
      return await encoder.encode(
        images.map((image) => {
          const grid = processor.grid(image.width, image.height);
          return { grid, patches: processor.patches(image) };
        }),
      );
    } finally {
      await encoder.dispose();
    }
  };
  const got = await features(path, (await readSight(path, mmproj)).processor);
  const want = await features(DEMO, readJson(DEMO, 'preprocessor_config.json'));
  expect(got.length).toBe(2);
  got.forEach((rows, i) => {
    expect(rows.length).toBe(want[i]!.length);
    expect(relativeError(rows, want[i]!)).toBeLessThan(1e-4);
  });
});

describe('lfm2-vl', () => {
  it('gives the features of the reference, with pictures made as the fixture says', async () => {
    // Its decoder does not matter: one of the same width.
    const path = await written('smolvlm');
    const mmproj = join(scratch, 'lfm2-vl.gguf');
    const folder = join(ROOT, 'lfm2-vl');
    await writeProjector('lfm2-vl', folder, mmproj);
    await using device = await devices.find(({ kind }) => kind === 'cpu')!.create();
    await using opened = await openModel(path, {}, mmproj);
    const { vision } = opened.definition;
    const encoder = new VisionEncoder(device, await loadModel(opened.source, opened.definition, device));
    try {
      const processor = readProcessor(readJson(folder, 'preprocessor_config.json'), towerInput(vision!));
      for (const one of casesOf('lfm2-vl'))
        for (const [i, image] of pictures(one).entries()) {
          const grid = processor.grid(image.width, image.height);
          const [got] = await encoder.encode([{ grid, patches: processor.patches(image) }]);
          expect(relativeError(got!, floats(one.features[i]!))).toBeLessThan(1e-4);
        }
    } finally {
      await encoder.dispose();
    }
  });
});

/** Which decoder stands behind a tower does not matter, but that it has its width, and axes where the tower wants them. */
describe.each([
  ['gemma4', 'gemma4', 'gemma4'],
  ['gemma4-e', 'gemma4', 'gemma4'],
  ['glm4v', 'qwen2-vl', 'qwen2vl'],
  ['glm4v-moe', 'qwen2-vl', 'qwen2vl'],
  ['glm-ocr', 'qwen2-vl', 'qwen2vl'],
  ['muse-glimmer', 'gemma3', 'gemma3'],
] as const)('%s behind the decoder of %s', (name, decoder, architecture) => {
  it('gives the features of the reference, with pictures made as the fixture says', async () => {
    const folder = join(scratch, name);
    mkdirSync(folder);
    const path = join(folder, 'model.gguf');
    await writeText(join(ROOT, decoder), architecture, path);
    await writeProjector(name, join(ROOT, name), join(folder, 'mmproj-model.gguf'));
    await expectFeatures(name, path);
  });
});

async function expectFeatures(name: string, path: string): Promise<void> {
  await using device = await devices.find(({ kind }) => kind === 'cpu')!.create();
  await using opened = await openModel(path, {}, join(dirname(path), 'mmproj-model.gguf'));
  const { vision } = opened.definition;
  const encoder = new VisionEncoder(device, await loadModel(opened.source, opened.definition, device));
  try {
    const config = readJson(join(ROOT, name), 'preprocessor_config.json');
    const processor = readProcessor(config, towerInput(vision!));
    for (const one of casesOf(name))
      for (const [i, image] of pictures(one).entries()) {
        const grid = processor.grid(image.width, image.height);
        const [got] = await encoder.encode([{ grid, patches: processor.patches(image) }]);
        expect(relativeError(got!, floats(one.features[i]!))).toBeLessThan(1e-4);
      }
  } finally {
    await encoder.dispose();
  }
}

describe('gemma4-unified', () => {
  const name = 'gemma4-unified';
  const wide = 'gemma4-unified-280';
  let path: string;
  beforeAll(async () => {
    const folder = join(scratch, name);
    mkdirSync(folder);
    path = join(folder, 'model.gguf');
    await writeText(join(ROOT, name), 'gemma4', path);
    await writeProjector(name, join(ROOT, name), join(folder, 'mmproj-model.gguf'));
    // The file does not say how many tokens a picture has at most, the fixture says fewer than published models.
    cpSync(join(ROOT, name), join(scratch, wide), { recursive: true });
    const processor = readJson(join(ROOT, name), 'preprocessor_config.json');
    const file = join(scratch, wide, 'preprocessor_config.json');
    writeFileSync(file, JSON.stringify({ ...processor, max_soft_tokens: 280 }));
  });

  it('gives the features of the reference, with pictures made as the fixture says', () =>
    expectFeatures(name, path));

  it('answers as its checkpoint does, with 280 tokens a picture', async () => {
    const options = { device: 'cpu', worker: false, threads: 2, precision: 'reference' } as const;
    const answers = async (model: string): Promise<unknown[]> => {
      await using engine = await Engine.load(model, { ...options, tokenizer: join(ROOT, name) });
      const all: unknown[] = [];
      for (const one of casesOf(name)) {
        const { tokenIds, usage, images } = await engine.chat({
          messages: messagesOf(one),
          temperature: 0,
          maxTokens: 8,
          ignoreEos: true,
        }).result;
        all.push({ tokenIds, usage, images });
      }
      return all;
    };
    const got = await answers(path);
    expect(got).toEqual(await answers(join(scratch, wide)));
    expect(JSON.stringify(got)).toMatch(/"tokens":2\d\d/);
  });
});

describe('an mmproj file', () => {
  const name = 'gemma3';
  const lay = async (files: Record<string, Record<string, Value>>): Promise<string> => {
    const folder = mkdtempSync(join(scratch, 'laid-'));
    await writeText(join(ROOT, name), 'gemma3', join(folder, 'model.gguf'));
    for (const [file, changes] of Object.entries(files))
      await writeProjector(name, join(ROOT, name), join(folder, file), changes);
    return join(folder, 'model.gguf');
  };
  const sees = async (path: string, mmproj?: string): Promise<{ sees: boolean; told: string }> => {
    await using model = await openModel(path, {}, mmproj);
    const told = model.notices.map(({ message, fields }) => `${message} ${JSON.stringify(fields)}`).join();
    return { sees: model.definition.vision !== null, told };
  };

  it('is taken where it is asked for, or lies beside the model, which is told', async () => {
    const path = await lay({ 'mmproj-F16.gguf': {}, 'other-mmproj.gguf': {} });
    const found = await sees(path);
    expect(found.sees).toBe(true);
    expect(found.told).toMatch(/beside the model sees for it .*"mmproj-F16.gguf".*"other-mmproj.gguf"/);
    const other = path.replace('model.gguf', 'other-mmproj.gguf');
    expect(await sees(path, other)).toEqual({ sees: true, told: '' });
    rmSync(path.replace('model.gguf', 'mmproj-F16.gguf'));
    expect((await sees(path)).told).toMatch(/"file":"other-mmproj.gguf"}$/);
  });

  it('is told of where it cannot be used, and refused where it was asked for', async () => {
    const odd = {
      'projector-unsupported': { 'clip.projector_type': string('ultravox') },
      'model-config': { 'clip.vision.block_count': f32s([1]) },
    };
    for (const [code, changes] of Object.entries(odd)) {
      const path = await lay({ 'mmproj-model.gguf': changes });
      const { sees: seen, told } = await sees(path);
      expect(seen).toBe(false);
      expect(told).toContain('pictures are refused');
      const beside = path.replace('model.gguf', 'mmproj-model.gguf');
      const refused = await refusal(sees(path, beside));
      expect(refused.code).toBe(code);
      expect(refused.fix).not.toBe('');
    }
    const path = await lay({});
    expect((await refusal(sees(path, `${path}.not`))).code).toBe('weights-missing');
    expect((await refusal(sees(join(ROOT, name), path))).code).toBe('invalid-option');
  });

  it('of another model is refused by its width', async () => {
    const path = await written(name);
    const other = join(scratch, 'other.gguf');
    await writeProjector('qwen2.5-vl', DEMO, other);
    const refused = await refusal(sees(path, other));
    expect(refused).toMatchObject({ code: 'model-config', where: 'clip.vision.projection_dim' });
    await writeProjector('qwen2.5-vl', DEMO, other, { 'clip.vision.projection_dim': u32(16) });
    expect((await refusal(sees(await written('qwen3-vl'), other))).where).toBe('out_hidden_size');
  });

  it('of LLaVA may say no kind, as old ones do; tiles that are merged otherwise are refused', async () => {
    const other = join(scratch, 'llava.gguf');
    const path = await written('llava-next');
    const kept = { 'clip.projector_type': undefined, 'clip.has_llava_projector': bool(true) };
    await writeProjector('llava-next', join(ROOT, 'llava-next'), other, kept);
    expect(await sees(path, other)).toEqual({ sees: true, told: '' });
    const flat = { 'clip.vision.mm_patch_merge_type': string('flat') };
    await writeProjector('llava-next', join(ROOT, 'llava-next'), other, flat);
    const refused = await refusal(sees(path, other));
    expect(refused).toMatchObject({ code: 'projector-unsupported' });
    expect(refused.message).toContain('mlp, tiles merged as flat');
  });

  it('refuses tensors that it knows no place for', async () => {
    const path = await lay({ 'mmproj-model.gguf': { 'clip.projector_type': string('mlp') } });
    const refused = await refusal(sees(path, path.replace('model.gguf', 'mmproj-model.gguf')));
    expect(refused).toMatchObject({ code: 'weights-tensor-extra', where: 'mm.input_projection.weight' });
  });

  const count = everyCase ? 500 : 60;
  it(`with bytes of its header changed is read, or refused with what to do: ${count} of them`, async () => {
    const path = await lay({});
    const own = join(scratch, 'own.gguf');
    await writeProjector(name, join(ROOT, name), own);
    const whole = readFileSync(own);
    const header = whole.indexOf('mm.soft_emb_norm.weight') + 60;
    const random = new Random(3);
    let refused = 0;
    for (let i = 0; i < count; i++) {
      const bytes = Buffer.from(whole);
      for (let n = 1 + random.int(3); n > 0; n--) bytes[4 + random.int(header - 4)] = random.int(256);
      const changed = join(scratch, 'changed.gguf');
      writeFileSync(changed, i % 8 === 0 ? bytes.subarray(0, random.int(bytes.length)) : bytes);
      try {
        await using model = await openModel(path, {}, changed);
        const { matrices, vectors } = resolveWeights(model.source, model.definition.layout, undefined);
        for (const { parts } of matrices) for (const part of parts) await part.readRows(0, part.rows);
        for (const { source } of vectors) await source.read();
      } catch (error) {
        if (!(error instanceof KvantError) || error.kind === 'internal')
          throw new Error(`file ${i}: ${String(error)}`, { cause: error });
        expect(error.fix).toBeTruthy();
        refused++;
      }
    }
    expect(refused).toBeGreaterThan(count / 3);
  });
});
