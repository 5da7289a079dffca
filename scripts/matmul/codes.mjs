// How codes are taken out of the vectors that they lie in.
import { emit, range } from './text.mjs';

const E2M1 = [0, 1, 2, 3, 4, 6, 8, 12];
export const TABLES = {
  E2M1: [...E2M1.map((v) => 12 + v), ...E2M1.map((v) => 12 - v)],
  IQ4: [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113].map((v) => v + 128),
};
// In nibbles, for products of signed bytes with 7 bits.
TABLES.IQ4High = TABLES.IQ4.map((v) => v >> 4);
TABLES.IQ4Low = TABLES.IQ4.map((v) => v & 15);
// Beside 15 times the code.
TABLES.IQ4Rest = TABLES.IQ4.map((v, code) => v - 15 * code);

export const looked = (table, codes) => (table === undefined ? codes : `lookUp(table, ${codes})`);

/**
 * Codes that lie whole in bytes, and codes in parts above those: the steps they are for, the vectors, and for each step and half of a block
 * the code, as [vector, from, to, width] of its parts. pack-assembly/planes.ts writes them.
 */
const PARTED = {
  5: {
    steps: 4,
    vectors: 5,
    codes: [
      [[[0, 0, 0, 5]], [[1, 0, 0, 5]]],
      [[[2, 0, 0, 5]], [[3, 0, 0, 5]]],
      [
        [[4, 0, 0, 5]],
        [
          [0, 5, 2, 3],
          [1, 6, 0, 2],
        ],
      ],
      [
        [
          [2, 5, 2, 3],
          [3, 6, 0, 2],
        ],
        [
          [4, 5, 2, 3],
          [1, 5, 1, 1],
          [3, 5, 0, 1],
        ],
      ],
    ],
  },
  6: {
    steps: 2,
    vectors: 3,
    codes: [
      [[[0, 0, 0, 6]], [[1, 0, 0, 6]]],
      [
        [[2, 0, 0, 6]],
        [
          [0, 6, 4, 2],
          [1, 6, 2, 2],
          [2, 6, 0, 2],
        ],
      ],
    ],
  },
};

const hex = (n) => `0x${n.toString(16).padStart(2, '0')}`;

export function maskName(mask) {
  return `mask${mask}`;
}

/** The masks by which {@link unpack} takes codes from planes, or from vectors that hold codes and parts of one. */
export function fieldMasks(bits) {
  if (bits in PARTED)
    return [...new Set(PARTED[bits].codes.flat(2).map(([, , to, width]) => ((1 << width) - 1) << to))];
  return planes(bits).map(([, width, position]) => ((1 << width) - 1) << position);
}

/** `(vector >> from) << to`, masked to `width` bits in every byte. `loaded`: the mask has a name. */
export function field(vector, from, to, width, loaded) {
  const bits = ((1 << width) - 1) << to;
  const mask = loaded ? maskName(bits) : `i8x16.splat(${hex(bits)})`;
  const moved =
    from > to
      ? `i32x4.shr_u(${vector}, ${from - to})`
      : from < to
        ? `i32x4.shl(${vector}, ${to - from})`
        : vector;
  return `v128.and(${moved}, ${mask})`;
}

/** Planes of a chunk of 32 columns: byte offset, width, position in the code. */
export function planes(bits) {
  return {
    2: [[0, 2, 0]],
    3: [
      [0, 2, 0],
      [64, 1, 2],
    ],
    4: [[0, 4, 0]],
    // The low nibbles. The high ones lie before them.
    8: [[128, 4, 0]],
  }[bits];
}

/**
 * Loads what step s (0…3) of half a chunk needs and names the codes of rows 0–3 and 4–7. `pointer` has one pointer for
 * each plane, advanced by {@link advance}.
 */
export function unpack(depth, bits, s, b, loaded = false) {
  if (bits in PARTED) return unpackParted(depth, bits, s, b, loaded);
  const parts = [[], []];
  for (const [, width, position] of planes(bits)) {
    const perVector = 4 / width;
    const vector = `v${b}p${width}`;
    if (s % perVector === 0)
      emit(depth, `${vector} = v128.load(q${b}p${width}, ${16 * Math.floor(s / perVector)});`);
    const from = 2 * width * (s % perVector);
    parts[0].push(field(vector, from, position, width, loaded));
    parts[1].push(field(vector, from + width, position, width, loaded));
  }
  return parts.map((p) => p.reduce((a, c) => `v128.or(${a}, ${c})`));
}

function unpackParted(depth, bits, s, b, loaded) {
  const { steps, vectors, codes } = PARTED[bits];
  const step = codes[s % steps];
  const earlier = codes
    .slice(0, s % steps)
    .flat(2)
    .map(([vector]) => vector);
  for (const vector of new Set(step.flat().map(([v]) => v)))
    if (!earlier.includes(vector))
      emit(
        depth,
        `v${b}p${vector} = v128.load(q${b}p0, ${16 * (Math.floor(s / steps) * vectors + vector)});`,
      );
  return step.map((parts) =>
    parts
      .map(([vector, from, to, width]) => field(`v${b}p${vector}`, from, to, width, loaded))
      .reduce((a, c) => `v128.or(${a}, ${c})`),
  );
}

/** Pointers to the planes of a chunk. */
export function planePointers(depth, bits, b) {
  const all = range(b).flatMap((k) =>
    bits in PARTED
      ? [`q${k}p0 = w${k}`]
      : planes(bits).map(([at, width]) => `q${k}p${width} = w${k} + ${at}`),
  );
  emit(depth, `let ${all.join(', ')};`);
}

export function advance(depth, bits, blocks, steps = 4) {
  for (const k of blocks)
    if (bits in PARTED) emit(depth, `q${k}p0 += ${4 * bits * steps};`);
    else for (const [, width] of planes(bits)) emit(depth, `q${k}p${width} += ${4 * width * steps};`);
}

export const vectors = (bits, b) =>
  bits in PARTED
    ? range(PARTED[bits].vectors).map((vector) => `v${b}p${vector}`)
    : planes(bits).map(([, width]) => `v${b}p${width}`);
