/** Frames of an animated GIF or WebP to RGB pixels, by `sharp` alone: the packages of @jsquash read the first frame of a file at most. */
import { KvantError } from '../errors.js';
import { type Animation, readAnimation } from './animation.js';
import { loadSharp, MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS, opaque, type Sharp } from './decode.js';
import type { RgbImage } from './image.js';
import { otherFormat, readImageHeader } from './image-header.js';

export interface AnimationLimits {
  /** Most bytes of a file. Default 20 MB. */
  readonly maxBytes?: number;
  /** Most frames of a file, of which some are taken. Default 10,000. */
  readonly maxFrames?: number;
  /** Most pixels of a frame. Default 64 million. */
  readonly maxPixels?: number;
  /** Most pixels of all frames of a file: each is decoded, for the next lies over it. Default 2 billion. */
  readonly maxAllPixels?: number;
}

export const MAX_VIDEO_FRAMES = 10_000;
const MAX_ALL_PIXELS = 2e9;
/** Pixels that are decoded at once, four bytes each. */
const AT_ONCE = 32e6;

/**
 * What a video's file says of its frames.
 *
 * @throws KvantError `unsupported-video` for what is no animated GIF or WebP, `video-too-large`, `invalid-video`; `where` names the field
 */
export function checkAnimation(bytes: Uint8Array, limits: AnimationLimits = {}, where = 'video'): Animation {
  const {
    maxBytes = MAX_IMAGE_BYTES,
    maxFrames = MAX_VIDEO_FRAMES,
    maxPixels = MAX_IMAGE_PIXELS,
    maxAllPixels = MAX_ALL_PIXELS,
  } = limits;
  if (bytes.length > maxBytes) throw tooLarge(where, `has ${bytes.length} bytes; ${maxBytes} are the most`);
  const found = readAnimation(bytes, maxFrames + 1);
  if (found === null) throw unsupported(bytes, where);
  if (found === 'broken') throw broken(where, 'it is cut off or damaged');
  const { width, height, delays } = found;
  if (delays.length > maxFrames) throw tooLarge(where, `has more than ${maxFrames} frames`);
  if (width === 0 || height === 0) throw broken(where, `it has ${width} × ${height} pixels`);
  if (width * height > maxPixels)
    throw tooLarge(where, `has frames of ${width} × ${height} pixels; ${maxPixels} are the most`);
  if (width * height * delays.length > maxAllPixels)
    throw tooLarge(
      where,
      `has ${delays.length} frames of ${width} × ${height} pixels; ${maxAllPixels} pixels are the most`,
    );
  return found;
}

/**
 * Frames of a file, over white: those with the rising `indexes`, each given to `take` in order.
 *
 * @throws KvantError those of {@link checkAnimation}; `image-decoder-missing` where sharp is not installed
 */
export async function decodeFrames(
  bytes: Uint8Array,
  indexes: readonly number[],
  take: (frame: RgbImage, index: number) => void,
  where = 'video',
): Promise<void> {
  const { width, height, delays } = checkAnimation(bytes, {}, where);
  const sharp = await loadSharp();
  if (sharp === null)
    throw new KvantError(
      'image-decoder-missing',
      `${where}: frames of GIF and WebP are decoded by sharp, which is not installed.`,
      { kind: 'unsupported', where, fix: 'npm install sharp; or give the frames as pictures.' },
    );
  const most = Math.max(1, Math.floor(AT_ONCE / (width * height)));
  for (let i = 0; i < indexes.length; ) {
    const first = indexes[i]!;
    let end = i + 1;
    while (end < indexes.length && indexes[end]! < first + most) end++;
    const wanted = indexes.slice(i, end);
    const pages = wanted.at(-1)! - first + 1;
    const frames = await decodePages(sharp, bytes, first, pages, where);
    if (frames.width !== width || frames.height !== height * pages || first + pages > delays.length)
      throw broken(where, 'its frames are not as large as its header says');
    const size = width * height * frames.channels;
    for (const index of wanted) {
      const data = frames.data.subarray((index - first) * size, (index - first + 1) * size);
      take(opaque({ width, height, channels: frames.channels, data }, true), index);
    }
    i = end;
  }
}

async function decodePages(sharp: Sharp, bytes: Uint8Array, page: number, pages: number, where: string) {
  try {
    const reader = sharp(bytes, {
      ignoreIcc: true,
      limitInputPixels: Math.max(AT_ONCE, MAX_IMAGE_PIXELS),
      failOn: 'error',
      page,
      pages,
    });
    const { data, info } = await reader.toColourspace('srgb').raw().toBuffer({ resolveWithObject: true });
    return { width: info.width, height: info.height, channels: info.channels, data };
  } catch (error) {
    throw broken(where, 'its frames cannot be decoded', error);
  }
}

/** A still picture, a container of films, or anything else. */
function unsupported(bytes: Uint8Array, where: string): KvantError {
  const header = readImageHeader(bytes);
  const format = header === null || header === 'broken' ? containerOf(bytes) : header.format.toUpperCase();
  return new KvantError(
    'unsupported-video',
    `${where} is ${format === undefined ? 'no video that kvant knows' : `of the format ${format}, which kvant does not decode as a video`}.`,
    {
      kind: 'unsupported',
      where,
      fix: 'Send an animated GIF or WebP, or frames as pictures. Other formats are read where the library is given a function: Engine.load(model, { decodeVideo }).',
    },
  );
}

function containerOf(bytes: Uint8Array): string | undefined {
  const text = String.fromCharCode(...bytes.subarray(0, 12));
  if (text.slice(4, 8) === 'ftyp') return text.slice(8, 10) === 'qt' ? 'QuickTime' : 'MP4';
  if (text.startsWith('\x1aE\xdf\xa3')) return 'WebM or Matroska';
  if (text.startsWith('RIFF') && text.slice(8, 11) === 'AVI') return 'AVI';
  if (text.startsWith('OggS')) return 'Ogg';
  if (text.startsWith('FLV')) return 'FLV';
  return otherFormat(bytes);
}

function tooLarge(where: string, what: string): KvantError {
  return new KvantError('video-too-large', `${where} ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: 'Send a shorter video, or a smaller one.',
  });
}

function broken(where: string, what: string, cause?: unknown): KvantError {
  return new KvantError('invalid-video', `${where} is no video that can be read: ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: 'Send the file whole, as an animated GIF or WebP.',
    ...(cause === undefined ? {} : { cause }),
  });
}
