/**
 * Reading safetensors files: 8 bytes of header length (little-endian u64), a JSON header that gives each
 * tensor's dtype, shape and byte range, then the bytes. Format: https://github.com/huggingface/safetensors.
 *
 * Nothing is read but what is asked for, by position, so a file may be larger than memory. The header comes
 * from a stranger and is checked in full before any of it is believed.
 */

import type { FileHandle } from 'node:fs/promises';
import { KvantError } from '../errors.js';
import { dtypeBytes, isTensorDtype, type TensorDtype } from './dtypes.js';
import { refuseForeignFormat } from './foreign-formats.js';
import { foreignQuantization } from './foreign-quantization.js';
import { findDuplicateKey } from './json-keys.js';
import { openToRead, readFully, readTensor, truncated } from './read-at.js';

/** The format's own limit; a longer header is an attack or not a header. */
export const MAX_HEADER_BYTES = 100_000_000;

export interface TensorInfo {
  readonly name: string;
  readonly dtype: TensorDtype;
  readonly shape: readonly number[];
  /** Where the tensor begins, in bytes from the start of the file. May be far over 4 GiB. */
  readonly start: number;
  readonly byteLength: number;
}

export interface SafetensorsHeader {
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  readonly metadata: Readonly<Record<string, string>>;
}

/**
 * Parses and checks a header.
 *
 * @param json the header's bytes, without the 8 of its length
 * @param fileSize bytes of the whole file
 * @param path names the file in errors
 * @throws KvantError `weights-header` where the header breaks the format, `weights-truncated` where it names
 * bytes that the file lacks, `weights-dtype` for an element type that is unknown or not supported, `weights-quantization-unsupported` for
 * FP8 and FP4 of other quantisers
 */
export function parseHeader(json: Uint8Array, fileSize: number, path: string): SafetensorsHeader {
  let text: string;
  let parsed: unknown;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(json);
    parsed = JSON.parse(text);
  } catch (cause) {
    throw headerError(path, 'the header is not JSON', cause);
  }
  if (!isRecord(parsed)) throw headerError(path, 'the header is not a JSON object');
  const duplicate = findDuplicateKey(text);
  if (duplicate !== undefined) throw headerError(path, `the header has the key ${quote(duplicate)} twice`);

  const dataStart = 8 + json.byteLength;
  const tensors = new Map<string, TensorInfo>();
  let metadata: Record<string, string> = {};
  for (const [name, entry] of Object.entries(parsed)) {
    // What another quantiser wrote is told by its name, rather than by the types that it has for its numbers.
    if (isRecord(entry) && isUnreadFloat(entry.dtype)) {
      const foreign = foreignQuantization(Object.keys(parsed), path);
      if (foreign !== undefined) throw foreign;
    }
    if (name === '__metadata__') metadata = parseMetadata(entry, path);
    else tensors.set(name, parseTensor(name, entry, dataStart, fileSize, path));
  }
  checkLayout(tensors, dataStart, fileSize, path);
  return { tensors, metadata };
}

/** A safetensors file, open for reading by position. */
export class SafetensorsFile {
  readonly path: string;
  readonly size: number;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  readonly metadata: Readonly<Record<string, string>>;
  readonly #handle: FileHandle;

  private constructor(path: string, size: number, header: SafetensorsHeader, handle: FileHandle) {
    this.path = path;
    this.size = size;
    this.tensors = header.tensors;
    this.metadata = header.metadata;
    this.#handle = handle;
  }

  /**
   * Opens a file and checks its header.
   * @throws KvantError as {@link parseHeader}; also `weights-missing`, `weights-unreadable`, and the refusals of
   * {@link refuseForeignFormat}
   */
  static async open(path: string): Promise<SafetensorsFile> {
    let handle: FileHandle;
    try {
      handle = await openToRead(path);
    } catch (cause) {
      throw openError(path, cause);
    }
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) throw headerError(path, 'it is not a file');
      const head = new Uint8Array(Math.min(64, stat.size));
      await readFully(handle, head, 0, path);
      refuseForeignFormat(head, path);
      if (stat.size < 8) throw truncated(path, `it has ${stat.size} bytes and no header`);
      const view = new DataView(head.buffer);
      const length = view.getUint32(4, true) * 2 ** 32 + view.getUint32(0, true);
      if (length > MAX_HEADER_BYTES) {
        throw headerError(
          path,
          `it claims a header of ${length} bytes (at most ${MAX_HEADER_BYTES} are allowed)`,
        );
      }
      if (8 + length > stat.size) {
        throw truncated(path, `its header needs ${length} bytes and the file has ${stat.size}`);
      }
      const json = new Uint8Array(length);
      await readFully(handle, json, 8, path);
      return new SafetensorsFile(path, stat.size, parseHeader(json, stat.size, path), handle);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /**
   * Fills `target` with the tensor's bytes from `offset` on (bytes from the tensor's start).
   * @throws KvantError `weights-truncated` when the file became shorter since it was opened
   */
  async readInto(tensor: TensorInfo, offset: number, target: Uint8Array): Promise<void> {
    await readTensor(this.#handle, tensor, offset, target, this.path);
  }

  /** Closes the file. Reads that come later fail. */
  async close(): Promise<void> {
    await this.#handle.close();
  }
}

function parseMetadata(entry: unknown, path: string): Record<string, string> {
  if (!isRecord(entry)) throw headerError(path, '__metadata__ is not an object');
  const metadata: Record<string, string> = {};
  for (const [key, value] of Object.entries(entry)) {
    if (typeof value !== 'string') throw headerError(path, `__metadata__.${key} is not a string`);
    Object.defineProperty(metadata, key, { value, enumerable: true, configurable: true, writable: true });
  }
  return metadata;
}

/** FP8 and what it scales with: types of the format that are not read. */
const isUnreadFloat = (dtype: unknown): boolean => typeof dtype === 'string' && /^F[48]_/.test(dtype);

function parseTensor(
  name: string,
  entry: unknown,
  dataStart: number,
  fileSize: number,
  path: string,
): TensorInfo {
  if (!isRecord(entry)) throw headerError(path, `the entry of ${quote(name)} is not an object`);
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== 'string') throw headerError(path, `${quote(name)} has no dtype`);
  if (!isTensorDtype(dtype)) {
    throw new KvantError(
      'weights-dtype',
      `${path}: ${quote(name)} is of dtype ${quote(dtype)}, which is not supported`,
      {
        kind: 'unsupported',
        where: name,
        fix: 'Use a checkpoint in F32, F16 or BF16, or one quantised with mlx-lm or `kvant quantize`.',
      },
    );
  }
  if (!isIntegers(shape)) throw headerError(path, `the shape of ${quote(name)} is not a list of sizes`);
  if (!isIntegers(offsets) || offsets.length !== 2) {
    throw headerError(path, `data_offsets of ${quote(name)} is not a pair of offsets`);
  }
  const [begin, end] = offsets as [number, number];
  if (end < begin) throw headerError(path, `${quote(name)} ends (${end}) before it begins (${begin})`);
  let expected = dtypeBytes(dtype);
  for (const size of shape) expected *= size;
  if (!Number.isSafeInteger(expected))
    throw headerError(path, `the shape of ${quote(name)} is absurd: [${shape}]`);
  if (expected !== end - begin) {
    throw headerError(
      path,
      `${quote(name)} has ${end - begin} bytes, but ${dtype} of shape [${shape}] takes ${expected}`,
    );
  }
  const start = dataStart + begin;
  if (dataStart + end > fileSize) {
    throw truncated(path, `${quote(name)} ends at byte ${dataStart + end} and the file has ${fileSize}`);
  }
  return { name, dtype, shape, start, byteLength: end - begin };
}

/** The format allows neither overlaps nor gaps: every byte of the data belongs to one tensor. */
function checkLayout(
  tensors: ReadonlyMap<string, TensorInfo>,
  dataStart: number,
  fileSize: number,
  path: string,
) {
  const sorted = [...tensors.values()].sort((a, b) => a.start - b.start || a.byteLength - b.byteLength);
  let at = dataStart;
  let previous = 'the header';
  for (const tensor of sorted) {
    if (tensor.start < at) throw headerError(path, `${quote(tensor.name)} overlaps ${previous}`);
    if (tensor.start > at) {
      throw headerError(path, `${tensor.start - at} bytes before ${quote(tensor.name)} belong to no tensor`);
    }
    at = tensor.start + tensor.byteLength;
    previous = quote(tensor.name);
  }
  if (at !== fileSize) throw headerError(path, `${fileSize - at} bytes at its end belong to no tensor`);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isIntegers(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0);
}

/** A tensor's name in quotes, cut where it is absurdly long. */
function quote(name: string): string {
  return JSON.stringify(name.length > 200 ? `${name.slice(0, 200)}…` : name);
}

function headerError(path: string, what: string, cause?: unknown): KvantError {
  return new KvantError('weights-header', `${path} is not a valid safetensors file: ${what}`, {
    kind: 'model',
    where: path,
    fix: 'Download the file again, or have it written again by the tool that made it.',
    ...(cause === undefined ? {} : { cause }),
  });
}

function openError(path: string, cause: unknown): KvantError {
  const code = (cause as NodeJS.ErrnoException).code;
  if (code === 'ENOENT' || code === 'ENOTDIR') {
    return new KvantError('weights-missing', `there is no file ${path}`, {
      kind: 'not-found',
      where: path,
      fix: 'Fetch the model again: a weight file is missing.',
      cause,
    });
  }
  return new KvantError('weights-unreadable', `${path} cannot be opened (${code ?? String(cause)})`, {
    kind: 'model',
    where: path,
    fix:
      code === 'EMFILE' || code === 'ENFILE'
        ? 'Raise the limit of open files (ulimit -n).'
        : 'Check the permissions of the file.',
    cause,
  });
}
