import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { weightsFingerprint } from './fingerprint.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-weights-'));
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

const FILE = 'model.safetensors';
const DATE = new Date('2026-01-02T03:04:05Z');

async function put(name: string, data: string | Uint8Array, date = DATE): Promise<void> {
  await writeFile(join(folder, name), data);
  await utimes(join(folder, name), date, date);
}

it('is the same for the same files, and another one for any other', async () => {
  const weights = new Uint8Array(100_000).map((_, i) => i & 0xff);
  await put('config.json', '{"model_type":"llama"}');
  await put(FILE, weights);
  const first = await weightsFingerprint(folder);
  expect(first).toMatch(/^[0-9a-f]{32}$/);
  expect(await weightsFingerprint(folder)).toBe(first);
  await put('README.md', 'words');
  expect(await weightsFingerprint(folder)).toBe(first);

  const seen = new Set([first]);
  const differs = async (): Promise<void> => {
    const other = await weightsFingerprint(folder);
    expect(seen.has(other)).toBe(false);
    seen.add(other);
  };
  await put('config.json', '{"model_type":"qwen3"}');
  await differs();
  await put(FILE, weights, new Date('2026-01-02T03:04:06Z'));
  await differs();
  await put(FILE, weights.with(0, 9));
  await differs();
  await put(FILE, weights.with(99_999, 9));
  await differs();
  await put(FILE, weights.subarray(1));
  await differs();
  await put('model-2.safetensors', 'small');
  await differs();
});
