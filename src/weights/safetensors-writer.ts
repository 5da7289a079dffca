/** Writing safetensors files whose tensors are produced piece by piece, in any order, by position. */

import { type FileHandle, open } from 'node:fs/promises';
import { dtypeBytes, type TensorDtype } from './dtypes.js';

/** A tensor to be written. */
export interface OutputTensor {
  readonly name: string;
  readonly dtype: TensorDtype;
  readonly shape: readonly number[];
}

export function tensorBytes(tensor: OutputTensor): number {
  let bytes = dtypeBytes(tensor.dtype);
  for (const size of tensor.shape) bytes *= size;
  return bytes;
}

/**
 * Deals out tensors to shards of at most `maxBytes` in order. Tensors of one unit stay together; a unit that is
 * larger than the limit gets a shard of its own.
 */
export function planShards(units: readonly (readonly OutputTensor[])[], maxBytes: number): OutputTensor[][] {
  const shards: OutputTensor[][] = [];
  let filled = 0;
  for (const unit of units) {
    const bytes = unit.reduce((sum, tensor) => sum + tensorBytes(tensor), 0);
    if (shards.length === 0 || filled + bytes > maxBytes) {
      shards.push([]);
      filled = 0;
    }
    shards.at(-1)!.push(...unit);
    filled += bytes;
  }
  return shards;
}

/** Opens files for writing; a test puts a full disk in its place. */
export type OpenForWriting = (path: string) => Promise<Pick<FileHandle, 'write' | 'datasync' | 'close'>>;

export const openNew: OpenForWriting = (path) => open(path, 'wx');

/** One file being written. */
export class SafetensorsWriter {
  /** Bytes of the finished file. */
  readonly size: number;
  readonly #handle: Awaited<ReturnType<OpenForWriting>>;
  readonly #starts: ReadonlyMap<string, number>;

  private constructor(
    size: number,
    handle: Awaited<ReturnType<OpenForWriting>>,
    starts: ReadonlyMap<string, number>,
  ) {
    this.size = size;
    this.#handle = handle;
    this.#starts = starts;
  }

  /** Creates the file, which must not exist, and writes its header. */
  static async create(
    path: string,
    tensors: readonly OutputTensor[],
    metadata: Readonly<Record<string, string>>,
    openFile: OpenForWriting = openNew,
  ): Promise<SafetensorsWriter> {
    // Wide elements first, so that every tensor is aligned to its own.
    const sorted = [...tensors].sort((a, b) => dtypeBytes(b.dtype) - dtypeBytes(a.dtype));
    const header: Record<string, unknown> = { __metadata__: metadata };
    const offsets = new Map<string, number>();
    let at = 0;
    for (const tensor of sorted) {
      const end = at + tensorBytes(tensor);
      header[tensor.name] = { dtype: tensor.dtype, shape: tensor.shape, data_offsets: [at, end] };
      offsets.set(tensor.name, at);
      at = end;
    }
    const json = Buffer.from(JSON.stringify(header));
    const length = Math.ceil(json.length / 8) * 8;
    const head = Buffer.alloc(8 + length, ' ');
    head.writeBigUInt64LE(BigInt(length));
    json.copy(head, 8);
    const starts = new Map([...offsets].map(([name, offset]) => [name, head.length + offset]));
    const writer = new SafetensorsWriter(head.length + at, await openFile(path), starts);
    try {
      await writer.#writeAt(head, 0);
    } catch (error) {
      await writer.close();
      throw error;
    }
    return writer;
  }

  /** Writes some bytes of a tensor, `offset` bytes from its start. */
  async write(name: string, offset: number, bytes: Uint8Array): Promise<void> {
    const start = this.#starts.get(name);
    if (start === undefined) throw new RangeError(`${name} is not a tensor of this file`);
    await this.#writeAt(bytes, start + offset);
  }

  /** Waits until the bytes are on the disk: a full one may only say so now. */
  async sync(): Promise<void> {
    await this.#handle.datasync();
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  async #writeAt(bytes: Uint8Array, position: number): Promise<void> {
    let done = 0;
    while (done < bytes.byteLength) {
      const { bytesWritten } = await this.#handle.write(
        bytes,
        done,
        bytes.byteLength - done,
        position + done,
      );
      done += bytesWritten;
    }
  }
}
