/** The parts of messages that are pictures or videos: which forms they have, and what the chat template is given in their place. */

import { didYouMean } from '../../did-you-mean.js';
import { KvantError } from '../../errors.js';
import type { RgbImage } from '../../media/image.js';
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

/** A frame of a video: a picture's file, or pixels. */
export type FrameSource = PictureSource | { readonly kind: 'pixels'; readonly image: RgbImage };

export type VideoSource =
  | { readonly kind: 'file'; readonly source: PictureSource }
  | {
      readonly kind: 'frames';
      readonly frames: readonly FrameSource[];
      /** Frames a second. */
      readonly fps: number;
    };

export interface FoundVideo {
  readonly video: VideoSource;
  readonly where: string;
}

export interface SplitMessages {
  /** In which each picture is `{ type: 'image' }`, each video `{ type: 'video' }`. */
  readonly messages: readonly EngineChatMessage[];
  readonly found: readonly (FoundPicture | FoundVideo)[];
}

type Part = Readonly<Record<string, unknown>>;

/** OpenAI's form of chats, that of its responses, and the library's own. */
const FORMS = { image_url: 'image_url', input_image: 'image_url', image: 'image' } as const;
const VIDEO_FORMS = { video_url: 'video_url', video: 'video' } as const;
const DETAILS = ['auto', 'low', 'high', 'original'];

const isPart = (part: unknown): part is Part => typeof part === 'object' && part !== null;

function isPicture(part: unknown): part is Part & { readonly type: keyof typeof FORMS } {
  return isPart(part) && typeof part.type === 'string' && Object.hasOwn(FORMS, part.type);
}

function isVideo(part: unknown): part is Part & { readonly type: keyof typeof VIDEO_FORMS } {
  return isPart(part) && typeof part.type === 'string' && Object.hasOwn(VIDEO_FORMS, part.type);
}

/** Whether there is any picture or video in a conversation. */
export function hasPictures(messages: unknown): boolean {
  return (
    Array.isArray(messages) &&
    messages.some((message) => Array.isArray(message?.content) && message.content.some(isSeen))
  );
}

const isSeen = (part: unknown): boolean => isPicture(part) || isVideo(part);

/**
 * Takes the pictures and videos out of a conversation, in their order.
 *
 * @throws KvantError `invalid-messages`, naming the field
 */
export function splitPictures(messages: readonly EngineChatMessage[]): SplitMessages {
  const found: (FoundPicture | FoundVideo)[] = [];
  const rest = messages.map((message, m) => {
    if (!Array.isArray(message?.content)) return message;
    const content = message.content.map((part: unknown, p) => {
      const where = `messages[${m}].content[${p}]`;
      if (isVideo(part)) {
        found.push(readVideoPart(part, where));
        return { type: 'video' };
      }
      if (!isPicture(part)) return part;
      found.push(readPart(part, where));
      return { type: 'image' };
    });
    return { ...message, content };
  });
  return { messages: rest, found };
}

function readPart(part: Part & { readonly type: keyof typeof FORMS }, where: string): FoundPicture {
  const field = FORMS[part.type];
  const known = ['type', field, 'detail', 'cache_control', 'prompt_cache_breakpoint'];
  refuseUnknown(part, known, where);
  checkDetail(part.detail, `${where}.detail`);
  if (part.type === 'image')
    return { source: ownSource(part.image, `${where}.image`, 'picture'), where: `${where}.image` };
  return urlOf(part, 'image_url', where);
}

/** The value of a part: a URL, or an object with one. */
function urlOf(part: Part, field: 'image_url' | 'video_url', where: string): FoundPicture {
  const value = part[field];
  const at = `${where}.${field}`;
  if (typeof value === 'string') return { source: { kind: 'url', url: value }, where: at };
  if (!isPart(value) || typeof value.url !== 'string') {
    const type = field === 'image_url' ? 'image/png' : 'image/gif';
    throw invalid(
      at,
      'has no url',
      `Send {"type": "${field}", "${field}": {"url": "data:${type};base64,…"}}.`,
    );
  }
  refuseUnknown(value, field === 'image_url' ? ['url', 'detail'] : ['url'], at);
  checkDetail(value.detail, `${at}.detail`);
  return { source: { kind: 'url', url: value.url }, where: `${at}.url` };
}

function readVideoPart(part: Part & { readonly type: keyof typeof VIDEO_FORMS }, where: string): FoundVideo {
  const hints = ['type', 'cache_control', 'prompt_cache_breakpoint'];
  if (part.type === 'video_url') {
    refuseUnknown(part, [...hints, 'video_url'], where);
    const { source, where: at } = urlOf(part, 'video_url', where);
    return { video: { kind: 'file', source }, where: at };
  }
  refuseUnknown(part, [...hints, 'video', 'frames', 'fps'], where);
  const { video, frames, fps } = part;
  if (frames === undefined) {
    const at = `${where}.video`;
    if (fps !== undefined) throw invalid(`${where}.fps`, 'goes with frames alone', 'Leave it out.');
    return { video: { kind: 'file', source: ownSource(video, at, 'video') }, where: at };
  }
  if (video !== undefined) throw invalid(where, 'has a video and frames', 'Give one of them.');
  const at = `${where}.frames`;
  if (!Array.isArray(frames) || frames.length === 0)
    throw invalid(at, 'is no list of frames', 'Give pictures in their order.');
  if (typeof fps !== 'number' || !Number.isFinite(fps) || fps <= 0)
    throw invalid(
      `${where}.fps`,
      'is no rate',
      'Give the frames a second that `frames` has, as a number above 0.',
    );
  const sources = frames.map((frame: unknown, i) => frameSource(frame, `${at}[${i}]`));
  return { video: { kind: 'frames', frames: sources, fps }, where: at };
}

function frameSource(frame: unknown, where: string): FrameSource {
  if (!isPart(frame) || frame instanceof Uint8Array || frame instanceof ArrayBuffer || frame instanceof URL)
    return ownSource(frame, where, 'picture');
  const { width, height, pixels } = frame;
  const whole = (side: unknown): side is number => Number.isSafeInteger(side) && (side as number) > 0;
  if (
    !whole(width) ||
    !whole(height) ||
    !(pixels instanceof Uint8Array) ||
    pixels.length !== width * height * 3
  )
    throw invalid(
      where,
      'is no frame',
      'Give a picture’s bytes, path or URL, or {width, height, pixels} with three bytes a pixel.',
    );
  return { kind: 'pixels', image: { width, height, pixels } };
}

/** What the caller of the library gave: bytes, a URL, a path, or a `data:` URL. */
function ownSource(value: unknown, where: string, what: 'picture' | 'video'): PictureSource {
  if (value instanceof Uint8Array) return { kind: 'bytes', bytes: value };
  // Of one that was given away there is no view.
  if (value instanceof ArrayBuffer)
    return { kind: 'bytes', bytes: value.byteLength === 0 ? new Uint8Array() : new Uint8Array(value) };
  if (value instanceof URL)
    return value.protocol === 'file:' ? { kind: 'path', path: value.href } : { kind: 'url', url: value.href };
  if (typeof value === 'string' && value !== '')
    return /^(?:data|https?):/i.test(value) ? { kind: 'url', url: value } : { kind: 'path', path: value };
  throw invalid(where, `is no ${what}`, 'Give the bytes of a file, its path, or a URL.');
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
    'is no field of this part',
    didYouMean(name, known).trim() || 'Check the spelling, or leave it out.',
  );
}

function invalid(where: string, what: string, fix: string): KvantError {
  return new KvantError('invalid-messages', `${where} ${what}`, { kind: 'invalid-request', where, fix });
}
