/** What an animated GIF or WebP says of its frames, before any is decoded. */

import { behindBlocks, colourTable, readImageHeader } from './image-header.js';

export interface Animation {
  readonly format: 'gif' | 'webp';
  /** In pixels, of each frame once it is laid over those before it. */
  readonly width: number;
  readonly height: number;
  /** `[frames]` milliseconds that each is shown. */
  readonly delays: readonly number[];
}

/** Shorter delays are none that anybody meant: viewers show such frames for as long as this. */
const SHORTEST_MS = 11;
const DEFAULT_MS = 100;
/** The name of a chunk of WebP that holds a frame. */
const ANMF = 0x414e4d46;

/**
 * Null for what is neither; `broken` for a file that ends within a frame, or before any. One that does not move has one frame.
 *
 * @param most frames after which it is not read on
 */
export function readAnimation(
  bytes: Uint8Array,
  most = Number.POSITIVE_INFINITY,
): Animation | 'broken' | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = (from: number, to: number): string => String.fromCharCode(...bytes.subarray(from, to));
  try {
    if (/^GIF8[79]a/.test(text(0, 6))) return gif(bytes, view, most);
    if (text(0, 4) === 'RIFF' && text(8, 12) === 'WEBP') return webp(bytes, view, most);
    return null;
  } catch (error) {
    // A read past the end.
    if (error instanceof RangeError) return 'broken';
    throw error;
  }
}

/** Frames a second, on average. */
export function frameRate({ delays }: Pick<Animation, 'delays'>): number {
  const all = delays.reduce((sum, ms) => sum + ms, 0);
  return (1000 * delays.length) / all;
}

const shown = (ms: number): number => (ms < SHORTEST_MS ? DEFAULT_MS : ms);

function gif(bytes: Uint8Array, view: DataView, most: number): Animation | 'broken' {
  const header = readImageHeader(bytes);
  if (header === null || header === 'broken') return 'broken';
  const { width, height } = header;
  const delays: number[] = [];
  let delay = 0;
  let at = 13 + colourTable(view.getUint8(10));
  while (delays.length < most) {
    const block = view.getUint8(at);
    if (block === 0x3b) break;
    if (block === 0x21) {
      if (view.getUint8(at + 1) === 0xf9) delay = view.getUint16(at + 4, true) * 10;
      at = behindBlocks(view, at + 2);
    } else if (block === 0x2c) {
      at = behindBlocks(view, at + 11 + colourTable(view.getUint8(at + 9)));
      delays.push(shown(delay));
      delay = 0;
    } else at++; // Decoders pass over bytes between blocks.
  }
  return delays.length === 0 ? 'broken' : { format: 'gif', width, height, delays };
}

function webp(bytes: Uint8Array, view: DataView, most: number): Animation | 'broken' {
  const header = readImageHeader(bytes);
  if (header === null || header === 'broken') return 'broken';
  const { width, height } = header;
  const delays: number[] = [];
  for (let at = 12; at + 8 <= view.byteLength && delays.length < most; ) {
    const size = view.getUint32(at + 4, true);
    if (at + 8 + size > view.byteLength) return 'broken';
    const frame = view.getUint32(at) === ANMF;
    if (frame) delays.push(shown(view.getUint16(at + 20, true) + (view.getUint8(at + 22) << 16)));
    at += 8 + size + (size & 1);
  }
  return { format: 'webp', width, height, delays: delays.length === 0 ? [DEFAULT_MS] : delays };
}
