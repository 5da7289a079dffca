/** Pictures by HTTP, with OpenAI's own client: streamed, sixteen at once, a third of them given up. What they leave in each thread of the server. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import OpenAI from 'openai';
import sharp from 'sharp';
import { expect, it } from 'vitest';
import { kvantServe } from '../cli/kvant.js';
import { MODEL } from '../engine/vision-cases.js';
import { everyCase } from '../setup/every-case.js';

const AT_ONCE = 16;
// The windows after which all is counted: five of them, or four.
const [REQUESTS, WINDOW] = everyCase ? [2000, 400] : [128, 32];
const SIDE = 112;
/** The server's, the engine's, that of large bodies, and that of pictures. */
const THREADS = 4;

interface Sample {
  readonly asked: number;
  readonly heapUsed: number;
  readonly arrayBuffers: number;
}

it(`${REQUESTS} requests by HTTP leave the memory of every thread flat`, async () => {
  // Noise: in base64 each has 50 kB, in patches 300 kB.
  const urls = await Promise.all(
    Array.from({ length: 48 }, async () => {
      const raw = { width: SIDE, height: SIDE, channels: 3 } as const;
      const png = await sharp(randomBytes(SIDE * SIDE * 3), { raw })
        .png()
        .toBuffer();
      return `data:image/png;base64,${png.toString('base64')}`;
    }),
  );
  const folder = mkdtempSync(join(tmpdir(), 'kvant-soak-'));
  const log = join(folder, 'memory');
  writeFileSync(log, '');
  writeFileSync(`${log}.asked`, '0');
  const preload = fileURLToPath(new URL('thread-memory.cjs', import.meta.url));
  const serving = await kvantServe(
    // Room for 24 pictures of 16 tokens: they push each other out.
    [MODEL, '--device', 'cpu', '--threads', '1', '--max-context', '256', '--no-prefix-cache'].concat(
      '--image-cache-bytes',
      `${24 * 16 * 256 * 4}`,
    ),
    { THREAD_MEMORY: log, NODE_OPTIONS: `--require ${JSON.stringify(preload)}` },
  );
  try {
    const client = new OpenAI({ baseURL: `${serving.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const model = (await client.models.list()).data[0]!.id;
    const ask = async (i: number): Promise<void> => {
      const refused = i % 32 === 7;
      const url = refused ? 'data:image/png;base64,AAAA' : urls[(i * 7) % urls.length]!;
      const asked = client.chat.completions.create({
        model,
        max_tokens: i % 3 === 2 ? 4 : 2,
        stream: true,
        messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }],
      });
      if (refused) await expect(asked).rejects.toMatchObject({ status: 415, code: 'unsupported_image' });
      else for await (const _ of await asked) if (i % 3 === 2) break;
    };
    const metrics = async (): Promise<(name: string) => number> => {
      const text = await (await fetch(`${serving.url}/metrics`)).text();
      return (name) => Number(new RegExp(`^kvant_${name} (.*)$`, 'm').exec(text)?.[1]);
    };
    const pause = () => new Promise((resolve) => setTimeout(resolve, 50));
    /** What each thread has in use once nothing runs any more. */
    const inUse = async (asked: number): Promise<readonly Sample[]> => {
      for (;;) {
        const value = await metrics();
        if (value('kv_blocks_used') + value('image_cache_references') === 0) break;
        await pause();
      }
      writeFileSync(`${log}.asked`, `${asked}`);
      for (;;) {
        await pause();
        const lines = readFileSync(log, 'utf8').split('\n').slice(0, -1);
        const samples = lines.map((line) => JSON.parse(line) as Sample).filter((one) => one.asked === asked);
        if (samples.length >= THREADS) return samples;
      }
    };
    const used: { heap: number; outside: number }[] = [];
    for (let i = 0; i < REQUESTS; i += AT_ONCE) {
      await Promise.all(Array.from({ length: AT_ONCE }, (_, k) => ask(i + k)));
      if ((i + AT_ONCE) % WINDOW !== 0) continue;
      const samples = await inUse((i + AT_ONCE) / WINDOW);
      const sum = (of: 'heapUsed' | 'arrayBuffers') => samples.reduce((all, one) => all + one[of], 0);
      used.push({ heap: sum('heapUsed'), outside: sum('arrayBuffers') });
    }
    expect((await metrics())('image_cache_evictions_total')).toBeGreaterThan(REQUESTS / 5);
    // What is compiled for requests has up to 10 kB a request at first, but not in each window; a picture's text or bytes would have more.
    const growth = (of: 'heap' | 'outside') => used.slice(1).map((later, i) => later[of] - used[i]![of]);
    expect(Math.min(...growth('heap')), `grew by ${growth('heap')}`).toBeLessThan(WINDOW * 20_000);
    expect(Math.min(...growth('outside')), `grew by ${growth('outside')}`).toBeLessThan(WINDOW * 20_000);
  } finally {
    await serving.stop('SIGTERM');
    rmSync(folder, { recursive: true });
  }
});
