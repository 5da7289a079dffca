/** Seeded random numbers and 16-bit float conversions for references. Written apart from the product's own. */

/** splitmix32: a small seeded generator, uniform in [0, 1). */
export class Random {
  #state: number;
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }
  /** Where it stands: set, it goes on from there. */
  get state(): number {
    return this.#state;
  }
  set state(state: number) {
    this.#state = state;
  }
  uniform(): number {
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 4294967296;
  }
  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.uniform())) * Math.cos(2 * Math.PI * this.uniform());
  }
  int(below: number): number {
    return Math.floor(this.uniform() * below);
  }
  normals(length: number, scale = 1): Float32Array {
    const out = new Float32Array(length);
    for (let i = 0; i < length; i++) out[i] = this.normal() * scale;
    return out;
  }
}

const f32 = new Float32Array(1);
const u32 = new Uint32Array(f32.buffer);

const f64 = new Float64Array(1);
const f64Words = new Uint32Array(f64.buffer);
/** 2 to the power of −25 … 15. */
const POWERS = Float64Array.from({ length: 41 }, (_, i) => 2 ** (i - 25));

/** ⌊log₂ x⌋ of a positive number of the normal range. */
function exponentOf(x: number): number {
  f64[0] = x;
  return (f64Words[1]! >>> 20) - 1023;
}

/** Round to nearest even, with subnormals, infinities and NaN. */
export function toF16Bits(value: number): number {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const x = Math.abs(value);
  if (x >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, exponentOf(x));
  const step = POWERS[exponent + 15]!;
  const n = roundHalfEven(x / step);
  // n may reach 2048, which carries into the exponent by itself.
  return sign | (exponent === -14 && n < 1024 ? n : ((exponent + 14) << 10) + n);
}

export function fromF16Bits(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  if (exponent === 0) return sign * fraction * POWERS[1]!;
  return sign * (1024 + fraction) * POWERS[exponent]!;
}

export function roundF16(value: number): number {
  return fromF16Bits(toF16Bits(value));
}

export function toBf16Bits(value: number): number {
  f32[0] = value;
  const bits = u32[0]!;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

export function fromBf16Bits(bits: number): number {
  u32[0] = bits << 16;
  return f32[0]!;
}

function roundHalfEven(x: number): number {
  const down = Math.floor(x);
  const rest = x - down;
  if (rest > 0.5 || (rest === 0.5 && down % 2 === 1)) return down + 1;
  return down;
}

/** ‖a − b‖ / ‖b‖ over one row; NaN if anything is. 0 when both are zero. */
export function relativeError(
  a: ArrayLike<number>,
  b: ArrayLike<number>,
  from = 0,
  length = a.length,
): number {
  let difference = 0;
  let norm = 0;
  for (let i = from; i < from + length; i++) {
    difference += (a[i]! - b[i]!) ** 2;
    norm += b[i]! ** 2;
  }
  if (norm === 0) return difference === 0 ? 0 : Number.POSITIVE_INFINITY;
  return Math.sqrt(difference / norm);
}

/** The largest relative error of any row of `[rows, cols]`. */
export function worstRow(a: ArrayLike<number>, b: ArrayLike<number>, rows: number, cols: number): number {
  let worst = 0;
  for (let r = 0; r < rows; r++) {
    const error = relativeError(a, b, r * cols, cols);
    if (!(error <= worst)) worst = error;
  }
  return worst;
}
