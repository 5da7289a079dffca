// The formats of codes, and the tiles that there are of each.

/**
 * Formats of codes: the name of their functions, the word by which commands speak of them (linear-commands.ts), and the bits of a code in
 * memory. All but affine ones have groups that chunks of 32 columns are made of, and what makes numbers of codes behind each chunk:
 * `metaBytes` of it. `head`: what stands before a superblock of 256 columns. `alone`: of several blocks each has a loop of its own.
 */
export const FORMATS = [
  ...[2, 3, 4, 5, 6, 8].map((bits) => ({ name: `${bits}`, word: bits, bits, kind: 'affine' })),
  ...[2, 3, 4, 5, 6].map((bits) => {
    const minima = bits !== 3 && bits !== 6;
    const group = bits === 4 || bits === 5 ? 32 : 16;
    const head = minima ? 'pairs' : 'scales';
    const alone = bits === 6;
    return {
      name: `K${bits}`,
      word: 16 + bits,
      bits,
      kind: 'k-quant',
      group,
      minima,
      head,
      alone,
      metaBytes: 16,
    };
  }),
  ...[4, 5, 8].map((bits) => ({
    name: `S${bits}`,
    word: 32 + bits,
    bits,
    kind: 'halves',
    group: 32,
    metaBytes: 16,
    centre: 2 ** (bits - 1),
  })),
  { ...lut('E2M1'), name: 'E2M1Exponents', word: 64 + 5, kind: 'exponents', metaBytes: 8 },
  { ...lut('IQ4'), name: 'IQ4Halves', word: 48 + 8, kind: 'halves', metaBytes: 16 },
  { ...lut('IQ4'), name: 'IQ4Bytes', word: 80 + 8, kind: 'bytes', metaBytes: 8, head: 'scales' },
  { ...lut('E2M1'), name: 'E2M1Floats', word: 96 + 5, kind: 'e4m3', group: 16, metaBytes: 16 },
];

/** Codes of 4 bits by a table of bytes: twice the number and 12, which has 5 bits, or the number and 128. */
function lut(table) {
  return { bits: 4, group: 32, table, centre: table === 'E2M1' ? 12 : 128 };
}

/** Tiles: rows of activations × blocks of 8 weight rows. Several blocks for few rows: each is another place in memory that is read from. */
export const TILES = [
  { m: 1, b: 4 },
  { m: 1, b: 2 },
  { m: 1, b: 1 },
  { m: 2, b: 2 },
  { m: 2, b: 1 },
  { m: 4, b: 1 },
];
/** The formats whose two rows take two blocks at a time. Others are slower so, or as fast. */
const PAIRED = ['4', '5', '6', '8', 'K4', 'S4', 'S5', 'S8', 'E2M1Exponents'];
export const isPaired = ({ name }) => PAIRED.includes(name);
export const formatsOf = ({ m, b }) => (m === 2 && b === 2 ? FORMATS.filter(isPaired) : FORMATS);
/** Floats keep more in registers. */
export const FLOAT_TILES = TILES.filter(({ m, b }) => b === 1 || (m === 1 && b === 2));

/** What a symmetric format subtracts of its codes. */
export function centreOf({ kind, minima, bits, centre }) {
  return kind === 'affine' || minima ? undefined : (centre ?? 2 ** (bits - 1));
}

export const chunked = ({ kind }) => kind !== 'affine';
export const title = ({ kind, bits, table = '' }) =>
  `${kind === 'affine' ? '' : `${kind} ${table} `}${bits}-bit`;
