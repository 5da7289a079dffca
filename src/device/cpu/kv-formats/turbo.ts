import type { TurboKv } from '../../kv.js';
import { greatestInteger, turboCodebook } from '../../turboquant/codebooks.js';
import { type KvSide, type Rotation, turboRotation } from '../../turboquant/rotation.js';
import { f32Word } from '../command.js';
import {
  BOOK_BYTES,
  BOOK_CENTROIDS,
  BOOK_INTEGERS,
  BOOK_MIDPOINTS,
  FORMAT_T2,
  FORMAT_T3,
  FORMAT_T4,
  FORMAT_T8,
  ROTATION_SIGNS,
  SIDE_BITS,
  SIDE_CENTRE,
  SIDE_CODEBOOK,
  SIDE_FORMAT,
  SIDE_GROUP,
  SIDE_MOST,
  SIDE_PLAIN,
  SIDE_ROTATION,
  SIDE_UNIT,
} from '../kv-layout.js';
import type { CpuKvCodec } from './codec.js';
import { turbo2, turbo3, turbo4 } from './packings.js';

const NUMBERS = { 2: FORMAT_T2, 3: FORMAT_T3, 4: FORMAT_T4, 8: FORMAT_T8 };

export const turboCodec: CpuKvCodec<TurboKv> = {
  kind: 'turboquant',
  takes: (_, headDim) => headDim % 16 === 0 && headDim <= 256,
  packings: { T4: turbo4, T3: turbo3, T2: turbo2 },
  assembly: { file: 'kv-turbo', code: 'codeTurbo', meta: 'metaTurbo' },
  groups: () => 1,
  describe(format, side, headDim, put, tables) {
    const book = integerCentroids(format, side, headDim);
    put(SIDE_BITS, format.bits);
    put(SIDE_PLAIN, format.plainKeys ? 1 : 0);
    put(SIDE_GROUP, headDim);
    put(SIDE_FORMAT, NUMBERS[format.bits]);
    put(SIDE_CENTRE, book.centre);
    put(SIDE_UNIT, f32Word(book.unit));
    put(SIDE_MOST, f32Word(book.most));
    const rotation = turboRotation(headDim, side);
    put(
      SIDE_ROTATION,
      tables(`rotation ${side} ${headDim}`, ROTATION_SIGNS + 4 * (headDim + rotation.matrix.length), (view) =>
        writeRotation(view, rotation),
      ),
    );
    put(
      SIDE_CODEBOOK,
      tables(`codebook ${side} ${headDim} ${format.bits}`, BOOK_BYTES, (view) =>
        writeBook(view, format.bits, side, headDim, book.integers),
      ),
    );
  },
};

function writeRotation(view: DataView, { headDim, base, power, scale, signs, matrix }: Rotation): void {
  view.setUint32(0, base, true);
  view.setUint32(4, power, true);
  view.setFloat32(8, scale, true);
  signs.forEach((sign, d) => {
    view.setFloat32(ROTATION_SIGNS + d * 4, sign, true);
  });
  matrix.forEach((entry, i) => {
    view.setFloat32(ROTATION_SIGNS + (headDim + i) * 4, entry, true);
  });
}

interface IntegerCentroids {
  readonly integers: Int32Array;
  readonly centre: number;
  readonly unit: number;
  /** The largest integer of a query. */
  readonly most: number;
}

/**
 * Up to 4 bits the centroids are whole multiples of a unit (codebooks.ts) and fit 8 bits. Those of 8 bits are rounded
 * here: of V so that 32 of them times weights of 15 bits stay within 31 bits; of K so that a query of 13 bits times a
 * unit vector does, whatever its direction (Cauchy–Schwarz).
 */
function integerCentroids({ bits }: TurboKv, side: KvSide, headDim: number): IntegerCentroids {
  const { centroids } = turboCodebook(headDim, bits, side);
  const top = centroids[centroids.length - 1]!;
  const most = bits < 8 || side === 'value' ? 32767 : 8191;
  const largest =
    bits < 8
      ? greatestInteger(headDim, bits, side)
      : side === 'value'
        ? 2047
        : Math.min(32767, Math.floor((2 ** 31 / (1.1 * most * Math.sqrt(headDim))) * top));
  const unit = top / largest;
  return {
    integers: Int32Array.from(centroids, (c) => Math.round(c / unit)),
    centre: bits < 8 ? 128 : 0,
    unit,
    most,
  };
}

function writeBook(view: DataView, bits: number, side: KvSide, headDim: number, integers: Int32Array): void {
  const { centroids, midpoints } = turboCodebook(headDim, bits, side);
  midpoints.forEach((m, i) => {
    view.setFloat32(BOOK_MIDPOINTS + i * 4, m, true);
  });
  centroids.forEach((c, i) => {
    view.setFloat32(BOOK_CENTROIDS + i * 4, c, true);
  });
  if (bits === 8) {
    integers.forEach((n, i) => {
      view.setInt16(BOOK_INTEGERS + i * 2, n, true);
    });
    return;
  }
  // An index of 4 bits may hold more than the code: below it in the second table, above it in the first.
  for (let i = 0; i < 16; i++) {
    view.setUint8(i, 128 + integers[i % integers.length]!);
    view.setUint8(16 + i, 128 + integers[(i >> 2) % integers.length]!);
  }
}
