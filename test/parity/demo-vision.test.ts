/**
 * demo-vision against transformers (scripts/fixtures/demo_vision.py): text, pictures of four sizes. The logits of each prompt's last
 * token, the greedy continuation and the log-probability of each of its tokens.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { FeatureSlab } from '../../src/device/feature-slab.js';
import { VisionEncoder } from '../../src/engine/vision/encoder.js';
import { type PromptPicture, PromptPictures, SequencePictures } from '../../src/engine/vision/pictures.js';
import { defaultKvFormat } from '../../src/kv/policy.js';
import { decodeImage } from '../../src/media/decode.js';
import { readProcessor } from '../../src/media/read-processor.js';
import type { Model } from '../../src/models/load.js';
import { towerInput } from '../../src/models/vision/tower.js';
import { type DeviceSpec, devices } from '../devices/devices.js';
import { type Case, cases, MODEL } from '../engine/vision-cases.js';
import { everyCase } from '../setup/every-case.js';
import { decidedTokens, largestDifference, loadFolder, Runner } from './runner.js';

const IMAGE_TOKEN = 4088;
/** Of all pictures of a prompt. */
const MOST_ROWS = 128;
const LONGEST = { context: 160, chunk: 96 };

const config = JSON.parse(readFileSync(join(MODEL, 'preprocessor_config.json'), 'utf8')) as object;

/** Where the pictures of a prompt stand, and their patches. */
async function picturesOf({ images, prompt_ids: ids }: Case, { vision }: Model): Promise<PromptPicture[]> {
  const processor = readProcessor(config as Record<string, unknown>, towerInput(vision!));
  const placed: PromptPicture[] = [];
  for (const { png_base64 } of images) {
    const image = await decodeImage(Buffer.from(png_base64, 'base64'));
    const grid = processor.grid(image.width, image.height);
    const tokens = (grid.rows * grid.cols) / vision!.tower.merged;
    const before = placed.at(-1);
    const first = ids.indexOf(IMAGE_TOKEN, before === undefined ? 0 : before.first + before.tokens);
    expect(ids.slice(first, first + tokens).every((id) => id === IMAGE_TOKEN)).toBe(true);
    placed.push({ digest: new Uint32Array(8), grid, patches: processor.patches(image), first, tokens });
  }
  expect(placed.reduce((sum, { tokens }) => sum + tokens, 0)).toBe(
    ids.filter((id) => id === IMAGE_TOKEN).length,
  );
  return placed;
}

/** The model with what it sees with. */
class Seer implements AsyncDisposable {
  readonly #model: Model;
  readonly #encoder: VisionEncoder;
  readonly #slab: FeatureSlab;
  readonly #runner: Runner;

  private constructor(model: Model, encoder: VisionEncoder, slab: FeatureSlab, runner: Runner) {
    this.#model = model;
    this.#encoder = encoder;
    this.#slab = slab;
    this.#runner = runner;
  }

  static async create(device: Device): Promise<Seer> {
    const model = await loadFolder(MODEL, device, { kvFormat: defaultKvFormat(device.info), rotary: true });
    const slab = device.createFeatureSlab({ rows: MOST_ROWS, cols: model.vision!.tower.width });
    const runner = await Runner.create(device, model, { ...LONGEST, features: slab });
    return new Seer(model, new VisionEncoder(device, model), slab, runner);
  }

  async generate(one: Case, count: number, chunk = LONGEST.chunk) {
    const placed = await picturesOf(one, this.#model);
    const pictures = new SequencePictures(new PromptPictures(placed, this.#model.vision!.mergeSize));
    let row = 0;
    for (const { tokens } of placed) {
      pictures.rows.push(row);
      row += tokens;
    }
    await this.#encoder.encodeTo(placed, this.#slab, pictures.rows);
    return await this.#runner.generate(one.prompt_ids, count, chunk, placed.length === 0 ? null : pictures);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#runner[Symbol.asyncDispose]();
    await this.#encoder.dispose();
    this.#slab.dispose();
  }
}

function logProbability(logits: Float32Array, id: number): number {
  const max = logits.reduce((a, b) => Math.max(a, b));
  const sum = logits.reduce((total, logit) => total + Math.exp(logit - max), 0);
  return logits[id]! - max - Math.log(sum);
}

// In software `webgpu default` has the kernels of `reference`, which is held to more.
const here = devices.filter(({ slow, name }) => everyCase || !slow || name !== 'webgpu default');

describe.each(here)('demo-vision on $name', (spec: DeviceSpec) => {
  if (spec.slow) vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });
  const bound = spec.precision === 'reference' ? 1e-3 : 0.1;
  let device: Device;
  let seer: Seer;
  beforeAll(async () => {
    device = await spec.create();
    seer = await Seer.create(device);
  });
  afterAll(async () => {
    await seer?.[Symbol.asyncDispose]();
    await device?.[Symbol.asyncDispose]();
  });

  // Of 16 tokens, and of a picture that is resized.
  const some = spec.slow && !everyCase ? [cases[0]!, cases[2]!] : cases;
  it.each(some.map((one) => [`${one.prompt_ids.length} tokens: ${one.question}`, one] as const))(
    'answers %s',
    async (_, one) => {
      const decided = decidedTokens(one.continuation_ids, one.margins, bound);
      expect(decided.length).toBe(one.continuation_ids.length);
      const most = spec.slow ? 3 : decided.length;
      const { tokens, logits } = await seer.generate(one, most);
      for (const [id, logit] of one.top20)
        expect(Math.abs(logits[0]![id]! - logit), `logit ${id}`).toBeLessThan(bound);
      expect(tokens).toEqual(decided.slice(0, most));
      for (const [i, token] of tokens.entries())
        expect(Math.abs(logProbability(logits[i]!, token) - one.logprobs[i]!), `token ${i}`).toBeLessThan(
          2 * bound,
        );
    },
  );

  it('answers the same when the prompt is cut within its picture', async () => {
    const [one] = cases as [Case];
    const [whole] = (await seer.generate(one, 1)).logits as [Float32Array];
    const [cut] = (await seer.generate(one, 1, 19)).logits as [Float32Array];
    if (spec.bitwise) expect(cut).toEqual(whole);
    else expect(largestDifference(cut, whole)).toBeLessThan(bound);
  });
});
