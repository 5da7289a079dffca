import { method } from './arguments.js';
import { PythonError, valueError } from './errors.js';
import { floatRepr, ratioOf } from './numbers.js';
import { type Callable, integerOf, Tuple, type Value } from './values.js';

/** Attributes of int, bool and float. */
export function numberAttribute(value: Value, name: string): Value | undefined {
  const integer = integerOf(value);
  const plain = (run: () => Value): Callable => method(name, [], run);
  switch (name) {
    case 'real':
    case 'conjugate': {
      const real = integer ?? value;
      return name === 'real' ? real : plain(() => real);
    }
    case 'imag':
      return integer === undefined ? 0 : 0n;
    case 'as_integer_ratio':
      return plain(() => new Tuple(integer === undefined ? finiteRatio(value as number) : [integer, 1n]));
  }
  if (integer === undefined) {
    const float = value as number;
    if (name === 'is_integer') return plain(() => Number.isInteger(float));
    return name === 'hex' ? plain(() => floatHex(float)) : undefined;
  }
  switch (name) {
    case 'numerator':
      return integer;
    case 'denominator':
      return 1n;
    case 'bit_length':
      return plain(() => (integer === 0n ? 0n : BigInt(magnitude(integer).toString(2).length)));
    case 'bit_count':
      return plain(() => BigInt(magnitude(integer).toString(2).replaceAll('0', '').length));
    default:
      return undefined;
  }
}

const magnitude = (value: bigint): bigint => (value < 0n ? -value : value);

function finiteRatio(value: number): readonly [bigint, bigint] {
  if (Number.isNaN(value)) throw valueError('cannot convert NaN to integer ratio');
  if (!Number.isFinite(value))
    throw new PythonError('OverflowError', 'cannot convert Infinity to integer ratio');
  return ratioOf(value);
}

function floatHex(value: number): string {
  if (!Number.isFinite(value)) return floatRepr(value);
  const sign = value < 0 || Object.is(value, -0) ? '-' : '';
  const size = Math.abs(value);
  if (size === 0) return `${sign}0x0.0p+0`;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, size);
  const bits = view.getBigUint64(0);
  const biased = Number(bits >> 52n);
  const exponent = biased === 0 ? -1022 : biased - 1023;
  const digits = (bits & 0xfffffffffffffn).toString(16).padStart(13, '0');
  return `${sign}0x${biased === 0 ? 0 : 1}.${digits}p${exponent < 0 ? '-' : '+'}${Math.abs(exponent)}`;
}
