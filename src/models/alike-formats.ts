/**
 * Experts of a stack whose formats differ: MLX's mixed recipes may give gate and up other bits, or groups of other sizes. A kernel reads all of
 * a stack in one format. Affine rows have one in common that stands for the same numbers: codes of more bits, scales of smaller groups.
 */

import { type AffineBits, type MatrixSource, rowBytes } from '../device/weights.js';
import { KvantError } from '../errors.js';
import { type AffineSpec, packCodes, unpackCodes } from '../weights/affine.js';

/**
 * The parts in one format, without a number changed.
 *
 * @throws KvantError `weights-quantization-unsupported` where there is none
 */
export function alike(parts: readonly MatrixSource[]): readonly MatrixSource[] {
  const first = parts[0]!;
  const other = parts.find(({ format }) => JSON.stringify(format) !== JSON.stringify(first.format));
  if (other === undefined) return parts;
  const specs = parts.flatMap(({ format }) => (format.kind === 'affine' ? [format] : []));
  const [one] = specs;
  if (one === undefined || specs.length < parts.length || specs.some(({ dtype }) => dtype !== one.dtype))
    throw unlike(first, other);
  const spec = {
    bits: Math.max(...specs.map(({ bits }) => bits)) as AffineBits,
    groupSize: Math.min(...specs.map(({ groupSize }) => groupSize)) as AffineSpec['groupSize'],
  };
  return parts.map((part) => widened(part, spec));
}

/** `bits` at least those of the source, `groupSize` at most its own. */
function widened(source: MatrixSource, { bits, groupSize }: AffineSpec): MatrixSource {
  const { name, rows, cols, format } = source;
  if (format.kind !== 'affine' || (format.bits === bits && format.groupSize === groupSize)) return source;
  const own = rowBytes(cols, format);
  const wide = { ...format, bits, groupSize };
  const bytes = rowBytes(cols, wide);
  const codes = new Uint8Array(cols);
  return {
    name,
    rows,
    cols,
    format: wide,
    async readRows(start, end) {
      const { data, scales, biases } = await source.readRows(start, end);
      const made = new Uint8Array((end - start) * bytes.data);
      for (let row = 0; row < end - start; row++) {
        unpackCodes(data.subarray(row * own.data, (row + 1) * own.data), format.bits, codes);
        packCodes(codes, bits, made.subarray(row * bytes.data, (row + 1) * bytes.data));
      }
      const times = format.groupSize / groupSize;
      const size = own.scales / (cols / format.groupSize);
      return { data: made, scales: repeated(scales!, size, times), biases: repeated(biases!, size, times) };
    },
  };
}

/** Each number of so many bytes as often as that. */
function repeated(numbers: Uint8Array, size: number, times: number): Uint8Array {
  if (times === 1) return numbers;
  const out = new Uint8Array(numbers.length * times);
  for (let at = 0; at < numbers.length; at += size)
    for (let i = 0; i < times; i++) out.set(numbers.subarray(at, at + size), at * times + i * size);
  return out;
}

function unlike(one: MatrixSource, other: MatrixSource): KvantError {
  return new KvantError(
    'weights-quantization-unsupported',
    `${one.name} and ${other.name} are experts of one layer in formats that have none in common (${nameOf(one)}, ${nameOf(other)})`,
    {
      kind: 'unsupported',
      where: other.name,
      fix: 'Use a checkpoint whose experts of a layer are all quantised in one way, or the unquantised one with --quantize.',
    },
  );
}

function nameOf({ format }: MatrixSource): string {
  if (format.kind === 'float') return format.dtype;
  if (format.kind === 'affine') return `${format.bits}-bit, scales in ${format.dtype}`;
  return format.kind === 'lut4' ? `lut4, scales in ${format.scale}` : `${format.kind} of ${format.bits} bits`;
}
