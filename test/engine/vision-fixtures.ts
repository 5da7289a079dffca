/** The fixtures of scripts/fixtures/vision_families.py: pictures, prompts, and what the reference makes of them. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { Engine } from '../../src/engine/engine.js';
import { VisionEncoder } from '../../src/engine/vision/encoder.js';
import type { PatchedImage } from '../../src/engine/vision/patched-image.js';
import { readProcessor } from '../../src/media/read-processor.js';
import { loadModel } from '../../src/models/load.js';
import { openModel } from '../../src/models/open.js';
import { towerInput, type VisionDefinition } from '../../src/models/vision/tower.js';
import { type DeviceSpec, featureBound } from '../devices/devices.js';
import { relativeError } from '../devices/numbers.js';
import { readPacked } from '../fixtures/read-packed.js';
import { picture } from '../setup/picture.js';
import { toPng } from '../setup/png.js';

export const ROOT = join(import.meta.dirname, '../fixtures/vision-families');

export interface Case {
  readonly sizes: readonly (readonly [number, number])[];
  readonly pixels: readonly string[];
  readonly features: readonly string[];
  readonly ids: readonly number[];
  readonly logits: string;
  readonly continuation: readonly number[];
  readonly margins: readonly number[];
}

export const readJson = (folder: string, file: string): Record<string, unknown> =>
  JSON.parse(readFileSync(join(folder, file), 'utf8')) as Record<string, unknown>;
export const casesOf = (name: string): readonly Case[] =>
  (readPacked(join(ROOT, name, 'expected.json.br')) as { readonly cases: readonly Case[] }).cases;

/** Numbers whose first bytes stand together, then their second ones, and so on. */
export function floats(base64: string): Float32Array {
  const planes = Buffer.from(base64, 'base64');
  const out = new Float32Array(planes.length / 4);
  const bytes = new Uint8Array(out.buffer);
  planes.forEach((byte, i) => {
    bytes[(i % out.length) * 4 + Math.floor(i / out.length)] = byte;
  });
  return out;
}

export const pictures = ({ sizes }: Case) => sizes.map(([width, height], i) => picture(width, height, i + 3));

export function messagesOf(one: Case) {
  const content: unknown[] = [{ type: 'text', text: 'See ' }];
  for (const [i, { width, height, pixels }] of pictures(one).entries()) {
    const image = toPng(width, height, pixels);
    content.push({ type: 'image', image }, { type: 'text', text: `no. ${i} and\n\nthe rest` });
  }
  return [{ role: 'user', content }];
}

/** The ids of the prompt, what is likeliest behind it and the greedy tokens are those of the reference. */
export async function checkAnswer(engine: Engine, one: Case): Promise<void> {
  const request = { temperature: 0, maxTokens: 16, ignoreEos: true, logprobs: true, topLogprobs: 20 };
  const answer = engine.chat({ messages: messagesOf(one), ...request });
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
}

/** The pictures' patches, which are the reference's to the last bit. */
function patched(folder: string, vision: VisionDefinition, one: Case): PatchedImage[] {
  const config = vision.processor ?? readJson(folder, 'preprocessor_config.json');
  const given = vision.processorFor?.(config, one.sizes.length) ?? config;
  const processor = readProcessor(given, towerInput(vision));
  return pictures(one).map((image, i) => {
    const patches = processor.patches(image);
    const hash = createHash('sha256').update(new Uint8Array(patches.buffer)).digest('hex');
    expect(hash).toBe(one.pixels[i]);
    return { grid: processor.grid(image.width, image.height), patches };
  });
}

/** In slices between which others may run: the same bits, in so many turns. All that it needs is made at load. */
export async function checkSlices(device: Device, folder: string, one: Case, turns: number): Promise<void> {
  await using opened = await openModel(folder);
  const model = await loadModel(opened.source, opened.definition, device);
  const encoder = new VisionEncoder(device, model);
  try {
    const images = patched(folder, opened.definition.vision!, one);
    for (const make of await encoder.plansFor(128)) await make();
    const { plans, buffers } = device.stats();
    const whole = await encoder.encode(images);
    let taken = 0;
    const pace = { stepMs: 1e-6, targetMs: 0, turn: async () => void taken++ };
    expect(await encoder.encode(images, pace)).toEqual(whole);
    expect(taken).toBe(turns);
    expect(device.stats()).toMatchObject({ plans, buffers });
  } finally {
    await encoder.dispose();
  }
}

/** Of the model in a folder: every bit of the pixels, and features within the device's bound; of several pictures at once too. */
export async function checkTower(
  spec: DeviceSpec,
  device: Device,
  folder: string,
  all: readonly Case[],
  bound = featureBound(spec, folder),
): Promise<void> {
  await using opened = await openModel(folder);
  const { vision } = opened.definition;
  const model = await loadModel(opened.source, opened.definition, device);
  const encoder = new VisionEncoder(device, model);
  try {
    const cases = spec.slow ? all.slice(-1) : all;
    const apart: Float32Array[] = [];
    const made = cases.flatMap((one) => patched(folder, vision!, one));
    for (const one of made) apart.push(...(await encoder.encode([one])));
    cases
      .flatMap(({ features }) => features)
      .forEach((want, i) => {
        expect(apart[i]!.length).toBe(floats(want).length);
        expect(relativeError(apart[i]!, floats(want))).toBeLessThan(bound);
      });
    if (!spec.bitwise) return;
    // All in one launch, in another order: each has the bits that it has alone.
    const together = await encoder.encode(made.toReversed());
    expect(together.reverse()).toEqual(apart);
  } finally {
    await encoder.dispose();
  }
}
