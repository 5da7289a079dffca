/**
 * f16 numbers as the kernels want them: times a power of two that leaves no subnormals. All f16 numbers are multiples
 * of 2^-24, so times 2^10 they are all normal; a row whose largest number is 64 or more takes a smaller power and
 * keeps its subnormals (right as well, only slower).
 */
const MAX_SHIFT = 10;

/** The largest power (0…10) that a row may be scaled by, -1 if it holds an infinity or NaN. */
export function halfShift(magnitude: number): number {
  const exponent = magnitude >> 10;
  if (exponent === 31) return -1;
  return Math.min(MAX_SHIFT, 30 - exponent);
}

const tables: (Uint16Array | undefined)[] = [];

/** For every f16 pattern that of the number times 2^shift. Exact wherever {@link halfShift} allows the shift. */
export function halfShiftTable(shift: number): Uint16Array {
  let table = tables[shift];
  if (table === undefined) {
    table = new Uint16Array(65536);
    for (let h = 0; h < 65536; h++) table[h] = (h & 0x8000) | shifted(h & 0x7fff, shift);
    tables[shift] = table;
  }
  return table;
}

function shifted(magnitude: number, shift: number): number {
  let exponent = magnitude >> 10;
  let mantissa = magnitude & 0x3ff;
  let left = shift;
  if (exponent === 0) {
    // A subnormal doubles by shifting until its leading bit becomes the implicit one.
    while (left > 0 && mantissa < 0x400) {
      mantissa <<= 1;
      left--;
    }
    if (mantissa < 0x400) return mantissa;
    exponent = 1;
    mantissa &= 0x3ff;
  }
  return (Math.min(31, exponent + left) << 10) | mantissa;
}
