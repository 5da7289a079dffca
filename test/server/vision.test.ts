/** Pictures over OpenAI's protocol, with OpenAI's own client. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import OpenAI from 'openai';
import { pino } from 'pino';
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { listen, type RunningServer } from '../../src/server/index.js';
import { untilIdle } from './serving.js';

interface Case {
  readonly images: readonly { readonly png_base64: string }[];
  readonly question: string;
  readonly continuation_text: string;
}
const { cases } = JSON.parse(
  readFileSync(new URL('../fixtures/demo-vision.json', import.meta.url), 'utf8'),
) as { cases: readonly Case[] };
const seeing = cases.filter(({ images }) => images.length === 1);

describe('pictures', () => {
  let engine: Engine;
  let server: RunningServer;
  let client: OpenAI;
  let folder: string;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'kvant-pictures-'));
    engine = await Engine.load('models/demo-vision', {
      device: 'cpu',
      maxContext: 2048,
      allowMediaUrls: true,
      allowedLocalMediaPath: folder,
    });
    server = await listen({ engine, log: pino({ level: 'silent' }), port: 0 });
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  afterAll(async () => {
    await server.close(1000);
    await engine.close();
    rmSync(folder, { recursive: true });
  });

  const ask = (url: string, text: string) => ({
    model: 'demo-vision',
    temperature: 0,
    max_tokens: 40,
    messages: [
      {
        role: 'user' as const,
        content: [
          { type: 'image_url' as const, image_url: { url } },
          { type: 'text' as const, text },
        ],
      },
    ],
  });
  const urlOf = ({ images }: Case): string => `data:image/png;base64,${images[0]!.png_base64}`;
  /** The same picture in so many bytes that it is read on a thread for texts. */
  const large = async ({ images }: Case): Promise<string> => {
    const bytes = Buffer.from(images[0]!.png_base64, 'base64');
    const png = await sharp(bytes).png({ compressionLevel: 0 }).toBuffer();
    expect(png.length).toBeGreaterThan(20_000);
    return `data:image/png;base64,${png.toString('base64')}`;
  };

  it('are answered, whole and streamed, small bodies and large', async () => {
    const [one] = seeing as [Case];
    for (const url of [urlOf(one), await large(one)]) {
      const whole = await client.chat.completions.create(ask(url, one.question));
      expect(whole.choices[0]!.message.content).toBe(one.continuation_text);
      expect(whole.usage!.prompt_tokens).toBeGreaterThan(16);
      let text = '';
      const stream = await client.chat.completions.create({ ...ask(url, one.question), stream: true });
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
      expect(text).toBe(one.continuation_text);
    }
  });

  it('may come sixteen at once, and a third of them go', async () => {
    const runs = Array.from({ length: 16 }, async (_, i) => {
      const one = seeing[i % seeing.length]!;
      const controller = new AbortController();
      const answer = client.chat.completions.create(ask(urlOf(one), one.question), {
        signal: controller.signal,
      });
      if (i % 3 === 2) {
        setTimeout(() => controller.abort(), i);
        await answer.catch(() => null);
      } else expect((await answer).choices[0]!.message.content).toBe(one.continuation_text);
    });
    await Promise.all(runs);
    await untilIdle(engine);
  });

  it('may lie in the folder that is allowed, and on no network of the server’s own', async () => {
    const [one] = seeing as [Case];
    const file = join(folder, 'one.png');
    writeFileSync(file, Buffer.from(one.images[0]!.png_base64, 'base64'));
    const whole = await client.chat.completions.create(ask(pathToFileURL(file).href, one.question));
    expect(whole.choices[0]!.message.content).toBe(one.continuation_text);
    for (const url of [`${server.url}/v1/models`, 'file:///etc/passwd']) {
      const error = await client.chat.completions
        .create(ask(url, 'What?'))
        .catch((reason: unknown) => reason);
      const param = 'messages[0].content[0].image_url.url';
      expect(error).toMatchObject({ status: 400, code: 'image_url_not_allowed', param });
    }
  });

  it('are refused where they are none, with the status that says why', async () => {
    const bomb = Buffer.from(seeing[0]!.images[0]!.png_base64, 'base64');
    bomb.writeUInt32BE(30_000, 16);
    bomb.writeUInt32BE(30_000, 20);
    const data = (bytes: Buffer | string): string =>
      `data:image/png;base64,${Buffer.from(bytes as string).toString('base64')}`;
    for (const [url, status, code] of [
      [data('BM, a bitmap'), 415, 'unsupported_image'],
      [data(bomb), 413, 'image_too_large'],
      ['https://localhost/a.png', 400, 'image_url_not_allowed'],
      ['data:image/png;base64,a', 400, 'invalid_image_url'],
    ] as const) {
      const error = await client.chat.completions
        .create(ask(url, 'What?'))
        .catch((reason: unknown) => reason);
      expect(error).toMatchObject({ status, code, param: 'messages[0].content[0].image_url.url' });
    }
    const path = { role: 'user', content: [{ type: 'image', image: '/etc/passwd' }] };
    const response = await fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      body: JSON.stringify({ messages: [path] }),
    });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { param: 'messages[0].content[0]' } });
  });
});
