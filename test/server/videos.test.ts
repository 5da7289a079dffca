/** Videos over OpenAI's protocol: `video_url` parts with animated files, and what is refused of them. */
import OpenAI from 'openai';
import { pino } from 'pino';
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { listen, type RunningServer } from '../../src/server/index.js';
import { readPacked } from '../fixtures/read-packed.js';
import { picture } from '../setup/picture.js';
import { untilIdle } from './serving.js';

const { animations } = readPacked(new URL('../fixtures/videos.json.br', import.meta.url)) as {
  animations: readonly { name: string; base64: string; size: [number, number]; frames: string[] }[];
};
const fileOf = (name: string): Buffer =>
  Buffer.from(animations.find((one) => one.name === name)!.base64, 'base64');
const dataUrl = (type: string, bytes: Buffer): string => `data:${type};base64,${bytes.toString('base64')}`;

const messagesOf = (url: string, text = 'What happens?') => [
  {
    role: 'user' as const,
    content: [
      { type: 'video_url', video_url: { url } },
      { type: 'text', text },
    ],
  },
];

/** A GIF of one pixel a frame, as the format is described: header, a table of two colours, frames, the end. */
function tinyGif(frames: number, width = 1, height = 1): Buffer {
  const screen = [width & 255, width >> 8, height & 255, height >> 8, 0x80, 0, 0];
  const head = [...Buffer.from('GIF89a'), ...screen, 0, 0, 0, 255, 255, 255];
  const control = [0x21, 0xf9, 4, 0, 10, 0, 0, 0];
  const image = [0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 1, 0];
  const frame = Buffer.from([...control, ...image]);
  return Buffer.concat([
    Buffer.from(head),
    ...Array.from({ length: frames }, () => frame),
    Buffer.from([0x3b]),
  ]);
}

describe('videos', () => {
  let engine: Engine;
  let server: RunningServer;
  let client: OpenAI;
  beforeAll(async () => {
    engine = await Engine.load('models/demo-vision', { device: 'cpu', maxContext: 2048 });
    server = await listen({ engine, log: pino({ level: 'silent' }), port: 0 });
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  afterAll(async () => {
    await server.close(1000);
    await engine.close();
  });

  type Body = OpenAI.ChatCompletionCreateParamsNonStreaming;
  const asked = (messages: unknown): Body =>
    ({ model: 'demo-vision', temperature: 0, max_tokens: 24, messages }) as Body;
  /** What the engine answers to the frames of a file, as pixels. */
  async function expected(name: string, fps: number): Promise<{ text: string; videoTokens: number }> {
    const { size, frames } = animations.find((one) => one.name === name)!;
    const { data, info } = await sharp(fileOf(name), { pages: -1 })
      .flatten({ background: 'white' })
      .removeAlpha()
      .toColourspace('srgb')
      .raw()
      .toBuffer({ resolveWithObject: true });
    const [width, height] = size;
    const each = width * height * info.channels;
    const shots = frames.map((_, i) => ({
      width,
      height,
      pixels: new Uint8Array(data.subarray(i * each, (i + 1) * each)),
    }));
    const content = [
      { type: 'video', frames: shots, fps },
      { type: 'text', text: 'What happens?' },
    ];
    const { choices, usage } = await engine.chat({
      messages: [{ role: 'user', content }],
      temperature: 0,
      maxTokens: 24,
    }).result;
    return { text: choices[0]!.text, videoTokens: usage.videoTokens! };
  }

  it.each([
    ['gif', 'image/gif', 10],
    ['webp', 'image/webp', 5000 / 300],
  ])('in %s are answered as their frames are, whole and streamed', async (name, type, fps) => {
    const { text, videoTokens } = await expected(name, fps);
    const body = asked(messagesOf(dataUrl(type, fileOf(name))));
    const whole = await client.chat.completions.create(body);
    expect(whole.choices[0]!.message.content).toBe(text);
    const details = whole.usage!.prompt_tokens_details as { video_tokens?: number; image_tokens?: number };
    expect([details.video_tokens, details.image_tokens]).toEqual([videoTokens, undefined]);
    expect(videoTokens).toBeGreaterThan(0);
    const { images } = (whole as unknown as { kvant: { images: unknown[] } }).kvant;
    expect(images).toEqual([expect.objectContaining({ frames: 4, tokens: videoTokens })]);
    let streamed = '';
    for await (const chunk of await client.chat.completions.create({ ...body, stream: true }))
      streamed += chunk.choices[0]?.delta.content ?? '';
    expect(streamed).toBe(text);
  });

  it('in large bodies, beside pictures, several at once and some of them given up', async () => {
    // Noise does not pack: the file is read on a thread for texts.
    const noise = picture(160, 120, 9);
    const png = await sharp(noise.pixels, { raw: { width: 160, height: 120, channels: 3 } })
      .png()
      .toBuffer();
    const large = `data:image/png;base64,${png.toString('base64')}`;
    expect(large.length).toBeGreaterThan(20_000);
    const { content } = messagesOf(dataUrl('image/gif', fileOf('gif')))[0]!;
    const both = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: large } }, ...content] }];
    const alone = await client.chat.completions.create(asked(both));
    const details = alone.usage!.prompt_tokens_details as { video_tokens?: number; image_tokens?: number };
    expect(details.image_tokens).toBeGreaterThan(0);
    expect(details.video_tokens).toBeGreaterThan(0);
    await Promise.all(
      Array.from({ length: 8 }, async (_, i) => {
        const controller = new AbortController();
        const answer = client.chat.completions.create(asked(both), { signal: controller.signal });
        if (i % 3 === 2) {
          setTimeout(() => controller.abort(), i);
          await answer.catch(() => null);
        } else expect((await answer).choices[0]!.message.content).toBe(alone.choices[0]!.message.content);
      }),
    );
    await untilIdle(engine);
  });

  const mp4 = Buffer.from('\0\0\0\x18ftypisom', 'latin1');
  const url = 'messages[0].content[0].video_url.url';
  it.each([
    ['a container of films', dataUrl('video/mp4', mp4), 415, 'unsupported_video', url],
    [
      'a still picture',
      dataUrl('image/png', Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')),
      415,
      'unsupported_video',
      url,
    ],
    ['another label than its bytes', dataUrl('image/webp', fileOf('gif')), 400, 'invalid_image_url', url],
    ['text', dataUrl('text/html', Buffer.from('<html>')), 415, 'unsupported_image', url],
    [
      'a file that is cut off',
      dataUrl('image/gif', fileOf('gif').subarray(0, 300)),
      400,
      'invalid_video',
      url,
    ],
    ['no base64', 'data:image/gif;base64,$$', 400, 'invalid_image_url', url],
    ['more frames than are taken', dataUrl('image/gif', tinyGif(10_001)), 413, 'video_too_large', url],
    [
      'frames of too many pixels',
      dataUrl('image/gif', tinyGif(2, 65_535, 65_535)),
      413,
      'video_too_large',
      url,
    ],
    ['frames of no pixels', dataUrl('image/gif', tinyGif(2, 0, 4)), 400, 'invalid_video', url],
    ['frames 500 times as wide as high', dataUrl('image/gif', tinyGif(2, 500, 1)), 400, 'invalid_video', url],
    ['a place on the web', 'https://example.com/film.gif', 400, 'image_url_not_allowed', url],
    ['a file of the server', 'file:///etc/passwd', 400, 'image_url_not_allowed', url],
  ])('refuse %s', async (_, given, status, code, param) => {
    const error = await client.chat.completions.create(asked(messagesOf(given))).catch((e: unknown) => e);
    expect(error).toMatchObject({ status, code, param });
    expect((error as Error).message.length).toBeLessThan(1000);
  });

  it('refuse more of them than pictures may be, other fields, and a URL that is missing', async () => {
    const part = { type: 'video_url', video_url: { url: dataUrl('image/gif', tinyGif(2)) } };
    const refused = async (content: unknown[]) =>
      client.chat.completions.create(asked([{ role: 'user', content }])).catch((e: unknown) => e);
    const all = await refused(Array.from({ length: 17 }, () => part));
    expect(all).toMatchObject({ status: 400 });
    expect((all as Error).message).toMatch(/16/);
    for (const [odd, param] of [
      [{ ...part, fps: 2 }, 'fps'],
      [{ type: 'video_url', video_url: {} }, 'video_url'],
      [{ type: 'video_url' }, 'video_url'],
    ] as const)
      expect(await refused([odd])).toMatchObject({ status: 400, param: `messages[0].content[0].${param}` });
  });

  it('leave others alone, and nothing behind, whatever was refused', async () => {
    const one = asked(messagesOf(dataUrl('image/gif', fileOf('gif'))));
    const { text } = await expected('gif', 10);
    const bad = asked(messagesOf(dataUrl('image/gif', tinyGif(10_001))));
    const answers = await Promise.allSettled(
      [one, bad, one, bad].map((body) => client.chat.completions.create(body)),
    );
    expect(answers.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'rejected']);
    for (const answer of answers)
      if (answer.status === 'fulfilled') expect(answer.value.choices[0]!.message.content).toBe(text);
    await untilIdle(engine);
  });
});

it('are refused by a model that sees pictures alone', async () => {
  await using engine = await Engine.load('test/fixtures/vision-families/llava', {
    device: 'cpu',
    threads: 1,
  });
  const server = await listen({ engine, log: pino({ level: 'silent' }), port: 0 });
  try {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const messages = messagesOf(dataUrl('image/gif', fileOf('gif')));
    const body = { model: 'llava', messages } as unknown as OpenAI.ChatCompletionCreateParamsNonStreaming;
    const error = await client.chat.completions.create(body).catch((e: unknown) => e);
    expect(error).toMatchObject({ status: 400, code: 'unsupported_content' });
  } finally {
    await server.close(1000);
  }
});
