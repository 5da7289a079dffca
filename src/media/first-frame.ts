/** The first frame of an animated WebP as a file of its own, for a decoder that reads no animations. */

export interface FirstFrame {
  /** A WebP that does not move. */
  readonly file: Uint8Array;
  /** Where the frame lies in the picture. */
  readonly x: number;
  readonly y: number;
  /** The picture's size. */
  readonly width: number;
  readonly height: number;
}

const ANMF = 0x414e4d46;
const ALPH = 0x414c5048;

/** Null for a file that does not move. */
export function firstFrame(bytes: Uint8Array): FirstFrame | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const at24 = (at: number): number => view.getUint16(at, true) + (view.getUint8(at + 2) << 16);
  for (let at = 12; at + 8 <= view.byteLength; ) {
    const size = view.getUint32(at + 4, true);
    const start = at + 8;
    if (view.getUint32(at) === ANMF && size >= 24 && start + size <= view.byteLength)
      return {
        file: alone(bytes.subarray(start + 16, start + size), bytes.subarray(start + 6, start + 12)),
        x: 2 * at24(start),
        y: 2 * at24(start + 3),
        width: at24(24) + 1,
        height: at24(27) + 1,
      };
    at = start + size + (size & 1);
  }
  return null;
}

/** `chunks`: those of a frame. `sides`: its width and height, each less one, in three bytes. */
function alone(chunks: Uint8Array, sides: Uint8Array): Uint8Array {
  const out = new Uint8Array(30 + chunks.length);
  const view = new DataView(out.buffer);
  const name = (at: number, text: string): void => {
    for (let i = 0; i < 4; i++) out[at + i] = text.charCodeAt(i);
  };
  name(0, 'RIFF');
  view.setUint32(4, out.length - 8, true);
  name(8, 'WEBP');
  name(12, 'VP8X');
  view.setUint32(16, 10, true);
  const transparent = new DataView(chunks.buffer, chunks.byteOffset).getUint32(0) === ALPH;
  out[20] = transparent ? 0x10 : 0;
  out.set(sides, 24);
  out.set(chunks, 30);
  return out;
}
