/** What lies beside the codes of a matrix: scales, biases and the heads of superblocks, in the order of weights-layout.ts. */

import { KvantError } from '../../errors.js';
import {
  type FloatDtype,
  floatBytes,
  type Lut4Scale,
  type MatrixRows,
  type MatrixSource,
} from '../weights.js';
import { bf16ToF32, f32ToF16 } from './half.js';
import { rowMetaWords, type ShardLayout } from './weights-layout.js';

/**
 * Writes those of `count` rows, the first of which is `row`. Errors: `weights-not-exact`, `weights-not-finite`.
 */
export function writeMetas(
  layout: Exclude<ShardLayout, { readonly kind: 'float' }>,
  source: MatrixSource,
  piece: MatrixRows,
  row: number,
  count: number,
  out: Uint32Array,
): void {
  const { format } = source;
  if (layout.kind === 'affine') packMetas(piece.scales!, piece.biases!, format.dtype, layout.meta, out);
  else packHeads(layout, piece, source.cols, out);
  if (layout.kind === 'symmetric') checkImplied(source, layout.bits, piece, count, row);
  if (layout.kind === 'lut4' && holdsNaN(layout.scale, piece)) throw notFinite(source, row);
}

/** Scales and biases, interleaved in the dtype the shard keeps: `out` has a word for each, two where that is f32. */
function packMetas(
  scales: Uint8Array,
  biases: Uint8Array,
  from: FloatDtype,
  to: FloatDtype,
  out: Uint32Array,
): void {
  const count = scales.byteLength / floatBytes(from);
  if (from === 'f32') {
    const s = floats(scales, count);
    const b = floats(biases, count);
    if (to === 'f32') {
      const numbers = new Float32Array(out.buffer, out.byteOffset, count * 2);
      for (let i = 0; i < count; i++) {
        numbers[2 * i] = s[i]!;
        numbers[2 * i + 1] = b[i]!;
      }
    } else for (let i = 0; i < count; i++) out[i] = f32ToF16(s[i]!) | (f32ToF16(b[i]!) << 16);
    return;
  }
  const s = halves(scales, count);
  const b = halves(biases, count);
  if (from === to) for (let i = 0; i < count; i++) out[i] = s[i]! | (b[i]! << 16);
  else
    for (let i = 0; i < count; i++) out[i] = f32ToF16(bf16ToF32(s[i]!)) | (f32ToF16(bf16ToF32(b[i]!)) << 16);
}

/** Whether a scale of one byte is NaN. */
function holdsNaN(scale: Lut4Scale, { scales, subscales }: MatrixRows): boolean {
  if (scale === 'f32-e4m3') return subscales!.includes(0x7f) || subscales!.includes(0xff);
  return scale === 'e8m0' && scales!.includes(255);
}

/** Bytes of groups, then halves of groups or superblocks or the number of the row, as weights-layout.ts lays them out. */
function packHeads(
  layout: Extract<ShardLayout, { kind: 'symmetric' | 'k-quant' | 'lut4' }>,
  piece: MatrixRows,
  cols: number,
  out: Uint32Array,
): void {
  const words = rowMetaWords(layout, cols);
  const rows = out.length / words;
  const exponents = layout.kind === 'lut4' && layout.scale === 'e8m0';
  const bytes = exponents ? piece.scales! : (piece.subscales ?? new Uint8Array(0));
  // A number of 32 bits is two halves to be copied.
  const scales = exponents ? new Uint16Array(0) : halves(piece.scales!, piece.scales!.length / 2);
  const minima = piece.biases === undefined ? null : halves(piece.biases, piece.biases.length / 2);
  const whole = layout.kind === 'lut4' && layout.scale === 'f32-e4m3';
  const byteRow = bytes.length / rows;
  const scaleRow = scales.length / rows;
  const to = new Uint8Array(out.buffer, out.byteOffset, out.byteLength);
  const numbers = new Uint16Array(out.buffer, out.byteOffset, out.length * 2);
  // Some of the last word of a row may belong to nothing.
  out.fill(0);
  for (let row = 0; row < rows; row++) {
    to.set(bytes.subarray(row * byteRow, (row + 1) * byteRow), row * words * 4);
    let at = row * words * 2 + (whole ? Math.ceil(byteRow / 4) * 2 : byteRow / 2);
    for (let i = row * scaleRow; i < (row + 1) * scaleRow; i++) {
      numbers[at++] = scales[i]!;
      if (minima !== null) numbers[at++] = minima[i]!;
    }
  }
}

/** The largest weight that a scale allows is `−2^(bits − 1) · scale`. Kernels on halves have it in f16: exact unless it overflows, which no model's weights come near. */
function checkImplied(
  source: MatrixSource,
  bits: number,
  piece: MatrixRows,
  rows: number,
  firstRow: number,
): void {
  const count = piece.scales!.length / 2;
  const scales = halves(piece.scales!, count);
  // A power of two moves the exponent alone, and f16 ends below 2^16, whose exponent would be 31.
  const tooLarge = (31 - (bits - 1)) << 10;
  for (let i = 0; i < count; i++) {
    const size = scales[i]! & 0x7fff;
    if (size >= tooLarge && size < 0x7c00)
      throw scaleTooLarge(source, firstRow + Math.floor((i * rows) / count));
  }
}

function scaleTooLarge({ name }: MatrixSource, row: number): KvantError {
  return new KvantError(
    'weights-not-exact',
    `${name} holds a scale in row ${row} that is too large to be kept exactly`,
    {
      kind: 'unsupported',
      where: name,
      fix: 'No trained model has such weights: fetch the file again, take one in F16 or F32, or use the CPU.',
    },
  );
}

function notFinite({ name }: MatrixSource, row: number): KvantError {
  return new KvantError('weights-not-finite', `${name} holds a scale that is NaN (row ${row} or later)`, {
    kind: 'model',
    where: name,
    fix: 'The checkpoint is damaged: fetch it again.',
  });
}

function floats(bytes: Uint8Array, count: number): Float32Array {
  const { buffer, at } = aligned(bytes, 4);
  return new Float32Array(buffer, at, count);
}

function halves(bytes: Uint8Array, count: number): Uint16Array {
  const { buffer, at } = aligned(bytes, 2);
  return new Uint16Array(buffer, at, count);
}

/** Bytes as a view of 2 or 4 bytes each; copied where they begin at an address that such a view cannot have. */
function aligned(bytes: Uint8Array, size: 2 | 4): { readonly buffer: ArrayBufferLike; readonly at: number } {
  if (bytes.byteOffset % size === 0) return { buffer: bytes.buffer, at: bytes.byteOffset };
  return { buffer: bytes.slice().buffer, at: 0 };
}
