/** Families that see, each a tiny model of transformers (scripts/fixtures/vision_families.py): pixels, features, prompts, answers. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { Engine } from '../../src/engine/engine.js';
import { VisionEncoder } from '../../src/engine/vision/encoder.js';
import type { ImageProcessor } from '../../src/media/processor.js';
import { readProcessor } from '../../src/media/read-processor.js';
import { loadModel } from '../../src/models/load.js';
import { openModel } from '../../src/models/open.js';
import { towerInput } from '../../src/models/vision/tower.js';
import { type DeviceSpec, featureBound, kernelDevices } from '../devices/devices.js';
import { relativeError } from '../devices/numbers.js';
import { picture } from '../setup/picture.js';

const ROOT = join(import.meta.dirname, '../fixtures/vision-families');
const NAMES = readdirSync(ROOT);

interface Case {
  readonly sizes: readonly (readonly [number, number])[];
  readonly pixels: readonly string[];
  readonly features: readonly string[];
  readonly ids: readonly number[];
  readonly logits: string;
  readonly continuation: readonly number[];
  readonly margins: readonly number[];
}

const json = (name: string, file: string): unknown =>
  JSON.parse(readFileSync(join(ROOT, name, file), 'utf8'));
const casesOf = (name: string): readonly Case[] =>
  (json(name, 'expected.json') as { cases: readonly Case[] }).cases;

function floats(base64: string): Float32Array {
  const bytes = Uint8Array.from(Buffer.from(base64, 'base64'));
  return new Float32Array(bytes.buffer);
}

const pictures = ({ sizes }: Case) => sizes.map(([width, height], i) => picture(width, height, i + 3));

async function messagesOf(one: Case) {
  const content: unknown[] = [{ type: 'text', text: 'See ' }];
  for (const [i, { width, height, pixels }] of pictures(one).entries()) {
    const image = await sharp(pixels, { raw: { width, height, channels: 3 } })
      .png()
      .toBuffer();
    content.push({ type: 'image', image }, { type: 'text', text: `no. ${i} and\n\nthe rest` });
  }
  return [{ role: 'user', content }];
}

describe.each(kernelDevices)('towers of families on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(NAMES)('%s gives the pixels and the features of the reference', async (name) => {
    await using opened = await openModel(join(ROOT, name));
    const { vision } = opened.definition;
    const model = await loadModel(opened.source, opened.definition, device);
    const config = json(name, 'preprocessor_config.json') as Record<string, unknown>;
    const processor: ImageProcessor = readProcessor(config, towerInput(vision!));
    const encoder = new VisionEncoder(device, model);
    try {
      const cases = spec.slow ? casesOf(name).slice(-1) : casesOf(name);
      const apart: Float32Array[] = [];
      const all = cases.flatMap((one) =>
        pictures(one).map((image, i) => {
          const patches = processor.patches(image);
          const hash = createHash('sha256').update(new Uint8Array(patches.buffer)).digest('hex');
          expect(hash).toBe(one.pixels[i]);
          return { grid: processor.grid(image.width, image.height), patches };
        }),
      );
      for (const one of all) apart.push(...(await encoder.encode([one])));
      cases
        .flatMap(({ features }) => features)
        .forEach((want, i) => {
          expect(apart[i]!.length).toBe(floats(want).length);
          expect(relativeError(apart[i]!, floats(want))).toBeLessThan(featureBound(spec));
        });
      if (!spec.bitwise) return;
      // All in one launch, in another order: each has the bits that it has alone.
      const together = await encoder.encode(all.toReversed());
      expect(together.reverse()).toEqual(apart);
    } finally {
      await encoder.dispose();
    }
  });
});

describe.each(NAMES)('%s', (name) => {
  let engine: Engine;
  beforeAll(async () => {
    const options = { device: 'cpu', worker: false, maxRows: 4, threads: 2, precision: 'reference' } as const;
    engine = await Engine.load(join(ROOT, name), options);
  });
  afterAll(async () => {
    await engine.close();
  });

  it.each(casesOf(name).map((one) => [JSON.stringify(one.sizes), one] as const))(
    'answers pictures of %s as the reference',
    async (_, one) => {
      const request = { temperature: 0, maxTokens: 16, ignoreEos: true, logprobs: true, topLogprobs: 20 };
      const answer = engine.chat({ messages: await messagesOf(one), ...request });
      const { tokenIds, choices } = await answer.result;
      expect(answer.promptTokenIds).toEqual(one.ids);
      // Where two tokens are as good as one, either may come; what follows is then another text.
      const close = one.margins.findIndex((margin) => margin < 1e-3);
      const sure = close < 0 ? one.continuation.length : close;
      expect(sure).toBeGreaterThan(4);
      expect(tokenIds.slice(0, sure)).toEqual(one.continuation.slice(0, sure));
      const logits = floats(one.logits);
      const most = logits.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
      const sum = Math.log(logits.reduce((total, value) => total + Math.exp(value), 0));
      for (const { id, logprob } of choices[0]!.logprobs![0]!.top)
        expect(Math.abs(logprob - (logits[id]! - sum))).toBeLessThan(2e-4 * most);
    },
  );
});

const open = (name: string, maxBatchTokens: number, prefixCache = true): Promise<Engine> => {
  const options = { device: 'cpu', worker: false, threads: 2, maxRows: 4 } as const;
  return Engine.load(join(ROOT, name), { ...options, maxBatchTokens, prefixCache });
};

async function ask(engine: Engine, messages: { role: string; content: unknown }[]) {
  const sampling = {
    temperature: 0,
    maxTokens: 12,
    ignoreEos: true,
    logprobs: true,
    topLogprobs: 5,
  } as const;
  const { choices, usage } = await engine.chat({ messages, ...sampling }).result;
  return { bits: choices[0]!.logprobs, cached: usage.cachedTokens };
}

describe('pictures', () => {
  it.each([
    // Tokens of a picture see each other.
    ['gemma3', 1, 41],
    // Tiles of several sizes, layers that convolve.
    ['lfm2-vl', 16, 23],
  ])('of %s give the same bits wherever prompts are cut, alone and in company', async (name, ...chunks) => {
    const [first, , one] = casesOf(name) as [Case, Case, Case];
    const bits = async (maxBatchTokens: number, prefixCache?: boolean): Promise<unknown[]> => {
      await using engine = await open(name, maxBatchTokens, prefixCache);
      const [two, other] = [await messagesOf(one), await messagesOf(first)];
      const together = await Promise.all([ask(engine, two), ask(engine, other), ask(engine, two)]);
      return [...together, await ask(engine, two)].map((answer) => answer.bits);
    };
    const [whole, other, ...again] = await bits(256, false);
    expect(again).toEqual([whole, whole]);
    // Of tokens that see each other a step has at least two pictures and a token for each row.
    for (const maxBatchTokens of chunks)
      expect(await bits(maxBatchTokens)).toEqual([whole, other, whole, whole]);
  });
});

describe('pictures whose tokens see each other', () => {
  const [, , one] = casesOf('gemma3') as [Case, Case, Case];

  it('give the same bits where what is cached ends within one', async () => {
    const [{ role, content }] = (await messagesOf(one)) as [{ role: string; content: object[] }];
    const asked = [{ role, content: [...content.slice(0, 2), { type: 'text', text: 'What is it?' }] }];
    await using fresh = await open('gemma3', 64);
    const cold = await ask(fresh, asked);
    await using engine = await open('gemma3', 64);
    await ask(engine, [{ role, content }]);
    const warm = await ask(engine, asked);
    // Its tokens are those from 12 to 28.
    expect([cold.cached, warm.cached]).toEqual([0, 16]);
    expect(warm.bits).toEqual(cold.bits);
  });
});
