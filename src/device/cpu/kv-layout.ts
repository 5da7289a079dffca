/**
 * How a layer's cache is described to the kernels. Read by TypeScript and by AssemblyScript alike, so it holds numbers
 * only.
 *
 * A store is four sides (K, V, K of float-start blocks, V of float-start blocks) of SIDE_BYTES each, then the id of the first float-start
 * block, and the tokens of a float head. Byte offsets within a side:
 */
export const SIDE_KIND = 0;
/** Values of a group with its own scale and bias; head_dim with TurboQuant. */
export const SIDE_GROUP = 4;
/** Where block 0 begins: values or codes of all heads, head by head. */
export const SIDE_CODES = 8;
/** Bytes of a head in a block. */
export const SIDE_HEAD_BYTES = 12;
/** Bytes of a vector. */
export const SIDE_VECTOR_BYTES = 16;
/** Scales and biases: `[block][head][group][token]` of u32, scale low. Norms: `[block][pair of heads][token]` of u32. */
export const SIDE_META = 20;
/** One of the FORMAT constants. */
export const SIDE_FORMAT = 24;
export const SIDE_BITS = 28;
/** Taken off every code, so that sums of products stay small. */
export const SIDE_CENTRE = 32;
/** TurboQuant: value of one step of the integer centroids (f32). */
export const SIDE_UNIT = 36;
/** The largest integer of a query or a weight: what keeps sums within 32 bits. */
export const SIDE_MOST = 40;
/** Where vectors are stored rotated, the rotation (rotation.ts of the kernels), else 0. Rotated vectors have no biases. */
export const SIDE_ROTATION = 44;
export const SIDE_CODEBOOK = 48;
/** TurboQuant: 1 where keys store their norm as values do. */
export const SIDE_PLAIN = 52;
export const SIDE_BYTES = 64;
export const STORE_FLOAT_START = 256;
/** Positions before this are in float-start blocks, of every sequence and for good; 0: of none. */
export const STORE_HEAD = 260;
export const STORE_BYTES = 272;

export const KIND_F32 = 0;
export const KIND_F16 = 1;
/** The first kind that has codes; kinds of codes are numbered in the order of their list (kv-formats/list.ts). */
export const KIND_CODES = 2;

/** How codes are packed: the numbers of `packingNumber` in kv-formats/list.ts, in the order of that list. */
export const FORMAT_A8 = 0;
export const FORMAT_A4 = 1;
export const FORMAT_A2 = 2;
export const FORMAT_A6 = 3;
export const FORMAT_A3 = 4;
export const FORMAT_A5 = 5;
export const FORMAT_T4 = 6;
export const FORMAT_T3 = 7;
export const FORMAT_T2 = 8;
/** Packed as A8, then looked up: no packing of its own. */
export const FORMAT_T8 = 255;

/** A codebook in memory: two tables of 16 u8 centroids, then floats and, at 8 bits, integers. */
export const BOOK_MIDPOINTS = 32;
export const BOOK_CENTROIDS = 1056;
export const BOOK_INTEGERS = 2080;
export const BOOK_BYTES = 2592;

/** A rotation in memory: base, power, scale, then signs and matrix. */
export const ROTATION_SIGNS = 16;
