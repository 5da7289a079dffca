/**
 * Reading GGUF files, versions 2 and 3: `GGUF`, u32 version, u64 tensors, u64 keys; the keys with their values; name, shape, type
 * and offset of each tensor; then the tensors, each at a multiple of `general.alignment` bytes. All numbers little-endian.
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
 *
 * The header says nowhere how long it is: it is read in pieces until its counts are met. It comes from a stranger: no count, length
 * or offset is believed before it was held against the size of the file.
 */

import type { FileHandle } from 'node:fs/promises';
import { Staging } from '../device/staging.js';
import { KvantError } from '../errors.js';
import { refuseForeignFormat } from './foreign-formats.js';
import { headerError } from './gguf-errors.js';
import { GgufHeaderReader, type GgufTensor } from './gguf-header.js';
import type { GgufMetadata } from './gguf-metadata.js';
import { openToRead, readFully, readTensor, truncated } from './read-at.js';

/** A GGUF file, open for reading by position. */
export class GgufFile {
  readonly path: string;
  readonly size: number;
  readonly version: number;
  readonly metadata: GgufMetadata;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
  /** Rooms that stored rows are read into before they become something else. */
  readonly staging = new Staging();
  readonly #handle: FileHandle;

  private constructor(
    path: string,
    size: number,
    header: Pick<GgufFile, 'version' | 'metadata' | 'tensors'>,
    handle: FileHandle,
  ) {
    this.path = path;
    this.size = size;
    this.version = header.version;
    this.metadata = header.metadata;
    this.tensors = header.tensors;
    this.#handle = handle;
  }

  /**
   * Opens a file and checks its header.
   *
   * @throws KvantError `weights-header` where the header breaks the format, `weights-truncated` where it speaks of bytes that the
   * file lacks, `weights-dtype` for a type of tensor that is unknown, `weights-missing`, `weights-unreadable`, and the refusals of
   * {@link refuseForeignFormat}
   * @example
   * await using file = await GgufFile.open('SmolLM2-135M-Instruct.Q4_1.gguf');
   * file.metadata.text('general.architecture') // 'llama'
   */
  static async open(path: string): Promise<GgufFile> {
    const handle = await openToRead(path).catch((cause) => {
      throw openError(path, cause);
    });
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) throw headerError(path, 'it is not a file');
      const head = new Uint8Array(Math.min(64, stat.size));
      await readFully(handle, head, 0, path);
      const ascii = Buffer.from(head).toString('latin1');
      if (!ascii.startsWith('GGUF')) {
        refuseForeignFormat(head, path);
        throw stat.size < 4
          ? truncated(path, `it has ${stat.size} bytes and no header`)
          : headerError(path, 'it does not begin with GGUF');
      }
      const reader = new GgufHeaderReader(path, stat.size, (target, at) =>
        readFully(handle, target, at, path),
      );
      return new GgufFile(path, stat.size, await reader.read(), handle);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /**
   * Fills `target` with the tensor's bytes from `offset` on.
   * @throws KvantError `weights-truncated` when the file became shorter since it was opened
   */
  async readInto(tensor: GgufTensor, offset: number, target: Uint8Array): Promise<void> {
    await readTensor(this.#handle, tensor, offset, target, this.path);
  }

  /** Closes the file. Reads that come later fail. */
  async close(): Promise<void> {
    this.staging.clear();
    await this.#handle.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function openError(path: string, cause: unknown): KvantError {
  const code = (cause as NodeJS.ErrnoException).code;
  const missing = code === 'ENOENT' || code === 'ENOTDIR';
  return new KvantError(
    missing ? 'weights-missing' : 'weights-unreadable',
    missing ? `there is no file ${path}` : `${path} cannot be opened (${code ?? String(cause)})`,
    {
      kind: missing ? 'not-found' : 'model',
      where: path,
      fix: missing
        ? 'Give the path of a GGUF file; of a set of shards all must be there.'
        : 'Check the permissions of the file, and the limit of open files (ulimit -n).',
      cause,
    },
  );
}
