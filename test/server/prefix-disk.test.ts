/** The prefix cache on disk as clients see it: a server that starts again goes on from where the last one was. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { question, serveDemo, untilIdle } from './serving.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-disk-server-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const LONG = `${'You answer questions about the seas of the world, briefly and truly. '.repeat(12)}`;
const messages = [{ role: 'system', content: LONG }, ...question('What is the capital of Japan?')];

it('a second server hits what the first one wrote, and says so', async () => {
  const said: { content: unknown; cached: number }[] = [];
  for (let round = 0; round < 2; round++) {
    const serving = await serveDemo({ maxRows: 4, maxContext: 1024, prefixCacheDir: folder });
    const response = await serving.post('/v1/chat/completions', { messages, temperature: 0, max_tokens: 16 });
    const { choices, usage } = (await response.json()) as {
      choices: { message: unknown }[];
      usage: { prompt_tokens_details: { cached_tokens: number } };
    };
    said.push({ content: choices[0]!.message, cached: usage.prompt_tokens_details.cached_tokens });
    await untilIdle(serving.engine);
    const cache = async (method = 'GET'): Promise<{ disk: Record<string, unknown> }> =>
      (await fetch(`${serving.url}/v1/cache`, { method })).json() as never;
    const metrics = await (await fetch(`${serving.url}/metrics`)).text();
    const metric = (name: string): number => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(metrics)![1]);
    const { disk } = await cache();
    expect(disk).toMatchObject({ corrupt: 0, foreign: 0, dropped: 0, reading: true, writing: true });
    if (round === 1) {
      expect(disk.restored_tokens).toBeGreaterThan(100);
      expect(metric('kvant_prefix_disk_restored_tokens_total')).toBe(disk.restored_tokens);
      expect(metric('kvant_prefix_disk_files')).toBe(disk.files);
      expect(metric('kvant_prefix_disk_writing')).toBe(1);
      expect((await cache('DELETE')).disk).toMatchObject({ files: 0, bytes: 0 });
    }
    await serving.close();
  }
  expect(said[0]!.cached).toBe(0);
  expect(said[1]!.cached).toBeGreaterThan(100);
  expect(said[1]!.content).toEqual(said[0]!.content);
});

it('without a folder there is no disk to speak of', async () => {
  const serving = await serveDemo({ maxRows: 2, maxContext: 256 });
  const body = (await (await fetch(`${serving.url}/v1/cache`)).json()) as { disk: unknown };
  expect(body.disk).toBeNull();
  await serving.close();
});
