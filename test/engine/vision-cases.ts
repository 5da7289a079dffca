/** The fixtures of demo-vision (scripts/fixtures/demo_vision.py): conversations with pictures, and what the reference answers. */
import { join } from 'node:path';
import { readPacked } from '../fixtures/read-packed.js';

export const MODEL = join(import.meta.dirname, '../../models/demo-vision');

export interface Case {
  readonly images: readonly { readonly png_base64: string }[];
  readonly messages: readonly {
    readonly role: string;
    readonly content: string | readonly { readonly type: string }[];
  }[];
  readonly question: string;
  readonly prompt_ids: readonly number[];
  readonly continuation_ids: readonly number[];
  readonly continuation_text: string;
  /** By how much each token led the second. */
  readonly margins: readonly number[];
  readonly logprobs: readonly number[];
  /** Ids and logits of the prompt's last token. */
  readonly top20: readonly (readonly [number, number])[];
}

export const { cases } = readPacked(join(import.meta.dirname, '../fixtures/demo-vision.json.br')) as {
  cases: readonly Case[];
};

/** The messages with their pictures in them, as data URLs. */
export function withImages({ images, messages }: Case): { role: string; content: unknown }[] {
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
