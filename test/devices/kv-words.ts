import type { AffineKv, KvFormat, TurboKv } from '../../src/device/kv.js';
import { computesSixteen, turboCodebook } from '../../src/device/turboquant/codebooks.js';
import { type KvPlace, kvLayout, kvTables } from '../../src/device/webgpu/kernels/kv-layout.js';
import { codeNumbers } from '../../src/device/webgpu/kernels/plane-codes.js';
import { fromF16Bits, type Random } from './numbers.js';

export interface KvWords {
  readonly words: Uint32Array;
  /** A stored vector, read by what kv-layout.ts says; TurboQuant's as it lies, rotated. */
  readonly vector: (block: number, kv: number, token: number) => number[];
}

/** The numbers that codes are stored by. */
export function storedCodes(
  format: AffineKv | TurboKv,
  headDim: number,
  which: 'key' | 'value',
): readonly number[] {
  return format.kind === 'turboquant' && format.bits < 8
    ? codeNumbers(headDim, format.bits, which)
    : Array.from({ length: 2 ** format.bits }, (_, code) => code);
}

/** Where bit b of the number of the code of element d lies in the bits of a vector's words, by what kv-layout.ts says. */
function codeBit(format: AffineKv | TurboKv, headDim: number, d: number, b: number): number {
  const { bits } = format;
  if (format.kind === 'turboquant' && bits === 3) {
    const run = (d >> 5) * 3;
    const word = (d & 31) >> 3;
    const field = (d & 3) * 8 + ((d >> 2) & 1) * 4;
    return word < 3 ? (run + word) * 32 + field + b : (run + b) * 32 + field + 3;
  }
  if (format.kind === 'turboquant' && bits < 8) {
    const length = Math.min(32, headDim - (d & ~31));
    return (d & ~31) * bits + b * length + (d & 3) * (length / 4) + ((d & 31) >> 2);
  }
  if (bits !== 3) return d * bits + b;
  const pair = (d % 32) >> 1;
  const field = (d & 1) * 3 + b;
  const word = Math.floor(d / 32) * 3 + (pair < 15 ? Math.floor(pair / 5) : field >> 1);
  return word * 32 + (pair < 15 ? (pair % 5) * 6 + field : 30 + (field & 1));
}

/** The same, from the first bit of the side on, of the vector that is `row` among all: values may lie transposed. */
export function sideBit(
  format: AffineKv | TurboKv,
  which: 'key' | 'value',
  headDim: number,
  words: number,
  row: number,
  d: number,
  b: number,
): number {
  if (format.kind !== 'turboquant' || !computesSixteen(headDim, format.bits, which))
    return row * words * 32 + codeBit(format, headDim, d, b);
  const place = row % 16;
  const word = (row - place) * words + (place & 3) * (headDim / 2) + (d >> 1);
  return word * 32 + (place >> 2) * 8 + (d & 1) * 4 + b;
}

/** A side of a WebGPU cache with random codes and sane scales, biases and norms; or random halves. */
export function randomKvWords(
  format: KvFormat,
  which: 'key' | 'value',
  place: KvPlace,
  random: Random,
): KvWords {
  const { headDim, kvHeads, blockTokens } = place;
  const layout = kvLayout(format, place);
  const words = new Uint32Array(layout.bytes / 4);
  for (let i = 0; i < words.length; i++) words[i] = Math.floor(random.uniform() * 2 ** 32);
  const bits = format.kind === 'float' ? 0 : format.bits;
  const numbers = format.kind === 'float' ? [] : storedCodes(format, headDim, which);
  const [kept, set] =
    format.kind === 'float'
      ? [0x83ff_83ff, 0x3800_3800]
      : [0x03ff_03ff, format.kind === 'affine' ? (0xb800_0000 | ((15 - bits) << 10)) >>> 0 : 0x4800_4800];
  const from = format.kind === 'float' ? 0 : layout.metaAt;
  for (let i = from; i < layout.tablesAt; i++) words[i] = ((words[i]! & kept) | set) >>> 0;
  words.set(new Uint32Array(kvTables(format, headDim, which).buffer), layout.tablesAt);
  const bit = (at: number): number => (words[at >> 5]! >>> (at & 31)) & 1;
  const low = (w: number): number => fromF16Bits(w & 0xffff);
  const high = (w: number): number => fromF16Bits(w >>> 16);
  return {
    words,
    vector: (block, kv, token) => {
      const row = (block * kvHeads + kv) * blockTokens + token;
      const first = row * layout.words;
      return Array.from({ length: headDim }, (_, d) => {
        if (format.kind === 'float') return (d & 1 ? high : low)(words[first + (d >> 1)]!);
        let number = 0;
        for (let b = 0; b < bits; b++)
          number |= bit(sideBit(format, which, headDim, layout.words, row, d, b)) << b;
        const code = numbers.indexOf(number);
        if (format.kind === 'affine') {
          const w = words[layout.metaAt + row * layout.groups + Math.floor(d / format.groupSize)]!;
          return code * low(w) + high(w);
        }
        const w = words[layout.metaAt + (block * layout.metaHeads + (kv >> 1)) * blockTokens + token]!;
        return turboCodebook(headDim, bits, which).centroids[code]! * (kv & 1 ? high(w) : low(w));
      });
    },
  };
}
