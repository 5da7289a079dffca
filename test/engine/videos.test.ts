/** Videos beside transformers (scripts/fixtures/videos.py): pixels, features, places, prompts and answers; and what is refused. */
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/types.js';
import { VisionEncoder } from '../../src/engine/vision/encoder.js';
import type { PatchedImage } from '../../src/engine/vision/patched-image.js';
import type { RgbImage } from '../../src/media/image.js';
import { readVideoProcessor, VIDEO_FILE } from '../../src/media/read-processor.js';
import { loadModel } from '../../src/models/load.js';
import { openModel } from '../../src/models/open.js';
import { rotaryPlaces } from '../../src/models/vision/positions.js';
import { towerInput } from '../../src/models/vision/tower.js';
import { type DeviceSpec, featureBound, kernelDevices } from '../devices/devices.js';
import { relativeError } from '../devices/numbers.js';
import { readPacked } from '../fixtures/read-packed.js';
import { picture } from '../setup/picture.js';
import { floats, readJson } from './vision-fixtures.js';
import { LAYOUTS, layOut } from './vision-layouts.js';

const ROOT = join(import.meta.dirname, '../..');
const FOLDERS: Readonly<Record<string, string>> = {
  llava: join(ROOT, 'test/fixtures/vision-families/llava'),
  'demo-vision': join(ROOT, 'models/demo-vision'),
  'qwen3-vl': join(ROOT, 'test/fixtures/vision-families/qwen3-vl'),
  'qwen3.5-vl': join(ROOT, 'test/fixtures/vision-families/qwen3.5-vl'),
  glm4v: join(ROOT, 'test/fixtures/vision-families/glm4v'),
  'muse-glimmer': join(ROOT, 'test/fixtures/vision-families/muse-glimmer'),
};

interface Tower {
  readonly size: readonly [number, number];
  readonly frames: number;
  readonly grid: readonly [number, number, number];
  readonly pixels: readonly (readonly [string, string])[];
  readonly features: string;
}
interface Answer {
  readonly videos: readonly (readonly [width: number, height: number, frames: number, fps: number])[];
  readonly images: readonly (readonly [number, number])[];
  readonly ids: readonly number[];
  /** Hashes of both frames of each pair. */
  readonly pixels: readonly (readonly [string, string])[];
  readonly grids: readonly (readonly [number, number, number])[];
  readonly positions?: readonly number[][];
  readonly stock?: boolean;
  /** The largest logit, and the likeliest tokens with their log-probabilities. */
  readonly most: number;
  readonly top: readonly (readonly [id: number, logprob: number])[];
  readonly continuation: readonly number[];
  readonly margins: readonly number[];
}
const { towers, answers, animations } = readPacked(join(ROOT, 'test/fixtures/videos.json.br')) as {
  towers: Readonly<Record<string, Tower>>;
  answers: Readonly<Record<string, readonly Answer[]>>;
  animations: readonly { name: string; base64: string; size: [number, number]; frames: string[] }[];
};

const sha = (values: Float32Array): string =>
  createHash('sha256').update(new Uint8Array(values.buffer)).digest('hex');
const SEED = 3;
const shots = (width: number, height: number, count: number, seed = SEED): RgbImage[] =>
  Array.from({ length: count }, (_, i) => picture(width, height, seed + i));

describe.each(kernelDevices)('towers that see videos on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(spec.slow ? ['qwen2-vl'] : Object.keys(towers))(
    '%s gives the features of the reference',
    async (name) => {
      const { size, frames: count, grid: want, pixels, features } = towers[name]!;
      await using opened = await openModel(join(ROOT, 'test/fixtures/vision-families', name));
      const { vision } = opened.definition;
      const model = await loadModel(opened.source, opened.definition, device);
      const bounds = { patch_size: 4, size: { shortest_edge: 256, longest_edge: 2048 } };
      const processor = readVideoProcessor(bounds, vision!.video!.processors[0], towerInput(vision!));
      const grid = processor.grid(count, ...size);
      expect([Math.ceil(count / 2), grid.rows, grid.cols]).toEqual(want);
      const made = shots(...size, count).map((frame) => processor.patches(frame, grid));
      const pairs = Array.from({ length: want[0] }, (_, i): PatchedImage => {
        const [first, second] = [made[2 * i]!, made[2 * i + 1] ?? made[2 * i]!];
        expect([sha(first), sha(second)]).toEqual(pixels[i]);
        return { grid, patches: first, ...(first === second ? {} : { second }) };
      });
      const encoder = new VisionEncoder(device, model);
      try {
        const apart: Float32Array[] = [];
        for (const one of pairs) apart.push(...(await encoder.encode([one])));
        const all = Float32Array.from(apart.flatMap((values) => [...values]));
        expect(relativeError(all, floats(features))).toBeLessThan(featureBound(spec));
        if (!spec.bitwise) return;
        // Beside pictures that stand still, in another order, and after them: the bits that each has alone.
        const still = { grid, patches: made[0]! };
        const [alone] = await encoder.encode([still]);
        const together = await encoder.encode([still, ...pairs.toReversed()]);
        expect(together).toEqual([alone, ...apart.toReversed()]);
        expect(await encoder.encode([still])).toEqual([alone]);
      } finally {
        await encoder.dispose();
      }
    },
  );
});

let scratch: string;
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), 'kvant-videos-'));
  layOut(scratch, LAYOUTS.glm46v!);
});
afterAll(() => rmSync(scratch, { recursive: true }));

const load = (name: string, more: EngineOptions = {}): Promise<Engine> =>
  Engine.load(FOLDERS[name] ?? scratch, {
    device: 'cpu',
    worker: false,
    maxRows: 4,
    threads: 2,
    precision: 'reference',
    ...more,
  });

async function messagesOf({ videos, images }: Answer) {
  const content: unknown[] = [{ type: 'text', text: 'See ' }];
  for (const [i, [width, height, count, fps]] of videos.entries()) {
    const frames = shots(width, height, count, SEED + 7 * i);
    content.push({ type: 'video', frames, fps }, { type: 'text', text: `no. ${i} and` });
  }
  for (const [i, [width, height]] of images.entries()) {
    const image = await sharp(picture(width, height, 50 + i).pixels, { raw: { width, height, channels: 3 } })
      .png()
      .toBuffer();
    content.push({ type: 'image', image }, { type: 'text', text: 'the rest' });
  }
  return [{ role: 'user', content }];
}

describe.each(Object.keys(answers))('%s', (name) => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await load(name);
  });
  afterAll(async () => {
    await engine.close();
  });

  it.each(answers[name]!.map((one) => [JSON.stringify([one.videos, one.images]), one] as const))(
    'answers videos of %s as the reference',
    async (_, one) => {
      const request = { temperature: 0, maxTokens: 16, ignoreEos: true, logprobs: true, topLogprobs: 20 };
      const answer = engine.chat({ messages: await messagesOf(one), ...request });
      const { tokenIds, choices, usage, images } = await answer.result;
      expect(answer.promptTokenIds).toEqual(one.ids);
      const close = one.margins.findIndex((margin) => margin < 1e-3);
      const sure = close < 0 ? one.continuation.length : close;
      expect(sure).toBeGreaterThan(4);
      expect(tokenIds.slice(0, sure)).toEqual(one.continuation.slice(0, sure));
      const got = choices[0]!.logprobs![0]!.top;
      expect(got.length).toBe(20);
      const want = new Map(one.top);
      for (const { id, logprob } of got)
        expect(Math.abs(logprob - want.get(id)!)).toBeLessThan(2e-4 * one.most);
      const tokens = one.grids.map(([pairs, rows, cols]) => (pairs * rows * cols) / 4);
      expect(usage.videoTokens).toBe(tokens.reduce((all, own) => all + own, 0));
      expect(usage.imageTokens === undefined).toBe(one.images.length === 0);
      const seen = images!.filter(({ frames }) => frames !== undefined);
      expect(seen.map((video) => video.tokens)).toEqual(tokens);
      expect(images!.length).toBe(one.videos.length + one.images.length);
    },
  );
});

it.each(answers['muse-glimmer']!.map((one) => [JSON.stringify(one.videos), one] as const))(
  'muse-glimmer: videos of %s have the pixels of the reference',
  (_, { videos, pixels }) => {
    const config = readJson(FOLDERS['muse-glimmer']!, VIDEO_FILE);
    const processor = readVideoProcessor(config, 'MuseGlimmerVideoProcessor', { patchSize: 4, mergeSize: 2 });
    const got = videos.flatMap(([width, height, count, fps], i) => {
      const all = shots(width, height, count, SEED + 7 * i);
      const taken = processor.sample(count, fps);
      const grid = processor.grid(taken.length, width, height);
      const hashes = taken.map((at) => sha(processor.patches(all[at]!, grid)));
      return Array.from({ length: taken.length / 2 }, (__, pair) => hashes.slice(2 * pair, 2 * pair + 2));
    });
    expect(got).toEqual(pixels);
  },
);

describe('places of videos', () => {
  it.each(answers['demo-vision']!.map((one, i) => [i, one] as const))(
    'are those of the reference, case %i',
    async (i, { ids, positions, grids, videos, stock }) => {
      await using opened = await openModel(FOLDERS['demo-vision']!);
      const { imageToken, video } = opened.definition.vision!;
      const starts = [...ids.keys()].filter(
        (at) => (ids[at] === video!.token || ids[at] === imageToken) && ids[at - 1] !== ids[at],
      );
      const places = starts.flatMap((first, of) => {
        if (ids[first] === imageToken) {
          const tokens = ids.filter((id) => id === imageToken).length;
          expect(tokens).toBe(12);
          return [{ first, rows: 3, cols: 4 }];
        }
        const [pairs, rows, cols] = grids[of]!;
        const [, , count, fps] = videos[of]!;
        const taken = Math.min(2 * pairs, count);
        return Array.from({ length: pairs }, (_, pair) => ({
          first: first + (pair * rows * cols) / 4,
          rows: rows / 2,
          cols: cols / 2,
          film: { time: video!.time!(pair, 2 / ((taken / count) * fps)), goesOn: pair > 0 },
        }));
      });
      const got = rotaryPlaces(places);
      ids.forEach((_, at) => {
        const own = [0, 1, 2].map((axis) => (at < got.end ? got.positions[at * 3 + axis] : at + got.shift));
        expect(own).toEqual(positions!.map((axis) => axis[at]));
      });
      // The reference as it comes goes on too early where a video takes longer than it has rows.
      expect(stock).toBe(i !== 1);
    },
  );
});

describe('videos in requests', () => {
  const one = answers['qwen3-vl']![0]!;
  const [width, height, count, fps] = one.videos[0]!;
  let engine: Engine;
  beforeAll(async () => {
    engine = await load('qwen3-vl');
  });
  afterAll(async () => {
    await engine.close();
  });
  const ask = (part: object, text = 'What?') => [{ role: 'user', content: [part, { type: 'text', text }] }];
  const refusal = (part: object, of: Engine = engine): Promise<unknown> =>
    of.chat({ messages: ask(part), maxTokens: 1 }).result.catch((reason: unknown) => reason);
  const answerOf = async (part: object, of: Engine = engine) => {
    const { tokenIds, usage, images } = await of.chat({ messages: ask(part), temperature: 0, maxTokens: 8 })
      .result;
    return { tokenIds, usage, images };
  };

  it('come as data URLs of animated files, with the answer of their frames', async () => {
    const file = animations.find(({ name }) => name === 'webp')!;
    const url = `data:image/webp;base64,${file.base64}`;
    const sent = await answerOf({ type: 'video_url', video_url: { url } });
    const bytes = Buffer.from(file.base64, 'base64');
    expect((await answerOf({ type: 'video', video: bytes })).tokenIds).toEqual(sent.tokenIds);
    expect(sent.images).toEqual([expect.objectContaining({ frames: 4 })]);
    const frames: RgbImage[] = [];
    const pages = await sharp(bytes, { pages: -1 }).removeAlpha().raw().toBuffer({ resolveWithObject: true });
    const [w, h] = file.size;
    for (let i = 0; i < 5; i++)
      frames.push({
        width: w,
        height: h,
        pixels: new Uint8Array(pages.data.subarray(i * w * h * 3, (i + 1) * w * h * 3)),
      });
    const given = await answerOf({ type: 'video', frames, fps: 5000 / 300 });
    expect(given.tokenIds).toEqual(sent.tokenIds);
    expect(given.usage.cachedTokens).toBeGreaterThan(0);
  });

  it('are told apart by frames and by times, never by size alone', async () => {
    const film = shots(width, height, count);
    const first = await answerOf({ type: 'video', frames: film, fps });
    const swapped = await answerOf({ type: 'video', frames: film.toReversed(), fps });
    await engine.clearPrefixCache();
    expect(await answerOf({ type: 'video', frames: film.toReversed(), fps })).toEqual({
      ...swapped,
      usage: { ...swapped.usage, cachedTokens: 0 },
    });
    const { encoded } = (await engine.stats()).features!;
    await engine.clearPrefixCache();
    expect((await answerOf({ type: 'video', frames: film, fps })).tokenIds).toEqual(first.tokenIds);
    // Both have been computed; nothing is again.
    expect((await engine.stats()).features!.encoded).toBe(encoded);
  });

  it('of Qwen2.5-VL at another rate never hit the blocks of the first', async () => {
    await using demo = await load('demo-vision');
    const frames = shots(84, 56, 8);
    const slow = await answerOf({ type: 'video', frames, fps: 0.5 }, demo);
    const behind = await answerOf({ type: 'video', frames, fps: 1 }, demo);
    await demo.clearPrefixCache();
    const cold = await answerOf({ type: 'video', frames, fps: 1 }, demo);
    expect(behind.tokenIds).toEqual(cold.tokenIds);
    // The first two frames begin at the same place.
    expect(behind.usage.cachedTokens).toBeLessThan(slow.usage.promptTokens / 2);
  });

  it('take a placeholder that somebody typed as text', async () => {
    const messages = ask({ type: 'video', frames: shots(16, 16, 2), fps }, 'and <|video_pad|>?');
    const generation = engine.chat({ messages, maxTokens: 1 });
    const { usage } = await generation.result;
    const pad = one.ids.find(
      (id, at) => at > 0 && id === one.ids[at - 1] && one.ids.filter((x) => x === id).length > 20,
    )!;
    expect(generation.promptTokenIds.filter((id) => id === pad).length).toBe(usage.videoTokens);
  });

  const frame = shots(16, 16, 1)[0]!;
  const content = (path: string): string => `messages[0].content[0].${path}`;
  it.each([
    [{ type: 'video_url', video_url: {} }, 'invalid-messages', 'video_url'],
    [
      { type: 'video_url', video_url: { url: 'data:image/gif;base64,$$' } },
      'invalid-image-url',
      'video_url.url',
    ],
    [
      { type: 'video_url', video_url: { url: 'data:text/html;base64,AAAA' } },
      'unsupported-image',
      'video_url.url',
    ],
    [
      { type: 'video_url', video_url: { url: 'https://example.com/a.mp4' } },
      'image-url-not-allowed',
      'video_url.url',
    ],
    [
      {
        type: 'video_url',
        video_url: { url: `data:video/mp4;base64,${Buffer.from('\0\0\0\x18ftypisom').toString('base64')}` },
      },
      'unsupported-video',
      'video_url.url',
    ],
    [{ type: 'video', video: Buffer.from('GIF89a') }, 'invalid-video', 'video'],
    [{ type: 'video' }, 'invalid-messages', 'video'],
    [{ type: 'video', frames: [], fps: 1 }, 'invalid-messages', 'frames'],
    [{ type: 'video', frames: [frame] }, 'invalid-messages', 'fps'],
    [{ type: 'video', frames: [frame], fps: -1 }, 'invalid-messages', 'fps'],
    [{ type: 'video', frames: [{ ...frame, width: 15 }], fps: 1 }, 'invalid-messages', 'frames[0]'],
    [{ type: 'video', frames: [frame, shots(16, 17, 1)[0]], fps: 1 }, 'invalid-video', 'frames[1]'],
    [{ type: 'video', frames: [Buffer.from('no picture')], fps: 1 }, 'unsupported-image', 'frames[0]'],
    [{ type: 'video', frames: shots(2, 500, 2), fps: 1 }, 'invalid-video', 'frames'],
    [{ type: 'video', frames: shots(16, 16, 2), fps: 1, rate: 2 }, 'invalid-messages', 'rate'],
    [
      { type: 'video', frames: Array.from({ length: 10_001 }, () => frame), fps: 1 },
      'video-too-large',
      'frames',
    ],
  ])('are refused by their field: %#', async (part, code, where) => {
    const error = await refusal(part);
    expect(error).toMatchObject({ code, where: content(where), fix: expect.any(String) });
    expect((error as { status: number }).status).toBeLessThan(500);
  });

  it('are refused by a model that reads pictures alone, and one that reads text', async () => {
    await using pictures = await load('llava');
    const part = { type: 'video', frames: [frame], fps: 1 };
    expect(await refusal(part, pictures)).toMatchObject({
      code: 'unsupported-content',
      where: content('frames'),
    });
  });

  it('are refused where they take longer than there are positions', async () => {
    await using demo = await load('demo-vision');
    const error = await refusal({ type: 'video', frames: shots(16, 16, 8), fps: 0.001 }, demo);
    expect(error).toMatchObject({ code: 'video-too-long', status: 400 });
  });

  it('of other formats are read by the function that the caller gives', async () => {
    const film = shots(width, height, count);
    const asked: unknown[] = [];
    const bytes = Buffer.from('\0\0\0\x18ftypisom');
    let fault: 'none' | 'throws' | 'few' | 'size' | 'odd' = 'none';
    await using own = await load('qwen3-vl', {
      decodeVideo: (given) => {
        asked.push(Buffer.from(given).equals(bytes));
        if (fault === 'throws') throw new Error('no such codec');
        return {
          frames: fault === 'odd' ? 0 : count,
          fps,
          width: fault === 'size' ? width + 1 : width,
          height,
          read: (indexes) => {
            asked.push(indexes);
            return (fault === 'few' ? indexes.slice(1) : indexes).map((index) => film[index]!);
          },
        };
      },
    });
    const part = { type: 'video', video: bytes };
    const { tokenIds } = await answerOf(part, own);
    expect(tokenIds).toEqual((await answerOf({ type: 'video', frames: film, fps })).tokenIds);
    expect(asked).toEqual([true, [0, 1, 2, 3, 4]]);
    for (fault of ['throws', 'few', 'size', 'odd'] as const)
      expect(await refusal(part, own), fault).toMatchObject({
        code: 'video-decoder-failed',
        where: content('video'),
      });
    // It is not asked for what kvant decodes itself.
    asked.length = 0;
    await answerOf({ type: 'video', video: Buffer.from(animations[0]!.base64, 'base64') }, own);
    expect(asked).toEqual([]);
  });
});
