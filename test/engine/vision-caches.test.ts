/** What is kept for pictures: kernels, features, blocks. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import sharp from 'sharp';
import { describe, expect, it, vi } from 'vitest';
import { CpuProgram } from '../../src/device/cpu/program.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions, GenerationResult, LogEntry } from '../../src/engine/types.js';
import { cases, MODEL, withImages } from './vision-cases.js';

const load = (options: EngineOptions = {}): Promise<Engine> =>
  Engine.load(MODEL, { device: 'cpu', worker: false, threads: 2, maxContext: 512, ...options });

/** A picture of one colour, unasked as large as those of the fixtures: 16 tokens. */
const plain = async (red: number, side = 112): Promise<Buffer> =>
  sharp({ create: { width: side, height: side, channels: 3, background: { r: red, g: 90, b: 160 } } })
    .png()
    .toBuffer();

/** Pictures, and behind them a question. */
const about = (images: readonly Buffer[], text: string, before = '') => [
  {
    role: 'user',
    content: [
      ...(before === '' ? [] : [{ type: 'text', text: before }]),
      ...images.map((image) => ({ type: 'image', image })),
      { type: 'text', text },
    ],
  },
];

interface Answered {
  /** Tokens, and how likely each and others were: to the last bit. */
  readonly bits: GenerationResult['choices'][number]['logprobs'];
  readonly cached: number;
  readonly prompt: readonly number[];
}

async function answer(engine: Engine, messages: ReturnType<typeof about>, maxTokens = 8): Promise<Answered> {
  const sampling = { temperature: 0, ignoreEos: true, logprobs: true, topLogprobs: 20 } as const;
  const run = engine.chat({ messages, maxTokens, ...sampling });
  const { choices, usage } = await run.result;
  return { bits: choices[0]!.logprobs, cached: usage.cachedTokens, prompt: run.promptTokenIds };
}

const features = async (engine: Engine) => (await engine.stats()).features!;
const IMAGE_TOKEN = 4088;

describe('pictures', () => {
  it('find all that they need made at load', async () => {
    const logs: LogEntry[] = [];
    process.env.KVANT_RESOURCE_DEBUG = '1';
    try {
      await using engine = await load({ onLog: (entry) => logs.push(entry) });
      for (const messages of [[{ role: 'user', content: 'Who are you?' }], ...cases.map(withImages)])
        await engine.chat({ messages, maxTokens: 4, temperature: 0 }).result;
    } finally {
      delete process.env.KVANT_RESOURCE_DEBUG;
    }
    const resources = logs.filter(({ message }) => message === 'resources');
    expect(resources.length).toBeGreaterThan(2 * cases.length);
    expect([...new Set(resources.map(({ fields }) => fields!.plans))]).toHaveLength(1);
  });

  it('of which a tower sees a part give way to the steps of rows that decode', async () => {
    const trace: string[] = [];
    const submit = CpuProgram.prototype.submit;
    const spy = vi.spyOn(CpuProgram.prototype, 'submit').mockImplementation(function (
      this: CpuProgram,
      inputs,
      slice,
    ) {
      trace.push(slice === undefined ? 'step' : `${slice.from}-${slice.to}`);
      return submit.call(this, inputs, slice);
    });
    try {
      await using engine = await load({ prefixCache: false, targetItlMs: 0 });
      const messages = about([await plain(90)], 'What is in the picture?');
      const alone = await answer(engine, messages);
      expect(trace.filter((one) => one !== 'step')).toEqual(['0-64']);
      trace.length = 0;
      const text = engine.chat({
        messages: [{ role: 'user', content: 'Who are you?' }],
        maxTokens: 400,
        temperature: 0,
        ignoreEos: true,
      });
      let seen: Promise<Answered> | null = null;
      const { features: before } = await engine.stats();
      for await (const _ of text)
        seen ??= answer(engine, about([await plain(91)], 'What is in the picture?'));
      expect((await seen)!.bits).toHaveLength(alone.bits!.length);
      expect((await features(engine)).encoded).toBe(before!.encoded + 1);
      const slices = trace.flatMap((one, at) => (one === 'step' ? [] : [at]));
      expect(trace[slices[0]!]).toMatch(/^0-/);
      expect(trace[slices.at(-1)!]).toMatch(/-64$/);
      // While the text was written there was a step between any two of them.
      slices.slice(1).forEach((at, i) => {
        expect(at - slices[i]!).toBeGreaterThan(1);
      });
    } finally {
      spy.mockRestore();
    }
  });

  it('that a prefix covers are not computed again, though their features are gone', async () => {
    const [one, other] = [await plain(20), await plain(200)];
    const rowBytes = 4 * 256;
    // Room for one picture.
    await using engine = await load({ imageCacheBytes: 16 * rowBytes, blockTokens: 16 });
    const question = 'What is in the picture? Say all that you see in it, and where it is.';
    const { bits: first } = await answer(engine, about([one], question));
    await answer(engine, about([other], question));
    const before = await features(engine);
    expect(before).toMatchObject({ rows: 16, encoded: 2, evictions: 1, references: 0 });
    const again = await answer(engine, about([one], question));
    expect(again.bits).toEqual(first);
    expect(again.cached).toBeGreaterThan(again.prompt.lastIndexOf(IMAGE_TOKEN));
    const longer = about([one], `${question} And then say what is missing, in a few words.`);
    const behind = await answer(engine, longer);
    expect(behind.cached).toBeGreaterThan(behind.prompt.lastIndexOf(IMAGE_TOKEN));
    expect(await features(engine)).toEqual(before);
    await engine.clearPrefixCache();
    const cold = await answer(engine, longer);
    expect(cold).toMatchObject({ bits: behind.bits, cached: 0 });
    expect(await features(engine)).toMatchObject({ encoded: 3, references: 0 });
  });

  it('that a prefix ends in are computed, and those before it are not', async () => {
    const [one, two, other] = [await plain(20), await plain(60, 224), await plain(200, 224)];
    const messages = about([one, two], 'What is in the pictures?');
    const probe = await load({ prefixCache: false });
    const wanted = await answer(probe, messages);
    const blockBytes = 16 * probe.info.kv.bytesPerToken;
    await probe.close();
    const places = wanted.prompt.flatMap((id, at) => (id === IMAGE_TOKEN ? [at] : []));
    const [begin, end] = [places[16]!, places[79]! + 1];
    // Of the blocks of two requests the last ones of the first have to go, and its features all.
    const options = { blockTokens: 16, prefixCacheBytes: 9 * blockBytes, imageCacheBytes: 80 * 4 * 256 };
    await using engine = await load(options);
    await answer(engine, messages);
    await answer(engine, about([other], 'And this?'));
    expect(await features(engine)).toMatchObject({ encoded: 3, evictions: 2 });
    const again = await answer(engine, messages);
    expect(again.bits).toEqual(wanted.bits);
    expect(again.cached).toBeGreaterThan(begin);
    expect(again.cached).toBeLessThan(end);
    expect(await features(engine)).toMatchObject({ encoded: 4, references: 0 });
  });

  it('are found by what they show: another of the same size, behind the same text, shares no block with it', async () => {
    const [one, other] = [await plain(20), await plain(21)];
    const before = 'Here is a picture that I have taken of a wall.';
    const question = 'What is in the picture?';
    await using engine = await load({ blockTokens: 16 });
    const cold = await answer(engine, about([other], question, before));
    await engine.clearPrefixCache();
    await answer(engine, about([one], question, before));
    const strange = await answer(engine, about([other], question, before));
    const first = strange.prompt.indexOf(IMAGE_TOKEN);
    expect(strange.prompt).toEqual(cold.prompt);
    // The text before them is found.
    expect([cold.cached, strange.cached]).toEqual([0, first]);
    expect(strange.bits).toEqual(cold.bits);
    const again = await answer(engine, about([one], question, before));
    expect(again.cached).toBeGreaterThan(again.prompt.lastIndexOf(IMAGE_TOKEN));
    expect(again.bits).not.toEqual(cold.bits);
  });

  it('are found again on disk by another engine, and another picture is not', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvant-seen-'));
    try {
      const [one, other] = [await plain(20), await plain(21)];
      const options = { prefixCacheDir: folder, blockTokens: 16 };
      const before = 'Here is a picture that I have taken of a wall.';
      const messages = about([one], 'What is in the picture?', before);
      const writer = await load(options);
      const wanted = await answer(writer, messages);
      await writer.close();
      await using engine = await load(options);
      const last = wanted.prompt.lastIndexOf(IMAGE_TOKEN);
      const restored = await answer(engine, messages);
      expect(restored.bits).toEqual(wanted.bits);
      expect(restored.cached).toBeGreaterThan(last);
      expect(await features(engine)).toMatchObject({ encoded: 0 });
      const strange = await answer(engine, about([other], 'What is in the picture?', before));
      expect(strange.cached).toBeLessThanOrEqual(strange.prompt.indexOf(IMAGE_TOKEN));
      await engine.clearPrefixCache();
      expect((await answer(engine, about([other], 'What is in the picture?', before))).bits).toEqual(
        strange.bits,
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
