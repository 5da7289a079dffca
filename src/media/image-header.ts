/** What the first bytes of a picture say: its format and its size, before anything is decoded. */

const IMAGE_FORMATS = ['jpeg', 'png', 'webp', 'gif'] as const;
export type ImageFormat = (typeof IMAGE_FORMATS)[number];

export interface ImageHeader {
  readonly format: ImageFormat;
  /** In pixels, as stored: before the picture is turned as its EXIF says. */
  readonly width: number;
  readonly height: number;
  /** Of a JPEG: numbers of a pixel, 4 of CMYK. */
  readonly channels?: number;
}

/** Formats that are told by name, to say so. */
const OTHERS: readonly (readonly [name: string, test: (bytes: Uint8Array) => boolean])[] = [
  ['SVG', (b) => /^(?:\xef\xbb\xbf)?\s*(?:<\?xml|<!--|<!DOCTYPE\s+svg|<svg)/i.test(ascii(b, 0, 256))],
  ['BMP', (b) => ascii(b, 0, 2) === 'BM'],
  ['TIFF', (b) => /^(?:II\*\0|MM\0\*)/.test(ascii(b, 0, 4))],
  ['AVIF', (b) => /^ftypavi[fs]/.test(ascii(b, 4, 12))],
  ['HEIC', (b) => /^ftyp(?:hei[cxms]|mif1|msf1)/.test(ascii(b, 4, 12))],
  ['JPEG XL', (b) => (b[0] === 0xff && b[1] === 0x0a) || ascii(b, 4, 8) === 'JXL '],
  ['PDF', (b) => ascii(b, 0, 5) === '%PDF-'],
  ['MP4', (b) => ascii(b, 4, 8) === 'ftyp'],
];

function ascii(bytes: Uint8Array, from: number, to: number): string {
  return String.fromCharCode(...bytes.subarray(from, to));
}

/** The name of a format that is known and not read, for an error's text; undefined for what is none at all. */
export function otherFormat(bytes: Uint8Array): string | undefined {
  return OTHERS.find(([, test]) => test(bytes))?.[0];
}

/** Null for what is no JPEG, PNG, WebP or GIF; `broken` for one whose header is cut off or contradicts itself. */
export function readImageHeader(bytes: Uint8Array): ImageHeader | 'broken' | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    if (view.byteLength >= 3 && bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff)
      return jpeg(bytes, view);
    if (ascii(bytes, 0, 8) === '\x89PNG\r\n\x1a\n') {
      if (ascii(bytes, 12, 16) !== 'IHDR') return 'broken';
      return { format: 'png', width: view.getUint32(16), height: view.getUint32(20) };
    }
    if (/^GIF8[79]a/.test(ascii(bytes, 0, 6))) return gif(view);
    if (ascii(bytes, 0, 4) === 'RIFF' && ascii(bytes, 8, 12) === 'WEBP') return webp(bytes, view);
    return null;
  } catch (error) {
    // A read past the end.
    if (error instanceof RangeError) return 'broken';
    throw error;
  }
}

function jpeg(bytes: Uint8Array, view: DataView): ImageHeader | 'broken' {
  let at = 2;
  while (at < bytes.length) {
    if (bytes[at] !== 0xff) return 'broken';
    while (bytes[at] === 0xff) at++;
    const marker = bytes[at++]!;
    // A start of frame; not the tables between their numbers.
    const frame = marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
    if (frame)
      return {
        format: 'jpeg',
        height: view.getUint16(at + 3),
        width: view.getUint16(at + 5),
        channels: view.getUint8(at + 7),
      };
    if (marker === 0xd9 || marker === 0xda) return 'broken';
    if (marker === 0x01 || (marker >= 0xd0 && marker <= 0xd7)) continue;
    const length = view.getUint16(at);
    if (length < 2) return 'broken';
    at += length;
  }
  return 'broken';
}

/** Whether a JPEG has its end: some decoders fill one that is cut off with grey, and say nothing. */
export function jpegEnds(bytes: Uint8Array): boolean {
  let at = 2;
  while (at + 1 < bytes.length) {
    // Within what is coded a marker is never followed by zero, and restarts are a part of it.
    const marker = bytes[at + 1]!;
    const coded =
      bytes[at] !== 0xff || marker === 0x00 || marker === 0xff || (marker >= 0xd0 && marker <= 0xd7);
    if (coded) at++;
    else if (marker === 0xd9) return true;
    else if (marker === 0x01) at += 2;
    else if (at + 3 < bytes.length) at += 2 + (bytes[at + 2]! << 8) + bytes[at + 3]!;
    else return false;
  }
  return false;
}

/**
 * Whether a PNG has its last chunk, a GIF its trailer behind all of its frames, and a WebP as many bytes as it says, its chunks within them.
 * Decoders that need no more of a file differ in that. Of a JPEG see {@link jpegEnds}.
 */
export function hasEnd(bytes: Uint8Array, format: ImageFormat): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (format === 'webp') return webpEnds(view);
  if (format === 'gif') return gifEnds(view);
  if (format !== 'png') return true;
  for (let at = 8; at + 12 <= bytes.length; at += view.getUint32(at) + 12)
    if (ascii(bytes, at + 4, at + 8) === 'IEND') return true;
  return false;
}

function webpEnds(view: DataView): boolean {
  const end = view.getUint32(4, true) + 8;
  if (end > view.byteLength) return false;
  let at = 12;
  let chunks = 0;
  for (; at + 8 <= end; chunks++) {
    const size = view.getUint32(at + 4, true);
    at += 8 + size + (size & 1);
  }
  // libwebp lets bytes pass behind what it does not read: behind the first chunk of a file without VP8X.
  const passed = view.getUint8(15) !== 0x58 && chunks > 1 && at < end;
  return at === end || passed;
}

function gifEnds(view: DataView): boolean {
  for (let at = 13 + colourTable(view.getUint8(10)); at < view.byteLength; ) {
    const block = view.getUint8(at);
    if (block === 0x3b) return true;
    if (block !== 0x21 && block !== 0x2c) {
      // Decoders pass over bytes between blocks.
      at++;
      continue;
    }
    const from = block === 0x21 ? at + 2 : at + 10;
    if (from > view.byteLength) return false;
    at = dataEnd(view, block === 0x21 ? from : from + colourTable(view.getUint8(at + 9)) + 1);
  }
  return false;
}

/** As {@link behindBlocks}; past the end where they are cut off. */
function dataEnd(view: DataView, from: number): number {
  let at = from;
  while (at < view.byteLength && view.getUint8(at) !== 0) at += view.getUint8(at) + 1;
  return at + 1;
}

/** Decoders make the picture as large as its first frame where that is larger than the screen it is said to lie on. */
function gif(view: DataView): ImageHeader | 'broken' {
  const frame = firstGifFrame(view);
  if (frame === null) return 'broken';
  const u16 = (at: number): number => view.getUint16(at, true);
  const [width, height] = [u16(frame + 5), u16(frame + 7)];
  if (width === 0 || height === 0) return 'broken';
  const side = (screen: number, end: number): number => (screen === 0 ? 0 : Math.max(screen, end));
  return {
    format: 'gif',
    width: side(u16(6), u16(frame + 1) + width),
    height: side(u16(8), u16(frame + 3) + height),
  };
}

/** Where the first frame of a GIF is described; null for a file that has none. Errors: `RangeError` past the end. */
function firstGifFrame(view: DataView): number | null {
  for (let at = 13 + colourTable(view.getUint8(10)); ; ) {
    const block = view.getUint8(at);
    if (block === 0x2c) return at;
    if (block !== 0x21) return null;
    at = behindBlocks(view, at + 2);
  }
}

/** Bytes of a table of colours, by the flags before it. */
export const colourTable = (flags: number): number => ((flags & 0x80) === 0 ? 0 : 3 * 2 ** ((flags & 7) + 1));

/** Where blocks of data of a GIF end that begin here. */
export function behindBlocks(view: DataView, from: number): number {
  let at = from;
  for (let size = view.getUint8(at); size !== 0; size = view.getUint8(at)) at += size + 1;
  return at + 1;
}

function webp(bytes: Uint8Array, view: DataView): ImageHeader | 'broken' {
  const kind = ascii(bytes, 12, 16);
  const at24 = (at: number): number => view.getUint16(at, true) + (view.getUint8(at + 2) << 16);
  if (kind === 'VP8X') return { format: 'webp', width: at24(24) + 1, height: at24(27) + 1 };
  if (kind === 'VP8L') {
    const bits = view.getUint32(21, true);
    return { format: 'webp', width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
  }
  if (kind === 'VP8 ')
    return {
      format: 'webp',
      width: view.getUint16(26, true) & 0x3fff,
      height: view.getUint16(28, true) & 0x3fff,
    };
  return 'broken';
}
