/** The header of a GGUF file, read in pieces: every count and length is held against what is left of the file. */

import { KvantError } from '../errors.js';
import { blockFormat } from './gguf-blocks.js';
import { headerError, unreadType } from './gguf-errors.js';
import {
  ARRAY_TYPE,
  GgufArray,
  GgufMetadata,
  type GgufValue,
  NUMBER_BYTES,
  readNumber,
  STRING_TYPE,
} from './gguf-metadata.js';
import { type GgufType, ggufType, otherTypeName } from './gguf-types.js';
import { truncated } from './read-at.js';

const PIECE_BYTES = 1 << 20;
/** The largest known headers have some 20 MB, most of it a vocabulary and its merges. */
const MAX_HEADER_BYTES = 256 << 20;
/** What ggml allows. */
const MAX_DIMS = 4;
const MAX_KEY_BYTES = 65_535;
const DEFAULT_ALIGNMENT = 32;
/** The fewest bytes that a key, and a tensor, take. */
const LEAST_KEY_BYTES = 13;
const LEAST_TENSOR_BYTES = 32;
const LEAST_LIST_BYTES = 12;
/** Of lists in lists. */
const MAX_DEPTH = 8;

export interface GgufTensor {
  readonly name: string;
  readonly type: GgufType;
  /** Outermost first, as everywhere in kvant; the file has them the other way round. */
  readonly shape: readonly number[];
  /** Where the tensor begins, in bytes from the start of the file. */
  readonly start: number;
  readonly byteLength: number;
}

export interface GgufHeader {
  readonly version: number;
  readonly metadata: GgufMetadata;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

export class GgufHeaderReader {
  readonly #path: string;
  readonly #fileSize: number;
  readonly #readAt: (target: Uint8Array, at: number) => Promise<void>;
  /** What was read so far, from the start of the file; `#filled` bytes of it. */
  #bytes = Buffer.alloc(0);
  #filled = 0;
  #at = 0;

  constructor(path: string, fileSize: number, readAt: (target: Uint8Array, at: number) => Promise<void>) {
    this.#path = path;
    this.#fileSize = fileSize;
    this.#readAt = readAt;
  }

  async read(): Promise<GgufHeader> {
    await this.#need(8);
    const version = this.#bytes.readUInt32LE(4);
    if (version !== 2 && version !== 3) throw this.#otherVersion(version);
    this.#at = 8;
    const tensorCount = await this.#count('tensors', LEAST_TENSOR_BYTES);
    const keyCount = await this.#count('keys', LEAST_KEY_BYTES);
    const values = new Map<string, GgufValue>();
    for (let i = 0; i < keyCount; i++) {
      const key = await this.#text('a key', MAX_KEY_BYTES);
      if (values.has(key)) throw this.#broken(`it has the key ${quote(key)} twice`);
      values.set(key, await this.#value(key));
    }
    const metadata = new GgufMetadata(this.#path, values);
    const alignment = metadata.number('general.alignment') ?? DEFAULT_ALIGNMENT;
    if (!Number.isSafeInteger(alignment) || alignment < 1 || !Number.isInteger(Math.log2(alignment)))
      throw this.#broken(`general.alignment is ${alignment}, which is no power of two`);
    const listed: Listed[] = [];
    const names = new Set<string>();
    for (let i = 0; i < tensorCount; i++) {
      const tensor = await this.#tensor(alignment);
      if (names.has(tensor.name)) throw this.#broken(`it has the tensor ${quote(tensor.name)} twice`);
      names.add(tensor.name);
      listed.push(tensor);
    }
    const dataStart = Math.ceil(this.#at / alignment) * alignment;
    return { version, metadata, tensors: this.#place(listed, dataStart) };
  }

  /** Makes sure that so many bytes from here on are at hand. */
  async #need(bytes: number): Promise<void> {
    const end = this.#at + bytes;
    if (end <= this.#filled) return;
    if (!Number.isSafeInteger(end) || end > this.#fileSize)
      throw truncated(this.#path, `its header needs byte ${end} and the file has ${this.#fileSize}`);
    if (end > MAX_HEADER_BYTES)
      throw this.#broken(`its header has more than ${MAX_HEADER_BYTES} bytes, the most that is allowed`);
    const wanted = Math.min(this.#fileSize, MAX_HEADER_BYTES, Math.max(end, this.#filled + PIECE_BYTES));
    if (wanted > this.#bytes.length) {
      const larger = Buffer.alloc(Math.max(wanted, Math.min(2 * this.#bytes.length, MAX_HEADER_BYTES)));
      this.#bytes.copy(larger, 0, 0, this.#filled);
      this.#bytes = larger;
    }
    await this.#readAt(this.#bytes.subarray(this.#filled, wanted), this.#filled);
    this.#filled = wanted;
  }

  async #u32(): Promise<number> {
    await this.#need(4);
    const value = this.#bytes.readUInt32LE(this.#at);
    this.#at += 4;
    return value;
  }

  async #u64(): Promise<number> {
    await this.#need(8);
    const value = this.#bytes.readBigUInt64LE(this.#at);
    this.#at += 8;
    // What is no whole number of a double is more than any file has.
    return value > BigInt(Number.MAX_SAFE_INTEGER) ? Number.POSITIVE_INFINITY : Number(value);
  }

  /** As {@link #u64} of numbers below 2^32 that are read already; undefined, and nothing taken, for others. */
  #u64AtHand(): number | undefined {
    if (this.#at + 8 > this.#filled || this.#bytes.readUInt32LE(this.#at + 4) !== 0) return undefined;
    const value = this.#bytes.readUInt32LE(this.#at);
    this.#at += 8;
    return value;
  }

  /** A number of things that take at least so many bytes each. */
  async #count(what: string, leastBytes: number): Promise<number> {
    const count = await this.#u64();
    if (count * leastBytes > this.#fileSize - this.#at)
      throw truncated(
        this.#path,
        `it claims ${shownCount(count)} ${what}, more than its ${this.#fileSize} bytes can hold`,
      );
    return count;
  }

  async #text(what: string, most: number): Promise<string> {
    const length = await this.#u64();
    if (length > most) throw this.#broken(`${what} claims ${length} bytes (at most ${most} are allowed)`);
    await this.#need(length);
    const text = this.#bytes.toString('utf8', this.#at, this.#at + length);
    this.#at += length;
    return text;
  }

  async #value(key: string): Promise<GgufValue> {
    const type = await this.#u32();
    if (type === STRING_TYPE) return await this.#text(`the value of ${quote(key)}`, MAX_HEADER_BYTES);
    if (type === ARRAY_TYPE) return await this.#array(key);
    const size = NUMBER_BYTES[type];
    if (size === undefined)
      throw this.#broken(`the value of ${quote(key)} is of type ${type}, which is unknown`);
    await this.#need(size);
    const value = readNumber(this.#bytes, type, this.#at);
    this.#at += size;
    return type === 7 ? value !== 0 : value;
  }

  async #array(key: string, depth = 0): Promise<GgufArray> {
    const type = await this.#u32();
    const size =
      type === ARRAY_TYPE && depth < MAX_DEPTH
        ? LEAST_LIST_BYTES
        : type === STRING_TYPE
          ? 8
          : NUMBER_BYTES[type];
    if (size === undefined)
      throw this.#broken(`${quote(key)} is a list of type ${type}, which lists cannot hold`);
    const length = await this.#count(`elements of ${quote(key)}`, size);
    const start = this.#at;
    if (type === ARRAY_TYPE) {
      // Nothing of a model is said so: they are read over.
      for (let i = 0; i < length; i++) await this.#array(key, depth + 1);
    } else if (type === STRING_TYPE) {
      for (let i = 0; i < length; i++) {
        // Most of a header: what is at hand is not waited for.
        const bytes = this.#u64AtHand() ?? (await this.#u64());
        if (bytes > MAX_HEADER_BYTES) throw this.#broken(`an element of ${quote(key)} claims ${bytes} bytes`);
        if (this.#at + bytes > this.#filled) await this.#need(bytes);
        this.#at += bytes;
      }
    } else {
      await this.#need(length * size);
      this.#at += length * size;
    }
    // A copy, so that the header is not kept for one list of it.
    return new GgufArray(type, length, Buffer.from(this.#bytes.subarray(start, this.#at)));
  }

  async #tensor(alignment: number): Promise<Listed> {
    const name = await this.#text('the name of a tensor', MAX_KEY_BYTES);
    const dims = await this.#u32();
    if (dims < 1 || dims > MAX_DIMS)
      throw this.#broken(`${quote(name)} has ${dims} dimensions (1 to ${MAX_DIMS} are allowed)`);
    const shape: number[] = [];
    for (let i = 0; i < dims; i++) shape.unshift(await this.#u64());
    const id = await this.#u32();
    const offset = await this.#u64();
    const type = ggufType(id);
    if (type === undefined) throw unknownType(this.#path, name, id);
    const elements = shape.reduce((product, size) => product * size, 1);
    if (!Number.isSafeInteger(elements) || shape.some((size) => size < 1))
      throw this.#broken(`the shape of ${quote(name)} is absurd: [${shape}]`);
    const row = shape.at(-1)!;
    if (row % type.elements !== 0) {
      // Of a type that is not read anyway its blocks are no news.
      if (blockFormat(type.name) === undefined) throw unreadType(name, type.name);
      throw this.#broken(
        `${quote(name)} has rows of ${row}, and ${type.name} comes in blocks of ${type.elements}`,
      );
    }
    if (offset % alignment !== 0)
      throw this.#broken(`${quote(name)} is at ${shownCount(offset)}, which is no multiple of ${alignment}`);
    return { name, type, shape, offset, byteLength: (elements / type.elements) * type.bytes };
  }

  /** Tensors may stand in any order, with padding between them, but never share a byte. */
  #place(listed: readonly Listed[], dataStart: number): Map<string, GgufTensor> {
    const tensors = new Map<string, GgufTensor>();
    for (const { offset, ...tensor } of listed) {
      const start = dataStart + offset;
      const end = start + tensor.byteLength;
      if (!Number.isSafeInteger(end) || end > this.#fileSize)
        throw truncated(
          this.#path,
          `${quote(tensor.name)} ends at byte ${end} and the file has ${this.#fileSize}`,
        );
      tensors.set(tensor.name, { ...tensor, start });
    }
    let at = 0;
    let previous = '';
    for (const tensor of [...tensors.values()].sort((a, b) => a.start - b.start)) {
      if (tensor.start < at) throw this.#broken(`${quote(tensor.name)} overlaps ${previous}`);
      at = tensor.start + tensor.byteLength;
      previous = quote(tensor.name);
    }
    return tensors;
  }

  #broken(what: string): KvantError {
    return headerError(this.#path, what);
  }

  #otherVersion(version: number): KvantError {
    const swapped = version >= 1 << 24 && version % (1 << 24) === 0;
    const what = swapped ? 'a big-endian GGUF file' : `a GGUF file of version ${version}`;
    return new KvantError('weights-gguf-version', `${this.#path} is ${what}; versions 2 and 3 are read`, {
      kind: 'unsupported',
      where: this.#path,
      fix: swapped
        ? 'Take the little-endian file, or convert it with gguf_convert_endian.py of llama.cpp.'
        : 'Convert the model again with a current version of llama.cpp.',
    });
  }
}

interface Listed extends Omit<GgufTensor, 'start'> {
  /** From where the data begins. */
  readonly offset: number;
}

function unknownType(path: string, name: string, id: number): KvantError {
  return new KvantError('weights-dtype', `${path}: ${quote(name)} is of type ${otherTypeName(id)}`, {
    kind: 'unsupported',
    where: name,
    fix: 'Use a file in Q4_K_M, Q8_0 or another type that docs/gguf.md lists, or convert the model again with a current llama.cpp.',
  });
}

/** Numbers above 2^53 are read as no number. */
function shownCount(count: number): string {
  return Number.isFinite(count) ? String(count) : 'more than 2^53';
}

/** A name in quotes, cut where it is absurdly long. */
function quote(name: string): string {
  return JSON.stringify(name.length > 200 ? `${name.slice(0, 200)}…` : name);
}
