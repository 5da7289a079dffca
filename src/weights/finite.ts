/**
 * Finds NaN and infinities in weights while they are read: a model with one of them answers every request with an error. The bytes
 * are at hand and in the caches then, so that looking at them costs a part of what repacking does.
 */

import type { FloatDtype, MatrixFormat, MatrixRows, MatrixSource, VectorSource } from '../device/weights.js';
import { floatBytes } from '../device/weights.js';
import { KvantError } from '../errors.js';
import { decodeFloats } from './dtypes.js';

/**
 * The same matrix, which throws `weights-not-finite` where a row that is read holds NaN or an infinity. Who takes rows as they are
 * stored looks for them itself, but not in what lies beside codes.
 */
export function finiteMatrix(source: MatrixSource): MatrixSource {
  const { name, rows, cols, format, stored } = source;
  const check = (read: Partial<MatrixRows>, start: number, end: number): void => {
    for (const bytes of floatsOf(read, format)) {
      const at = firstNotFinite(bytes, format.dtype);
      if (at >= 0) throw notFinite(name, start + Math.floor(at / (elements(bytes, format) / (end - start))));
    }
  };
  return {
    name,
    rows,
    cols,
    format,
    stored:
      stored?.type === 'codes'
        ? {
            ...stored,
            async readInto(start, end, into, beside) {
              await stored.readInto(start, end, into, beside);
              check({ ...beside }, start, end);
            },
          }
        : stored,
    async readRows(start, end, room) {
      const read = await source.readRows(start, end, room);
      check(read, start, end);
      return read;
    },
  };
}

/** The same vector, which throws `weights-not-finite` where it holds NaN or an infinity. */
export function finiteVector(source: VectorSource): VectorSource {
  const { name, length } = source;
  return {
    name,
    length,
    async read() {
      const values = await source.read();
      const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
      const at = firstNotFinite(bytes, 'f32');
      if (at >= 0) throw notFinite(name, at);
      return values;
    },
  };
}

/** Codes are whole numbers: of a quantised matrix only scales and biases can be wrong. */
function floatsOf({ data, scales, biases }: Partial<MatrixRows>, format: MatrixFormat): Uint8Array[] {
  if (format.kind === 'float') return data === undefined ? [] : [data];
  // Devices know the exponent that is none.
  if (format.kind === 'lut4' && format.scale === 'e8m0') return [];
  return [scales, biases].filter((bytes) => bytes !== undefined);
}

function elements(bytes: Uint8Array, { dtype }: MatrixFormat): number {
  return bytes.byteLength / floatBytes(dtype);
}

/** Added to a magnitude, this reaches the bit of the sign where the exponent is all ones. */
const CARRY = { bf16: 0x0080_0080, f16: 0x0400_0400, f32: 0x0080_0000 } as const;

/**
 * Where the first number lies that is NaN or an infinity, in elements; -1 if there is none.
 *
 * @param bytes little-endian elements of the dtype
 * @example firstNotFinite(new Uint8Array(Float32Array.of(1, NaN).buffer), 'f32') // 1
 */
export function firstNotFinite(bytes: Uint8Array, dtype: FloatDtype): number {
  const whole = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  const words = new Int32Array(whole.buffer, whole.byteOffset, whole.byteLength >> 2);
  const tail = words.length * 4;
  const rest = whole.subarray(tail);
  if (!holdsNotFinite(words, dtype) && (rest.length === 0 || indexOf(rest, dtype) < 0)) return -1;
  return indexOf(whole, dtype);
}

/** Two halves, or one f32, to a word. Four sums, for one would wait for itself. */
function holdsNotFinite(words: Int32Array, dtype: FloatDtype): boolean {
  const carry = CARRY[dtype];
  const magnitude = dtype === 'f32' ? 0x7fff_ffff : 0x7fff_7fff;
  const signs = dtype === 'f32' ? 1 << 31 : 0x8000_8000 | 0;
  const count = words.length;
  const even = count - (count % 4);
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  for (let i = 0; i < even; i += 4) {
    a |= (words[i]! & magnitude) + carry;
    b |= (words[i + 1]! & magnitude) + carry;
    c |= (words[i + 2]! & magnitude) + carry;
    d |= (words[i + 3]! & magnitude) + carry;
  }
  for (let i = even; i < count; i++) a |= (words[i]! & magnitude) + carry;
  return ((a | b | c | d) & signs) !== 0;
}

function indexOf(bytes: Uint8Array, dtype: FloatDtype): number {
  const values = new Float32Array(bytes.byteLength / floatBytes(dtype));
  decodeFloats(bytes, dtype, values);
  return values.findIndex((value) => !Number.isFinite(value));
}

/** @param row of a matrix, or element of a vector */
export function notFinite(name: string, row: number): KvantError {
  return new KvantError('weights-not-finite', `${name} holds NaN or an infinity (row ${row})`, {
    kind: 'model',
    where: name,
    fix: 'The checkpoint is damaged, or became too large for f16 when it was converted: fetch it again, or take one in bf16 or f32.',
  });
}
