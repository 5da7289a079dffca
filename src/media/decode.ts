/**
 * Files of pictures to RGB pixels: by `sharp` where it is installed, by `@jsquash` (WebAssembly) else. Both give the bytes that PIL gives.
 * What a file says of its size is checked before it is decoded.
 */
import { KvantError } from '../errors.js';
import type { RgbImage } from './image.js';
import { hasEnd, type ImageFormat, type ImageHeader, otherFormat, readImageHeader } from './image-header.js';
import { orientationOf } from './orientation.js';
import { turnImage } from './turn.js';

export interface DecodeOptions {
  /** Most bytes of a file. Default 20 MB. */
  readonly maxBytes?: number;
  /** Most pixels of a picture. Default 64 million. */
  readonly maxPixels?: number;
  /** What lies under a picture that is not opaque: white, or nothing (its colours as they are stored). Default white. */
  readonly background?: 'white' | 'drop';
  /** `auto`: sharp, if it can be loaded. */
  readonly decoder?: 'auto' | 'sharp' | 'jsquash';
}

export const MAX_IMAGE_BYTES = 20_000_000;
export const MAX_IMAGE_PIXELS = 64_000_000;

export type Sharp = typeof import('sharp')['default'];

/** Some channels a pixel, as they are stored: its EXIF orientation is still to be applied. */
export interface Raw {
  readonly width: number;
  readonly height: number;
  readonly channels: number;
  readonly data: Uint8Array;
}

/** Errors: `image-too-large` (413). */
export function checkImageBytes(count: number, where: string, most = MAX_IMAGE_BYTES): void {
  if (count > most) throw tooLarge(where, `has ${count} bytes; ${most} are the most`, 'Send a smaller file.');
}

/**
 * The size of a picture, from its header alone: of the file as stored.
 *
 * @throws KvantError `unsupported-image` (415), `image-too-large` (413), `invalid-image` (400); `where` names the field
 */
export function checkImage(bytes: Uint8Array, options: DecodeOptions = {}, where = 'image'): ImageHeader {
  const { maxBytes, maxPixels = MAX_IMAGE_PIXELS } = options;
  checkImageBytes(bytes.length, where, maxBytes);
  const header = readImageHeader(bytes);
  if (header === null) {
    const name = otherFormat(bytes);
    throw new KvantError(
      'unsupported-image',
      `${where} is ${name === undefined ? 'no picture that kvant knows' : `a picture or file of the format ${name}`}.`,
      { kind: 'unsupported', where, fix: 'Send JPEG, PNG, WebP or GIF.' },
    );
  }
  if (header === 'broken') throw broken(where, 'its header is cut off or damaged');
  const { width, height } = header;
  if (width === 0 || height === 0) throw broken(where, `it has ${width} × ${height} pixels`);
  if (width * height > maxPixels)
    throw tooLarge(
      where,
      `has ${width} × ${height} pixels; ${maxPixels} are the most`,
      'Make the picture smaller.',
    );
  return header;
}

/** The picture in a file: the first frame, turned as its EXIF says. Errors: those of {@link checkImage}, and `image-decoder-missing`. */
export async function decodeImage(
  bytes: Uint8Array,
  options: DecodeOptions = {},
  where = 'image',
): Promise<RgbImage> {
  const { maxPixels = MAX_IMAGE_PIXELS, background = 'white', decoder = 'auto' } = options;
  const header = checkImage(bytes, options, where);
  if (!hasEnd(bytes, header.format)) throw broken(where, 'it is cut off');
  const sharp = decoder === 'jsquash' ? null : await loadSharp();
  if (sharp === null && decoder === 'sharp') throw missing(header.format, where);
  let raw: Raw;
  try {
    raw =
      sharp === null ? await decodeWasm(bytes, header, where) : await decodeSharp(sharp, bytes, maxPixels);
  } catch (error) {
    if (error instanceof KvantError) throw error;
    throw broken(where, 'it cannot be decoded: it is cut off, damaged, or not what its header says', error);
  }
  // What was admitted is what the header says.
  if (raw.width !== header.width || raw.height !== header.height)
    throw broken(where, `it has ${raw.width} × ${raw.height} pixels, other than its header says`);
  const rgb = opaque(raw, background === 'white');
  return turnImage(rgb, orientationOf(bytes, header.format));
}

let loaded: Promise<Sharp | null> | undefined;

/** Null where it is not installed. Only the formats that are read are let in. */
export function loadSharp(): Promise<Sharp | null> {
  loaded ??= (async () => {
    let sharp: Sharp;
    try {
      sharp = (await import(/* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ 'sharp'))
        .default;
    } catch {
      return null;
    }
    // Loaders of libvips that nobody asked for are the way in of most hostile files.
    sharp.block({ operation: ['VipsForeignLoad'] });
    sharp.unblock({
      operation: [
        'VipsForeignLoadJpegBuffer',
        'VipsForeignLoadPngBuffer',
        'VipsForeignLoadWebpBuffer',
        'VipsForeignLoadNsgifBuffer',
      ],
    });
    sharp.cache(false);
    sharp.concurrency(1);
    return sharp;
  })();
  return loaded;
}

async function decodeSharp(sharp: Sharp, bytes: Uint8Array, maxPixels: number): Promise<Raw> {
  const open = () =>
    sharp(bytes, { ignoreIcc: true, limitInputPixels: maxPixels, failOn: 'error', animated: false });
  const { space, depth } = await open().metadata();
  if (space === 'cmyk') {
    const { data, info } = await open().pipelineColourspace('cmyk').toColourspace('cmyk').raw().toBuffer({
      resolveWithObject: true,
    });
    return { width: info.width, height: info.height, channels: 3, data: fromCmyk(data) };
  }
  const deep = depth === 'ushort';
  const reader = deep ? open().toColourspace('rgb16') : open().toColourspace('srgb');
  const { data, info } = await reader
    .raw(deep ? { depth: 'ushort' } : {})
    .toBuffer({ resolveWithObject: true });
  // Of sixteen bits the higher eight, as PIL has it.
  const low = deep ? highBytes(data) : data;
  return { width: info.width, height: info.height, channels: info.channels, data: low };
}

function highBytes(data: Buffer): Uint8Array {
  const out = new Uint8Array(data.length >> 1);
  for (let i = 0; i < out.length; i++) out[i] = data[2 * i + 1]!;
  return out;
}

/** PIL's conversion: each ink taken from what black leaves. */
function fromCmyk(data: Uint8Array): Uint8Array {
  const out = new Uint8Array((data.length / 4) * 3);
  for (let i = 0, o = 0; i < data.length; i += 4)
    for (let c = 0; c < 3; c++) {
      const light = 255 - data[i + 3]!;
      const t = data[i + c]! * light + 128;
      out[o++] = Math.max(0, light - ((t + (t >> 8)) >> 8));
    }
  return out;
}

async function decodeWasm(bytes: Uint8Array, { format, channels }: ImageHeader, where: string): Promise<Raw> {
  // Its decoder has no CMYK.
  if (channels === 4) throw missing(format, where, ' of CMYK');
  const { decodeByWasm } = await import('./decode-wasm.js');
  const raw = await decodeByWasm(bytes, format);
  if (raw === null) throw missing(format, where);
  return { ...raw, channels: 4 };
}

/** RGB of grey, grey with alpha, RGB or RGBA. */
export function opaque({ width, height, channels, data }: Raw, white: boolean): RgbImage {
  if (channels === 3) return { width, height, pixels: data };
  const pixels = new Uint8Array(width * height * 3);
  const colours = channels > 2 ? 3 : 1;
  for (let i = 0, from = 0, to = 0; i < width * height; i++, from += channels, to += 3) {
    const alpha = white && channels % 2 === 0 ? data[from + colours]! : 255;
    for (let c = 0; c < 3; c++) pixels[to + c] = overWhite(data[from + (colours === 3 ? c : 0)]!, alpha);
  }
  return { width, height, pixels };
}

/** `alpha_composite` of PIL over white: seven bits more than a byte, rounded twice. */
function overWhite(value: number, alpha: number): number {
  if (alpha === 255) return value;
  const below = 255 * (255 - alpha);
  const all = alpha * 255 + below;
  const own = Math.trunc((alpha * 255 * 255 * 128) / all);
  const sum = value * own + 255 * (255 * 128 - own) + (0x80 << 7);
  return ((sum >> 8) + sum) >> 15;
}

function tooLarge(where: string, what: string, fix: string): KvantError {
  return new KvantError('image-too-large', `${where} ${what}.`, { kind: 'invalid-request', where, fix });
}

function broken(where: string, what: string, cause?: unknown): KvantError {
  return new KvantError('invalid-image', `${where} is no picture that can be read: ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: 'Send the file whole, as JPEG, PNG, WebP or GIF.',
    ...(cause === undefined ? {} : { cause }),
  });
}

function missing(format: ImageFormat, where: string, kind = ''): KvantError {
  return new KvantError(
    'image-decoder-missing',
    `${where} is ${format.toUpperCase()}${kind}, for which there is no decoder: neither sharp nor a package of @jsquash that reads it is installed.`,
    { kind: 'unsupported', where, fix: 'npm install sharp; or send PNG.' },
  );
}
