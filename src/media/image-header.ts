/** What the first bytes of a picture say: its format and its size, before anything is decoded. */

export const IMAGE_FORMATS = ['jpeg', 'png', 'webp', 'gif'] as const;
export type ImageFormat = (typeof IMAGE_FORMATS)[number];

export interface ImageHeader {
  readonly format: ImageFormat;
  /** In pixels, as stored: before the picture is turned as its EXIF says. */
  readonly width: number;
  readonly height: number;
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
    if (/^GIF8[79]a/.test(ascii(bytes, 0, 6)))
      return { format: 'gif', width: view.getUint16(6, true), height: view.getUint16(8, true) };
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
    if (frame) return { format: 'jpeg', height: view.getUint16(at + 3), width: view.getUint16(at + 5) };
    if (marker === 0xd9 || marker === 0xda) return 'broken';
    if (marker === 0x01 || (marker >= 0xd0 && marker <= 0xd7)) continue;
    const length = view.getUint16(at);
    if (length < 2) return 'broken';
    at += length;
  }
  return 'broken';
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

/** The orientation that a JPEG's EXIF tells, 1 to 8; 1 where there is none. */
export function jpegOrientation(bytes: Uint8Array): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 2; at + 10 < bytes.length && bytes[at] === 0xff; ) {
    const marker = bytes[at + 1]!;
    const length = view.getUint16(at + 2);
    if (marker === 0xda || length < 2) break;
    const start = at + 10;
    if (marker === 0xe1 && ascii(bytes, at + 4, start) === 'Exif\0\0') {
      const end = Math.min(bytes.length, at + 2 + length);
      return orientationOf(new DataView(bytes.buffer, bytes.byteOffset + start, Math.max(0, end - start)));
    }
    at += 2 + length;
  }
  return 1;
}

function orientationOf(tiff: DataView): number {
  if (tiff.byteLength < 8) return 1;
  const little = tiff.getUint16(0) === 0x4949;
  const directory = tiff.getUint32(4, little);
  if (directory + 2 > tiff.byteLength) return 1;
  const entries = tiff.getUint16(directory, little);
  for (let i = 0; i < entries; i++) {
    const at = directory + 2 + 12 * i;
    if (at + 12 > tiff.byteLength) return 1;
    if (tiff.getUint16(at, little) !== 0x0112) continue;
    const value = tiff.getUint16(at + 8, little);
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}
