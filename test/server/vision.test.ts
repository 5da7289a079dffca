/** Pictures over OpenAI's protocol, with OpenAI's own client. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import OpenAI from 'openai';
import { pino } from 'pino';
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { listen, type RunningServer } from '../../src/server/index.js';
import { readPacked } from '../fixtures/read-packed.js';
import { untilIdle } from './serving.js';

interface Case {
  readonly images: readonly { readonly png_base64: string }[];
  readonly question: string;
  readonly continuation_text: string;
}
const { cases } = readPacked(new URL('../fixtures/demo-vision.json.br', import.meta.url)) as {
  cases: readonly Case[];
};
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

  it.each([false, true])('may come sixteen at once, and a third of them go: streamed %s', async (stream) => {
    let gone = 0;
    const runs = Array.from({ length: 16 }, async (_, i) => {
      const one = seeing[i % seeing.length]!;
      const controller = new AbortController();
      const { signal } = controller;
      const asked = ask(urlOf(one), one.question);
      // Of those that go some do before they are read, some while they are, streamed ones behind some tokens.
      const goes = i % 3 === 2;
      if (goes && !(stream && i % 2 === 0)) setTimeout(() => controller.abort(), 4 * (i - 2));
      let text = '';
      try {
        if (stream) {
          for await (const { choices } of await client.chat.completions.create(
            { ...asked, stream },
            { signal },
          )) {
            text += choices[0]?.delta.content ?? '';
            if (goes && text !== '') controller.abort();
          }
        } else text = (await client.chat.completions.create(asked, { signal })).choices[0]!.message.content!;
      } catch (error) {
        if (!goes) throw error;
      }
      if (signal.aborted) gone++;
      if (goes) expect(one.continuation_text.startsWith(text)).toBe(true);
      else expect(text).toBe(one.continuation_text);
    });
    await Promise.all(runs);
    expect(gone).toBeGreaterThan(0);
    const { features } = await untilIdle(engine);
    expect(features).toMatchObject({ references: 0 });
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

  it('are counted, told in the size that the model saw, and bounded by the request', async () => {
    const [one] = seeing as [Case];
    const given = ask(urlOf(one), one.question);
    const answer = async (more: object) => {
      const body = { ...given, ...more } as typeof given;
      const { usage, ...rest } = await client.chat.completions.create(body);
      const details = usage!.prompt_tokens_details as { image_tokens?: number };
      return { images: (rest as unknown as Extra).kvant.images, tokens: details.image_tokens };
    };
    interface Extra {
      readonly kvant: { readonly images: unknown };
    }
    const own = { images: [{ width: 112, height: 112, tokens: 16 }], tokens: 16 };
    expect(await answer({})).toEqual(own);
    const small = { images: [{ width: 56, height: 56, tokens: 4 }], tokens: 4 };
    expect(await answer({ mm_processor_kwargs: { max_pixels: 4000 } })).toEqual(small);
    const size = { shortest_edge: 20_000, longest_edge: 30_000 };
    const large = { images: [{ width: 168, height: 168, tokens: 36 }], tokens: 36 };
    expect(await answer({ mm_processor_kwargs: { size } })).toEqual(large);
    expect(await answer({ mm_processor_kwargs: {} })).toEqual(own);
    const text = { ...given, messages: [{ role: 'user' as const, content: 'Who are you?' }] };
    const plain = await client.chat.completions.create(text);
    expect(plain.usage!.prompt_tokens_details).toEqual({ cached_tokens: expect.any(Number) });
    expect((plain as unknown as Extra).kvant.images).toBeUndefined();
    for (const [kwargs, param] of [
      [{ max_pixels: 0 }, 'mm_processor_kwargs.max_pixels'],
      [{ max_pixels: 2 ** 40 }, 'mm_processor_kwargs.max_pixels'],
      [{ min_pixels: 5000, max_pixels: 4000 }, 'mm_processor_kwargs.min_pixels'],
      [{ fps: 2 }, 'mm_processor_kwargs.fps'],
      [{ size: { height: 2 } }, 'mm_processor_kwargs.size.height'],
      [{ min_pixels: 5000, size: { shortest_edge: 4000 } }, 'mm_processor_kwargs.size.shortest_edge'],
      [[], 'mm_processor_kwargs'],
    ] as const) {
      const body = { ...given, mm_processor_kwargs: kwargs } as typeof given;
      const error = await client.chat.completions.create(body).catch((reason: unknown) => reason);
      expect(error).toMatchObject({ status: 400, param });
    }
  });

  it('may be what a tool answers with', async () => {
    const [one] = seeing as [Case];
    const call = { id: 'a', type: 'function' as const, function: { name: 'look', arguments: '{}' } };
    const [{ content }] = ask(urlOf(one), one.question).messages as unknown as [{ content: object[] }];
    const messages = [
      { role: 'user', content: 'Look.' },
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'a', content },
    ];
    const { usage } = await client.chat.completions.create({
      ...ask(urlOf(one), ''),
      messages: messages as never,
    });
    expect(usage!.prompt_tokens_details).toMatchObject({ image_tokens: 16 });
  });

  it('and what is kept of them are counted in the metrics', async () => {
    await untilIdle(engine);
    const text = await (await fetch(`${server.url}/metrics`)).text();
    const value = (name: string): number => Number(new RegExp(`^kvant_${name} (.*)$`, 'm').exec(text)?.[1]);
    const { features } = await engine.stats();
    const { encoded, hits, bytes, maxBytes, entries, references, rows, rowsUsed } = features!;
    expect(encoded).toBeGreaterThan(1);
    expect([value('images_encoded_total'), value('image_cache_hits_total')]).toEqual([encoded, hits]);
    expect([value('image_cache_bytes'), value('image_cache_max_bytes')]).toEqual([bytes, maxBytes]);
    expect(bytes / rowsUsed).toBe(maxBytes / rows);
    expect(value('image_cache_entries')).toBe(entries);
    expect([references, value('image_cache_references')]).toEqual([0, 0]);
  });

  it('that cannot be read are refused with the reason and what mends it, and nobody else is hurt', async () => {
    const png = Buffer.from(seeing[0]!.images[0]!.png_base64, 'base64');
    const data = (bytes: Buffer | string, label = 'image/png'): string =>
      `data:${label};base64,${Buffer.from(bytes as string).toString('base64')}`;
    const sized = (width: number, height: number): string => {
      const bytes = Buffer.from(png);
      bytes.writeUInt32BE(width, 16);
      bytes.writeUInt32BE(height, 20);
      return data(bytes);
    };
    const damaged = Buffer.from(png);
    damaged.fill(0x5a, png.length >> 1, png.length - 20);
    const svg = '<svg xmlns="http://www.w3.org/2000/svg"/>';
    const cases: readonly (readonly [url: string, status: number, code: string])[] = [
      [data(png.subarray(0, 20)), 400, 'invalid_image'],
      [data(png.subarray(0, png.length >> 1)), 400, 'invalid_image'],
      [data(damaged), 400, 'invalid_image'],
      [sized(0, 10), 400, 'invalid_image'],
      [sized(5000, 10), 400, 'invalid_image'],
      [sized(10, 5000), 400, 'invalid_image'],
      [sized(30_000, 30_000), 413, 'image_too_large'],
      [data('BM, a bitmap'), 415, 'unsupported_image'],
      [data(svg), 415, 'unsupported_image'],
      [data(`\ufeff${svg}`, 'image/svg+xml'), 415, 'unsupported_image'],
      [data(png, 'text/html'), 415, 'unsupported_image'],
      [data(png, 'image/jpeg'), 400, 'invalid_image_url'],
      [`data:image/png,${png.toString('base64')}`, 400, 'invalid_image_url'],
      [data(png).replace(/.{76}/, '$&\n'), 400, 'invalid_image_url'],
      ['data:image/png;base64,a', 400, 'invalid_image_url'],
      ['data:image/png;base64,', 400, 'invalid_image_url'],
      ['', 400, 'invalid_image_url'],
      ['a.png', 400, 'invalid_image_url'],
      ['//127.0.0.1/a.png', 400, 'invalid_image_url'],
      ['ftp://example.com/a.png', 400, 'invalid_image_url'],
      ['http://me:secret@127.0.0.1/a.png', 400, 'invalid_image_url'],
      ['https://localhost/a.png', 400, 'image_url_not_allowed'],
      ['http://127.1/a.png', 400, 'image_url_not_allowed'],
      ['http://2130706433/a.png', 400, 'image_url_not_allowed'],
      ['http://0177.0.0.1/a.png', 400, 'image_url_not_allowed'],
      ['http://[::ffff:7f00:1]/a.png', 400, 'image_url_not_allowed'],
      ['http://169.254.169.254/latest', 400, 'image_url_not_allowed'],
    ];
    const text = { model: 'demo-vision', prompt: 'Once', max_tokens: 100, temperature: 0 };
    const alone = (await client.completions.create(text)).choices[0]!.text;
    const beside = client.completions.create({ ...text, stream: true }).then(async (stream) => {
      let all = '';
      for await (const { choices } of stream) all += choices[0]?.text ?? '';
      return all;
    });
    const refused = async (messages: unknown): Promise<unknown> => {
      const body = JSON.stringify({ messages });
      const response = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body });
      const { error } = (await response.json()) as { error: { message: string; fix: string } };
      expect(error.message).toContain(error.fix);
      return { status: response.status, ...error };
    };
    const before = (await engine.stats()).features!.encoded;
    for (const [url, status, code] of cases) {
      const param = 'messages[0].content[0].image_url.url';
      expect(await refused(ask(url, 'What?').messages), url).toMatchObject({ status, code, param });
    }
    const part = (image_url: unknown): unknown => [
      { role: 'user', content: [{ type: 'image_url', image_url }] },
    ];
    const field = 'messages[0].content[0].image_url';
    for (const [messages, param] of [
      [[{ role: 'user', content: [{ type: 'image', image: '/etc/passwd' }] }], 'messages[0].content[0]'],
      [part(null), field],
      ...[null, 5, 'text', [], { text: 'no type' }, { type: null }].map(
        (odd) =>
          [
            [{ role: 'user', content: [{ type: 'text', text: 'x' }, odd] }],
            `messages[0].content[1]${typeof odd === 'object' && odd !== null && !Array.isArray(odd) ? '.type' : ''}`,
          ] as const,
      ),
      [part({ url: 5 }), field],
      [part({ url: data(png), detail: 'ultra' }), `${field}.detail`],
      [part({ url: data(png), format: 'png' }), `${field}.format`],
      [
        [
          {
            role: 'user',
            content: Array.from({ length: 3000 }, () => ({ type: 'image_url', image_url: { url: '' } })),
          },
        ],
        'messages[0].content[16].image_url.url',
      ],
    ] as const)
      expect(await refused(messages), param).toMatchObject({ status: 400, param });
    expect(await beside).toBe(alone);
    expect((await engine.stats()).features!.encoded).toBe(before);
  });
});
