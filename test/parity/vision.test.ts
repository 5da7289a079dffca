/** Towers beside transformers: scripts/fixtures/vision.py. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { VisionEncoder } from '../../src/engine/vision/encoder.js';
import type { PatchedImage } from '../../src/engine/vision/patched-image.js';
import { decodeImage } from '../../src/media/decode.js';
import { readProcessor } from '../../src/media/read-processor.js';
import { loadModel } from '../../src/models/load.js';
import { openModel } from '../../src/models/open.js';
import { type DeviceSpec, featureBound, kernelDevices } from '../devices/devices.js';
import { relativeError } from '../devices/numbers.js';
import { readPacked } from '../fixtures/read-packed.js';

const ROOT = join(import.meta.dirname, '../fixtures/vision');

/** Of all cases together, and more. */
const MOST_TOKENS = 128;

interface Case {
  readonly images: readonly string[];
  readonly grids: readonly (readonly [number, number])[];
  readonly features: readonly string[];
}

function floats(base64: string): Float32Array {
  const bytes = Uint8Array.from(Buffer.from(base64, 'base64'));
  return new Float32Array(bytes.buffer);
}

function read(name: string, file: string): unknown {
  return JSON.parse(readFileSync(join(ROOT, name, file), 'utf8'));
}

async function patched(name: string, { images, grids }: Case): Promise<PatchedImage[]> {
  const config = read(name, 'preprocessor_config.json') as Record<string, unknown>;
  const processor = readProcessor(config, { patchSize: 14, mergeSize: 2 });
  return Promise.all(
    images.map(async (png, i) => {
      const image = await decodeImage(Buffer.from(png, 'base64'));
      const grid = processor.grid(image.width, image.height);
      expect([grid.rows, grid.cols]).toEqual(grids[i]);
      return { grid, patches: processor.patches(image) };
    }),
  );
}

describe.each(kernelDevices)('towers on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(spec.slow ? ['qwen2.5-vl'] : ['qwen2-vl', 'qwen2.5-vl'])(
    '%s gives the features of the reference',
    async (name) => {
      const { cases } = readPacked(join(ROOT, name, 'expected.json.br')) as { cases: readonly Case[] };
      await using opened = await openModel(join(ROOT, name));
      expect(opened.definition.facts.modalities).toEqual(['text', 'image']);
      const model = await loadModel(opened.source, opened.definition, device);
      const encoder = new VisionEncoder(device, model);
      try {
        const images = await Promise.all(cases.map((one) => patched(name, one)));
        for (const make of await encoder.plansFor(MOST_TOKENS)) await make();
        const { plans, buffers } = device.stats();
        const apart: Float32Array[][] = [];
        for (const own of images) apart.push(await encoder.encode(own));
        cases.forEach(({ features }, c) => {
          features.forEach((want, i) => {
            const got = apart[c]![i]!;
            expect(got.length).toBe(floats(want).length);
            expect(relativeError(got, floats(want))).toBeLessThan(featureBound(spec));
          });
        });
        // All in one launch, in another order: each has the bits that it has alone.
        const together = await encoder.encode(images.flat().reverse());
        if (spec.bitwise) expect(together.reverse()).toEqual(apart.flat());
        // In slices between which others may run: the same bits.
        let turns = 0;
        const pace = { stepMs: 1e-6, targetMs: 0, turn: async () => void turns++ };
        const sliced = await encoder.encode(images[0]!, pace);
        expect(sliced).toEqual(apart[0]);
        expect(turns).toBe(63);
        // All was there from the beginning.
        expect(device.stats()).toMatchObject({ plans, buffers });
      } finally {
        await encoder.dispose();
      }
    },
  );
});
