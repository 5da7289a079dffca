/** demo-vision, end to end: fixtures and questions of its card. */
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { cases, MODEL, withImages } from './vision-cases.js';

describe('demo-vision', () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await Engine.load(MODEL, { device: 'cpu', worker: false, maxRows: 8, threads: 2 });
  });
  afterAll(async () => {
    await engine.close();
  });

  it.each(cases.map((one, i) => [i, one] as const))(
    'fixture %i gives the tokens of the reference',
    async (_, one) => {
      const answer = engine.chat({ messages: withImages(one), temperature: 0, maxTokens: 40 });
      const { tokenIds, usage, choices } = await answer.result;
      expect(choices[0]?.error).toBeUndefined();
      expect(answer.promptTokenIds).toEqual(one.prompt_ids);
      expect(usage.promptTokens).toBe(one.prompt_ids.length);
      expect(tokenIds).toEqual(one.continuation_ids);
    },
  );

  const png = (at: number): string => `data:image/png;base64,${cases[at]!.images[0]!.png_base64}`;
  const ask = (url: string, text: string) => [
    {
      role: 'user',
      content: [
        { type: 'image_url', image_url: { url, detail: 'low' } },
        { type: 'text', text },
      ],
    },
  ];
  const answer = async (messages: ReturnType<typeof ask>): Promise<readonly number[]> =>
    (await engine.chat({ messages, temperature: 0, maxTokens: 24 }).result).tokenIds;

  it('answers rows of text and of pictures of several sizes together as alone', async () => {
    const text = { role: 'user', content: 'Who are you?' } as never;
    const all = [...cases.map(withImages), [text]] as never[];
    const alone: (readonly number[])[] = [];
    for (const one of all) alone.push(await answer(one));
    await engine.clearPrefixCache();
    const together = await Promise.all([...all, ...all].map((one) => answer(one)));
    expect(together).toEqual([...alone, ...alone]);
  });

  it('keeps features and prefixes by what a picture shows, not by its size', async () => {
    await engine.clearPrefixCache();
    const question = 'What is in the picture?';
    const blank = await sharp({
      create: { width: 112, height: 112, channels: 3, background: { r: 255, g: 255, b: 255 } },
    })
      .png()
      .toBuffer();
    const first = await answer(ask(png(0), question));
    const before = (await engine.stats()).features!;
    // Cold, the blank one's own answer; then behind the other, whose blocks it must not take.
    const behind = await answer(ask(`data:image/png;base64,${blank.toString('base64')}`, question));
    await engine.clearPrefixCache();
    const cold = await answer(ask(`data:image/png;base64,${blank.toString('base64')}`, question));
    expect(behind).toEqual(cold);
    expect(behind).not.toEqual(first);
    const again = engine.chat({ messages: ask(png(0), question), temperature: 0, maxTokens: 24 });
    expect((await again.result).tokenIds).toEqual(first);
    const hit = engine.chat({ messages: ask(png(0), question), temperature: 0, maxTokens: 24 });
    const { usage, tokenIds } = await hit.result;
    expect(tokenIds).toEqual(first);
    expect(usage.cachedTokens).toBeGreaterThan(16);
    const { encoded, hits } = (await engine.stats()).features!;
    expect(encoded).toBe(before.encoded + 1);
    // The last one has it all in its prefix.
    expect(hits).toBe(before.hits + 2);
  });

  it('takes a placeholder that somebody typed as text', async () => {
    const typed = 'What is in the picture? <|image_pad|>';
    const one = engine.chat({ messages: ask(png(0), typed), temperature: 0, maxTokens: 4 });
    await one.result;
    const pads = one.promptTokenIds.filter((id) => id === 4088).length;
    expect(pads).toBe(16);
    expect(engine.detokenize([...one.promptTokenIds])).toContain('<|image_pad|>');
  });

  it.each([
    ['data:image/png;base64,$$$$', 'invalid-image-url'],
    ['data:image/png,plain', 'invalid-image-url'],
    ['ftp://there/a.png', 'invalid-image-url'],
    ['not a url', 'invalid-image-url'],
    ['http://127.0.0.1/a.png', 'image-url-not-allowed'],
    ['file:///etc/passwd', 'image-url-not-allowed'],
    [
      `data:image/png;base64,${Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>').toString('base64')}`,
      'unsupported-image',
    ],
    [`data:image/png;base64,${cases[0]!.images[0]!.png_base64.slice(0, 200)}`, 'invalid-image'],
  ])('refuses %s', async (url, code) => {
    const error = await engine
      .chat({ messages: ask(url, 'What?') })
      .result.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code, where: 'messages[0].content[0].image_url.url' });
    expect((error as { fix: string }).fix).toBeTruthy();
    expect((error as { status: number }).status).toBeGreaterThanOrEqual(400);
    expect((error as { status: number }).status).toBeLessThan(500);
  });

  it('takes the bytes of a file, and refuses too many pictures', async () => {
    const image = Buffer.from(cases[0]!.images[0]!.png_base64, 'base64');
    const own = [
      {
        role: 'user',
        content: [
          { type: 'image', image },
          { type: 'text', text: 'What is in the picture?' },
        ],
      },
    ];
    expect(await answer(own as never)).toEqual(cases[0]!.continuation_ids);
    // Empty, or given away.
    const [given, buffer] = [Uint8Array.from(image), Uint8Array.from(image).buffer];
    structuredClone([given.buffer, buffer], { transfer: [given.buffer, buffer] });
    for (const empty of [new Uint8Array(), given, buffer]) {
      const content = [{ type: 'image', image: empty }];
      const reason = await engine.chat({ messages: [{ role: 'user', content }] }).result.catch((e) => e);
      expect(reason).toMatchObject({
        code: 'invalid-image',
        where: 'messages[0].content[0].image',
        status: 400,
      });
    }
    const many = [{ role: 'user', content: Array.from({ length: 17 }, () => ({ type: 'image', image })) }];
    const error = await engine.chat({ messages: many }).result.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: 'too-many-images', where: 'messages[0].content[16].image' });
  });

  it('refuses more tokens of pictures than there is room for, before any is encoded', async () => {
    const image = Buffer.from(cases[1]!.images[0]!.png_base64, 'base64');
    const options = { device: 'cpu', worker: false, threads: 2, maxContext: 256 } as const;
    const refused = async (count: number, imageCacheBytes?: number): Promise<unknown> => {
      await using small = await Engine.load(MODEL, {
        ...options,
        ...(imageCacheBytes === undefined ? {} : { imageCacheBytes }),
      });
      const content = [...Array.from({ length: count }, () => ({ type: 'image', image }))];
      const error: unknown = await small
        .chat({ messages: [{ role: 'user', content }] })
        .result.catch((e) => e);
      expect((await small.stats()).features).toMatchObject({ encoded: 0, references: 0 });
      return error;
    };
    // Of 64 tokens each: the text makes it too much, the pictures alone do, what is kept for them is too small.
    const fix = (text: string): unknown => expect.stringContaining(text);
    const messages = { where: 'messages', status: 400 };
    expect(await refused(4)).toMatchObject({
      code: 'context-length-exceeded',
      ...messages,
      message: fix('Of these its 4 pictures take 256.'),
      fix: expect.stringMatching(/^Send fewer or smaller pictures, .* max_pixels .* Shorten the messages/),
    });
    const at = 'messages[0].content[4].image';
    expect(await refused(5)).toMatchObject({
      code: 'image-too-large',
      where: at,
      fix: fix('fewer or smaller'),
    });
    const noRoom = { code: 'image-too-large', ...messages, fix: fix('larger imageCacheBytes') };
    expect(await refused(1, 32 * 1024)).toMatchObject(noRoom);
  });
});
