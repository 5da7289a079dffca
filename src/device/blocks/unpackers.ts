/** Types of blocks that weights are stored in, and who takes them apart: assembly/unpack.ts, in whatever memory it runs. */

type Unpacker = (...numbers: number[]) => void;

/** What assembly/unpack.ts exports. */
export interface UnpackExports {
  readonly nibbles: Unpacker;
  readonly fives: Unpacker;
  readonly bytes: Unpacker;
  readonly k2: Unpacker;
  readonly k3: Unpacker;
  readonly k4: Unpacker;
  readonly k5: Unpacker;
  readonly k6: Unpacker;
  readonly iq4xs: Unpacker;
  readonly mxfp4: Unpacker;
  readonly nvfp4: Unpacker;
}

/** Where blocks and the arrays of `MatrixRows` lie in its memory. */
export interface BlockPlaces {
  readonly blocks: number;
  readonly data: number;
  readonly scales: number;
  readonly biases: number;
  readonly subscales: number;
}

/** By type, for `n` blocks. The number of a row of NVFP4 is not written. */
export const UNPACKERS = {
  Q4_0: (m, n, at) => m.nibbles(n, at.blocks, 18, 2, at.data, at.scales, 0),
  Q4_1: (m, n, at) => m.nibbles(n, at.blocks, 20, 4, at.data, at.scales, at.biases),
  Q5_0: (m, n, at) => m.fives(n, at.blocks, 22, 6, at.data, at.scales, 0),
  Q5_1: (m, n, at) => m.fives(n, at.blocks, 24, 8, at.data, at.scales, at.biases),
  Q8_0: (m, n, at) => m.bytes(n, at.blocks, at.data, at.scales),
  Q2_K: (m, n, at) => m.k2(n, at.blocks, at.data, at.scales, at.biases, at.subscales),
  Q3_K: (m, n, at) => m.k3(n, at.blocks, at.data, at.scales, at.subscales),
  Q4_K: (m, n, at) => m.k4(n, at.blocks, at.data, at.scales, at.biases, at.subscales),
  Q5_K: (m, n, at) => m.k5(n, at.blocks, at.data, at.scales, at.biases, at.subscales),
  Q6_K: (m, n, at) => m.k6(n, at.blocks, at.data, at.scales, at.subscales),
  IQ4_NL: (m, n, at) => m.nibbles(n, at.blocks, 18, 2, at.data, at.scales, 0),
  IQ4_XS: (m, n, at) => m.iq4xs(n, at.blocks, at.data, at.scales, at.subscales),
  MXFP4: (m, n, at) => m.mxfp4(n, at.blocks, at.data, at.scales),
  NVFP4: (m, n, at) => m.nvfp4(n, at.blocks, at.data, at.subscales),
} as const satisfies Record<string, (module: UnpackExports, n: number, at: BlockPlaces) => void>;

export type BlockType = keyof typeof UNPACKERS;

/** What is read and written behind a buffer at most. */
export const SPARE = 16;
