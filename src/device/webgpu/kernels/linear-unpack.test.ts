import { describe, expect, it } from 'vitest';
import { AFFINE_BITS } from '../../weights.js';
import { unpackCodes } from './linear-unpack.js';

/** Runs the WGSL of one unpacking in JavaScript: only shifts, masks and a bitcast occur in it. */
function evaluate(bits: (typeof AFFINE_BITS)[number], words: number[]): number[] {
  const names = words.map((_, i) => `w${i}`);
  const { lines, codes } = unpackCodes(bits, names, 't');
  const script = (text: string): string =>
    text
      .replaceAll('bitcast<f32>', 'asFloat')
      .replaceAll('>>', '>>>')
      .replace(/(\b0x[0-9a-f]+|\b\d+)u/g, '$1');
  const body = `${lines.map((line) => script(line).replace('let', 'const')).join('\n')}
    return [${codes.map(({ text, offset }) => `${script(text)} - ${offset}`).join(', ')}];`;
  const view = new DataView(new ArrayBuffer(4));
  const asFloat = (word: number): number => {
    view.setUint32(0, word >>> 0);
    return view.getFloat32(0);
  };
  return new Function('asFloat', ...names, body)(asFloat, ...words) as number[];
}

describe('unpackCodes', () => {
  for (const bits of AFFINE_BITS) {
    it(`reads ${bits}-bit codes out of the bit stream`, () => {
      const words = Array.from({ length: bits }, (_, i) => Math.imul(i + 1, 0x9e3779b1) >>> 0);
      const stream = words
        .map((word) => word.toString(2).padStart(32, '0'))
        .reverse()
        .join('');
      const want = Array.from({ length: 32 }, (_, c) =>
        Number.parseInt(stream.slice(stream.length - (c + 1) * bits, stream.length - c * bits), 2),
      );
      expect(evaluate(bits, words)).toEqual(want);
    });

    it(`keeps the offset of ${bits}-bit codes at 256 or less`, () => {
      const words = Array.from({ length: bits }, (_, i) => `w${i}`);
      const { codes } = unpackCodes(bits, words, 't');
      expect(codes).toHaveLength(32);
      for (const { offset } of codes) {
        expect(offset).toBeGreaterThanOrEqual(2 ** bits > 16 ? 32 : 4);
        expect(offset).toBeLessThanOrEqual(256);
      }
    });
  }
});
