/** demo-vision, end to end: fixtures and questions of its card. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';

const MODEL = join(import.meta.dirname, '../../models/demo-vision');

interface Case {
  readonly images: readonly { readonly png_base64: string }[];
  readonly messages: readonly {
    readonly role: string;
    readonly content: string | readonly { readonly type: string }[];
  }[];
  readonly prompt_ids: readonly number[];
  readonly continuation_ids: readonly number[];
}

const { cases } = JSON.parse(
  readFileSync(join(import.meta.dirname, '../fixtures/demo-vision.json'), 'utf8'),
) as { cases: readonly Case[] };

/** The messages with their pictures in them, as data URLs. */
function withImages({ images, messages }: Case): { role: string; content: unknown }[] {
  let next = 0;
  return messages.map(({ role, content }) => ({
    role,
    content:
      typeof content === 'string'
        ? content
        : content.map((part) =>
            part.type === 'image'
              ? {
                  type: 'image_url',
                  image_url: { url: `data:image/png;base64,${images[next++]!.png_base64}` },
                }
              : part,
          ),
  }));
}

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
});
