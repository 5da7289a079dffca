// Kinds of what is packed, as numbers that host and packing module share. AssemblyScript as well as TypeScript.

/** Before a superblock: nothing, d and dmin of each row, or the f16 number of each row. */
export const HEAD_NONE = 0;
export const HEAD_PAIRS = 1;
export const HEAD_HALVES = 2;
/** Behind a group: scale and bias of 16 bits, or of 32; an f16 scale; a byte of each row; two. */
export const TAIL_PAIRS = 0;
export const TAIL_WIDE = 1;
export const TAIL_HALVES = 2;
export const TAIL_BYTE = 3;
export const TAIL_TWO_BYTES = 4;
/** Types of GGUF's blocks that are packed as they are stored: of 32 columns, and of 256. */
export const STORED_Q4_0 = 0;
export const STORED_Q4_1 = 1;
export const STORED_Q8_0 = 2;
export const STORED_MXFP4 = 3;
export const STORED_Q4_K = 4;
export const STORED_Q5_K = 5;
export const STORED_Q6_K = 6;
