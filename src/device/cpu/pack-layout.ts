/**
 * How a matrix lies in memory for the kernels of assembly/matmul*.ts.
 *
 * Rows are packed in **blocks of 8**, so that the 32-bit lanes of two vectors are rows and no sum ever runs across
 * lanes. A matrix is a list of **segments**, one for each run of parts with the same format:
 *
 *     blocks[⌈rows / 8⌉] | factor f32[⌈rows / 8⌉ · 8] | bias f32[⌈rows / 8⌉ · 8]
 *
 * and a result is `sum · factor + bias`. Rows that pad the last block are zeros.
 *
 * **Affine** blocks are groups, one after the other: the codes in chunks of 32 columns, then scales and biases. A
 * step `t` is 4 columns. Code bits are split in planes of 4, 2 and 1 bits, each plane whole vectors:
 *
 *     bits 4: one 4-plane      bits 8: high nibbles, low nibbles (two 4-planes)
 *     bits 2: one 2-plane      bits 3: 2-plane, 1-plane
 *
 * A vector of a plane of b bits holds 4 / b steps, its bits from low to high: rows 0–3 of the first step, rows 4–7 of
 * the first step, rows 0–3 of the second, …. Within a vector byte `4r + j` is row r, column j with relaxed SIMD;
 * without, 16-bit pairs go row 0…3 for columns 0, 1, then row 0…3 for columns 2, 3.
 *
 * Codes of 5 and 6 bits have no planes, for putting them together would take more operations than multiplying them. Of two steps
 * of 6 bits three vectors hold a code in each byte, and above it two bits of the fourth, from the highest on. Of four steps of 5 bits
 * five vectors A…E hold a code in each byte. Of the other three codes the first has its highest three bits above those of A and two in
 * B, the second so in C and D, and the third in E, then one bit each in B and D.
 *
 * Scales and biases keep 16 bits where the source has 16: word r is `scale << 16 | bias`. f32: 8 scales, 8 biases.
 * f16 numbers are stored times 2^k, k the largest of 0…10 that the row allows: with k = 10 no subnormal is left (the
 * kernels widen by shifting, and subnormal operands are slow). `factor` is 2^-k.
 *
 * **K-quant** blocks are superblocks of 256 columns: f16 `d` of the 8 rows (words r of `d of row r << 16 | d of row r + 4`), or
 * `d` and `dmin` where there are minima (words r of `d << 16 | dmin`); then the chunks, each with its codes, as in affine blocks, and
 * two times 8 bytes of subscales: s and m of the rows, or those of the first and of the second 16 columns.
 *
 * **Symmetric** blocks have a chunk's codes and then 8 f16 scales (as d of a k-quant). **Lut4** blocks too, with its scales instead: f16;
 * 8 bytes; or one f16 a superblock before its chunks and 8 bytes after each of them; or two times 8 bytes, of 16 columns each, where the
 * f32 number of a row is its factor.
 *
 * **Float** blocks are columns: f32 8 numbers; f16 and bf16 words r of `row r << 16 | row r + 4`.
 */
import type { Matrix } from '../device.js';
import type { FloatDtype, MatrixFormat } from '../weights.js';
import { hasMinima, SUPERBLOCK } from '../weights.js';

export const BLOCK_ROWS = 8;
/** Columns of a chunk: the smallest group. */
export const CHUNK = 32;

/** Which wasm builds read the pack, for their byte order differs: the plain one, or both with relaxed SIMD. */
export type KernelBuild = 'simd' | 'relaxed';

export interface PackedSegment {
  /** Address of the first block. */
  readonly at: number;
  /** Index of its first row in the matrix. */
  readonly firstRow: number;
  readonly rows: number;
  readonly format: MatrixFormat;
}

/** A matrix in the memory of a CPU device. */
export interface PackedMatrix extends Matrix {
  readonly at: number;
  readonly build: KernelBuild;
  readonly segments: readonly PackedSegment[];
}

export function blockCount(rows: number): number {
  return Math.ceil(rows / BLOCK_ROWS);
}

/** Bytes of scales and biases for a group of a block. */
export function groupMetaBytes(dtype: FloatDtype): number {
  return dtype === 'f32' ? BLOCK_ROWS * 8 : BLOCK_ROWS * 4;
}

export function blockBytes(cols: number, format: MatrixFormat): number {
  if (format.kind === 'float') return cols * BLOCK_ROWS * (format.dtype === 'f32' ? 4 : 2);
  if (format.kind === 'k-quant') {
    const head = hasMinima(format.bits) ? BLOCK_ROWS * 4 : BLOCK_ROWS * 2;
    return (cols / SUPERBLOCK) * head + (cols / CHUNK) * (CHUNK * format.bits + 2 * BLOCK_ROWS);
  }
  if (format.kind === 'symmetric') return (cols / CHUNK) * (CHUNK * format.bits + 2 * BLOCK_ROWS);
  if (format.kind === 'lut4') {
    const scales = (format.scale === 'f16' || format.scale === 'f32-e4m3' ? 2 : 1) * BLOCK_ROWS;
    const heads = format.scale === 'f16-i8' ? (cols / SUPERBLOCK) * 2 * BLOCK_ROWS : 0;
    return heads + (cols / CHUNK) * (CHUNK * 4 + scales);
  }
  const { bits, groupSize, dtype } = format;
  return (cols / groupSize) * (groupSize * bits + groupMetaBytes(dtype));
}

/**
 * Bytes that rows of one format take, factors and biases included. A multiple of 64. Parts that follow one another
 * in one format share a segment: add their rows up first. Neither precision nor use changes the layout: a tied
 * embedding is gathered from the very bytes that are multiplied with.
 */
export function packedBytes(rows: number, cols: number, format: MatrixFormat): number {
  const blocks = blockCount(rows);
  const bytes = blocks * blockBytes(cols, format) + blocks * BLOCK_ROWS * 8;
  return Math.ceil(bytes / 64) * 64;
}
