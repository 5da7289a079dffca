/** The parts of messages that are pictures: which forms they have, and what the chat template is given in their place. */

import { didYouMean } from '../../did-you-mean.js';
import { KvantError } from '../../errors.js';
import { shown } from '../../printable.js';
import type { EngineChatMessage } from '../types.js';

/** Where a picture is to be had. */
export type PictureSource =
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  /** `data:`, `http:`, `https:` or `file:`, from whoever sent the request. */
  | { readonly kind: 'url'; readonly url: string }
  /** A path that the caller of the library gave. */
  | { readonly kind: 'path'; readonly path: string };

export interface FoundPicture {
  readonly source: PictureSource;
  /** Names the field in errors: `messages[0].content[1].image_url`. */
  readonly where: string;
}

export interface SplitMessages {
  /** In which each picture is `{ type: 'image' }`. */
  readonly messages: readonly EngineChatMessage[];
  readonly pictures: readonly FoundPicture[];
}

type Part = Readonly<Record<string, unknown>>;

/** OpenAI's form of chats, that of its responses, and the library's own. */
const FORMS = { image_url: 'image_url', input_image: 'image_url', image: 'image' } as const;
const DETAILS = ['auto', 'low', 'high', 'original'];

const isPart = (part: unknown): part is Part => typeof part === 'object' && part !== null;

function isPicture(part: unknown): part is Part & { readonly type: keyof typeof FORMS } {
  return isPart(part) && typeof part.type === 'string' && Object.hasOwn(FORMS, part.type);
}

/** Whether there is any picture in a conversation. */
export function hasPictures(messages: unknown): boolean {
  return (
    Array.isArray(messages) &&
    messages.some((message) => Array.isArray(message?.content) && message.content.some(isPicture))
  );
}

/**
 * Takes the pictures out of a conversation, in their order.
 *
 * @throws KvantError `invalid-messages`, naming the field
 */
export function splitPictures(messages: readonly EngineChatMessage[]): SplitMessages {
  const pictures: FoundPicture[] = [];
  const rest = messages.map((message, m) => {
    if (!Array.isArray(message?.content)) return message;
    const content = message.content.map((part: unknown, p) => {
      if (!isPicture(part)) return part;
      pictures.push(readPart(part, `messages[${m}].content[${p}]`));
      return { type: 'image' };
    });
    return { ...message, content };
  });
  return { messages: rest, pictures };
}

function readPart(part: Part & { readonly type: keyof typeof FORMS }, where: string): FoundPicture {
  const field = FORMS[part.type];
  const known = ['type', field, 'detail', 'cache_control', 'prompt_cache_breakpoint'];
  refuseUnknown(part, known, where);
  checkDetail(part.detail, `${where}.detail`);
  const value = part[field];
  if (part.type === 'image') return { source: ownSource(value, `${where}.image`), where: `${where}.image` };
  if (typeof value === 'string') return { source: { kind: 'url', url: value }, where: `${where}.image_url` };
  const at = `${where}.image_url`;
  if (!isPart(value) || typeof value.url !== 'string')
    throw invalid(
      at,
      'has no url',
      'Send {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}.',
    );
  refuseUnknown(value, ['url', 'detail'], at);
  checkDetail(value.detail, `${at}.detail`);
  return { source: { kind: 'url', url: value.url }, where: `${at}.url` };
}

/** What the caller of the library gave: bytes, a URL, a path, or a `data:` URL. */
function ownSource(value: unknown, where: string): PictureSource {
  if (value instanceof Uint8Array) return { kind: 'bytes', bytes: value };
  if (value instanceof ArrayBuffer) return { kind: 'bytes', bytes: new Uint8Array(value) };
  if (value instanceof URL)
    return value.protocol === 'file:' ? { kind: 'path', path: value.href } : { kind: 'url', url: value.href };
  if (typeof value === 'string' && value !== '')
    return /^(?:data|https?):/i.test(value) ? { kind: 'url', url: value } : { kind: 'path', path: value };
  throw invalid(where, 'is no picture', 'Give the bytes of a file, its path, or a URL.');
}

/** It is taken and changes nothing: a picture is as large as the model's processor makes it. */
function checkDetail(detail: unknown, where: string): void {
  if (detail === undefined || detail === null || DETAILS.includes(detail as string)) return;
  throw invalid(where, `takes one of ${DETAILS.join(', ')}`, 'Leave it out.');
}

function refuseUnknown(part: Part, known: readonly string[], where: string): void {
  const name = Object.keys(part).find(
    (key) => !known.includes(key) && part[key] !== undefined && part[key] !== null,
  );
  if (name === undefined) return;
  throw invalid(
    `${where}.${shown(name)}`,
    'is no field of a picture',
    didYouMean(name, known).trim() || 'Check the spelling, or leave it out.',
  );
}

function invalid(where: string, what: string, fix: string): KvantError {
  return new KvantError('invalid-messages', `${where} ${what}`, { kind: 'invalid-request', where, fix });
}
