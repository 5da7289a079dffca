/** Families that see, each a tiny model of transformers (scripts/fixtures/vision_families.py): pixels, features, prompts, answers. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { Engine } from '../../src/engine/engine.js';
import { type DeviceSpec, kernelDevices } from '../devices/devices.js';
import { everyCase } from '../setup/every-case.js';
import {
  type Case,
  casesOf,
  checkAnswer,
  checkSlices,
  checkTower,
  messagesOf,
  ROOT,
} from './vision-fixtures.js';

const NAMES = readdirSync(ROOT);

describe.each(kernelDevices)('towers of families on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(NAMES)('%s gives the pixels and the features of the reference', async (name) => {
    // Its projector is quantised: what goes in is rounded in default precision.
    const rounded = name === 'mlx-smolvlm-4bit' && spec.precision !== 'reference';
    await checkTower(spec, device, join(ROOT, name), casesOf(name), rounded ? 1e-2 : undefined);
  });

  it('qwen2.5-vl gives the same bits in slices, of what was made at load', async () => {
    await checkSlices(device, join(ROOT, 'qwen2.5-vl'), casesOf('qwen2.5-vl').at(-1)!, 63);
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
      await checkAnswer(engine, one);
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
    // Tokens that are none of the tower's rows.
    ['llava-next', 16, 37],
    // Three axes in pairs of neighbours.
    ['glm4v', 16, 37],
    // Windows that cut the picture.
    ['muse-glimmer', 16, 37],
    // Inputs of layers' own, shared keys and values.
    ['gemma4-e', 16, 41],
  ])(
    'of %s give the same bits wherever prompts are cut, alone and in company',
    { timeout: 300_000 },
    async (name, ...chunks) => {
      const all = casesOf(name);
      const [first, one] = [all[0]!, all.at(-1)!];
      const bits = async (maxBatchTokens: number, prefixCache?: boolean): Promise<unknown[]> => {
        await using engine = await open(name, maxBatchTokens, prefixCache);
        const [two, other] = [messagesOf(one), messagesOf(first)];
        const together = await Promise.all([ask(engine, two), ask(engine, other), ask(engine, two)]);
        return [...together, await ask(engine, two)].map((answer) => answer.bits);
      };
      const [whole, other, ...again] = await bits(256, false);
      expect(again).toEqual([whole, whole]);
      // Of tokens that see each other a step has at least two pictures and a token for each row.
      for (const maxBatchTokens of chunks)
        expect(await bits(maxBatchTokens)).toEqual([whole, other, whole, whole]);
      if (!everyCase) return;
      for (let chunk = 16; chunk <= one.ids.length; chunk++) {
        await using engine = await open(name, chunk, false);
        expect((await ask(engine, messagesOf(one))).bits, `chunks of ${chunk}`).toEqual(whole);
      }
    },
  );
});

describe('pictures whose tokens see each other', () => {
  const [, , one] = casesOf('gemma3') as [Case, Case, Case];

  it('give the same bits where what is cached ends within one', async () => {
    const [{ role, content }] = messagesOf(one) as [{ role: string; content: object[] }];
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
