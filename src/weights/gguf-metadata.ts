/** The keys of a GGUF file. Arrays stay bytes until they are asked for: a vocabulary is most of a header. */

import { KvantError } from '../errors.js';

/** Bytes of each type of number, by the number that files carry. */
export const NUMBER_BYTES: Readonly<Record<number, number>> = {
  0: 1,
  1: 1,
  2: 2,
  3: 2,
  4: 4,
  5: 4,
  6: 4,
  7: 1,
  10: 8,
  11: 8,
  12: 8,
};
export const STRING_TYPE = 8;
export const ARRAY_TYPE = 9;
const BOOL_TYPE = 7;

/** A list: all of one type. */
export class GgufArray {
  readonly length: number;
  readonly #type: number;
  readonly #bytes: Buffer;

  /** @param bytes the elements, checked to be whole */
  constructor(type: number, length: number, bytes: Buffer) {
    this.#type = type;
    this.length = length;
    this.#bytes = bytes;
  }

  get isText(): boolean {
    return this.#type === STRING_TYPE;
  }

  /** The elements of an array of strings; undefined for another. */
  texts(): string[] | undefined {
    if (!this.isText) return undefined;
    const out: string[] = new Array(this.length);
    const bytes = this.#bytes;
    let at = 0;
    for (let i = 0; i < this.length; i++) {
      const length = bytes.readUInt32LE(at);
      at += 8;
      out[i] = bytes.toString('utf8', at, at + length);
      at += length;
    }
    return out;
  }

  /** The elements of an array of numbers, true as 1; undefined for another. */
  numbers(): number[] | undefined {
    const size = NUMBER_BYTES[this.#type];
    if (size === undefined) return undefined;
    return Array.from({ length: this.length }, (_, i) => readNumber(this.#bytes, this.#type, i * size));
  }

  /** True for an array of booleans. */
  get isFlags(): boolean {
    return this.#type === BOOL_TYPE;
  }
}

export type GgufValue = number | boolean | string | GgufArray;

/** One number of a header. Those of 64 bits are the nearest double. */
export function readNumber(bytes: Buffer, type: number, at: number): number {
  switch (type) {
    case 0:
    case BOOL_TYPE:
      return bytes.readUInt8(at);
    case 1:
      return bytes.readInt8(at);
    case 2:
      return bytes.readUInt16LE(at);
    case 3:
      return bytes.readInt16LE(at);
    case 4:
      return bytes.readUInt32LE(at);
    case 5:
      return bytes.readInt32LE(at);
    case 6:
      return bytes.readFloatLE(at);
    case 10:
      return Number(bytes.readBigUInt64LE(at));
    case 11:
      return Number(bytes.readBigInt64LE(at));
    default:
      return bytes.readDoubleLE(at);
  }
}

/** All keys of a file, each checked when it is asked for. */
export class GgufMetadata {
  readonly path: string;
  readonly #values: ReadonlyMap<string, GgufValue>;

  constructor(path: string, values: ReadonlyMap<string, GgufValue>) {
    this.path = path;
    this.#values = values;
  }

  /** The same with keys of another value, and more of them. */
  with(others: ReadonlyMap<string, GgufValue>): GgufMetadata {
    return new GgufMetadata(this.path, new Map([...this.#values, ...others]));
  }

  keys(): string[] {
    return [...this.#values.keys()];
  }

  has(key: string): boolean {
    return this.#values.has(key);
  }

  value(key: string): GgufValue | undefined {
    return this.#values.get(key);
  }

  text(key: string): string | undefined {
    const value = this.#values.get(key);
    if (value === undefined || typeof value === 'string') return value;
    throw this.odd(key, 'a string');
  }

  flag(key: string): boolean | undefined {
    const value = this.#values.get(key);
    if (value === undefined || typeof value === 'boolean') return value;
    throw this.odd(key, 'true or false');
  }

  number(key: string): number | undefined {
    const value = this.#values.get(key);
    if (value === undefined || (typeof value === 'number' && Number.isFinite(value))) return value;
    throw this.odd(key, 'a number');
  }

  /** A whole number of at least `min`. */
  count(key: string, min = 1): number | undefined {
    const value = this.number(key);
    if (value === undefined || (Number.isSafeInteger(value) && value >= min)) return value;
    throw this.odd(key, `a whole number of at least ${min}`);
  }

  texts(key: string): string[] | undefined {
    return this.#array(key, 'a list of strings', (array) => array.texts());
  }

  numbers(key: string): number[] | undefined {
    return this.#array(key, 'a list of numbers', (array) => array.numbers());
  }

  #array<T>(key: string, wanted: string, read: (array: GgufArray) => T | undefined): T | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    const found = value instanceof GgufArray ? read(value) : undefined;
    if (found === undefined) throw this.odd(key, wanted);
    return found;
  }

  /** An error that names a key of this file. */
  odd(key: string, wanted: string): KvantError {
    const value = this.#values.get(key);
    const has =
      value === undefined
        ? 'is missing'
        : value instanceof GgufArray
          ? `is a list of ${value.length}`
          : `is ${JSON.stringify(shown(value))}`;
    return new KvantError('model-config', `${this.path}: ${key} ${has}; ${wanted} is needed`, {
      kind: 'model',
      where: key,
      fix: 'Fetch the file again, or have it converted again with a current version of the tool that made it.',
    });
  }
}

/** As an error shows it: cut where it is absurdly long, and never null. */
function shown(value: number | boolean | string): number | boolean | string {
  if (typeof value === 'string' && value.length > 200) return `${value.slice(0, 200)}…`;
  return typeof value === 'number' && !Number.isFinite(value) ? String(value) : value;
}
