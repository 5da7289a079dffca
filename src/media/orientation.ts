/** How a file says that its picture is to be turned before it is seen: an EXIF orientation, 1 to 8; 1 where there is none. */
import type { ImageFormat } from './image-header.js';

export function orientationOf(bytes: Uint8Array, format: ImageFormat): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  switch (format) {
    case 'jpeg':
      return ofJpeg(view);
    case 'png':
      return ofPng(view);
    case 'webp':
      return ofWebp(view);
    case 'gif':
      return 1;
  }
}

/** What EXIF begins with in a JPEG, and in some files of WebP: `Exif\0\0`. */
const EXIF = 0x45786966;

function ofJpeg(view: DataView): number {
  for (let at = 2; at + 10 < view.byteLength && view.getUint8(at) === 0xff; ) {
    const marker = view.getUint8(at + 1);
    const length = view.getUint16(at + 2);
    if (marker === 0xda || length < 2) break;
    if (marker === 0xe1 && startsWithExif(view, at + 4)) return ofTiff(view, at + 10, at + 2 + length);
    at += 2 + length;
  }
  return 1;
}

/** The chunk may lie behind the pixels. */
function ofPng(view: DataView): number {
  for (let at = 8; at + 12 <= view.byteLength; ) {
    const length = view.getUint32(at);
    // eXIf
    if (view.getUint32(at + 4) === 0x65584966) return ofTiff(view, at + 8, at + 8 + length);
    at += 12 + length;
  }
  return 1;
}

/** Only in files of the extended kind, as libwebp has it. */
function ofWebp(view: DataView): number {
  // VP8X
  if (view.byteLength < 30 || view.getUint32(12) !== 0x56503858) return 1;
  for (let at = 12; at + 8 <= view.byteLength; ) {
    const size = view.getUint32(at + 4, true);
    const start = at + 8;
    if (view.getUint32(at) === 0x45584946)
      return ofTiff(view, startsWithExif(view, start) ? start + 6 : start, start + size);
    at = start + size + (size & 1);
  }
  return 1;
}

function startsWithExif(view: DataView, at: number): boolean {
  return at + 6 <= view.byteLength && view.getUint32(at) === EXIF && view.getUint16(at + 4) === 0;
}

function ofTiff(view: DataView, from: number, to: number): number {
  const end = Math.min(view.byteLength, to);
  if (end - from < 8) return 1;
  const little = view.getUint16(from) === 0x4949;
  const directory = from + view.getUint32(from + 4, little);
  if (directory + 2 > end) return 1;
  const entries = view.getUint16(directory, little);
  for (let i = 0; i < entries; i++) {
    const at = directory + 2 + 12 * i;
    if (at + 12 > end) return 1;
    if (view.getUint16(at, little) !== 0x0112) continue;
    const value = view.getUint16(at + 8, little);
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}
