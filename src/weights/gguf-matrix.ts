/** A matrix of a GGUF file, read by ranges of rows and handed out in the layout that devices take. */

import { unpackBlocks } from '../device/blocks/unpack.js';
import type { BlockType } from '../device/blocks/unpackers.js';
import {
  type MatrixFormat,
  type MatrixRows,
  type MatrixSource,
  roomBytes,
  roomRows,
  type StoredRows,
  type VectorSource,
} from '../device/weights.js';
import type { GgufFile } from './gguf.js';
import { blockFormat } from './gguf-blocks.js';
import { unreadType } from './gguf-errors.js';
import type { GgufTensor } from './gguf-header.js';
import { checkRows } from './stored-matrix.js';

/** A tensor with the file that holds it. */
export interface GgufEntry {
  readonly file: GgufFile;
  readonly tensor: GgufTensor;
}

/** What a tensor of a type becomes on a device, exactly. @throws KvantError `weights-gguf-type` */
export function matrixFormat({ name, type }: GgufTensor): MatrixFormat {
  const format = blockFormat(type.name);
  if (format !== undefined) return format;
  throw unreadType(name, type.name);
}

/** Rows of a matrix are rows of the file in another order. */
export interface RowOrder {
  /** Of the matrix, where the file has another number of them: some stand for several then. */
  readonly rows?: number;
  /** Rows stay within runs of so many, all in the same order, and a run is read at once. Default: each is read where it is. */
  readonly within?: number;
  /** The row of the file. */
  of(row: number): number;
}

/**
 * Within each head of so many rows the two halves of the rotated pairs lie beside one another in the file, and one half after the
 * other where families expect them.
 */
export function pairedRows(headRows: number): RowOrder {
  return { within: headRows, of: (row) => pairedRow(row, headRows) };
}

/** The row of the file that a row of the matrix is. */
function pairedRow(row: number, headRows: number): number {
  const within = row % headRows;
  const half = headRows / 2;
  return row - within + 2 * (within % half) + (within >= half ? 1 : 0);
}

/**
 * Within the first `rotary` rows of each head the two halves of the rotated pairs stand one after the other in the file, and beside one
 * another where families expect them.
 */
export function halvedRows(headRows: number, rotary: number): RowOrder {
  const of = (row: number): number => {
    const within = row % headRows;
    return within >= rotary ? row : row - within + (within % 2) * (rotary / 2) + (within >> 1);
  };
  return { within: headRows, of };
}

export class GgufMatrix implements MatrixSource {
  readonly name: string;
  readonly rows: number;
  readonly cols: number;
  readonly format: MatrixFormat;
  readonly stored: StoredRows | undefined;
  readonly #entry: GgufEntry;
  readonly #rowBytes: number;
  readonly #order: RowOrder | undefined;
  readonly #factor: VectorSource | undefined;
  #numbers: Promise<Float32Array> | undefined;
  #buffer: ArrayBuffer | undefined;

  /**
   * @param entry a tensor of two dimensions; with an `order`, of whole runs
   * @param factor of NVFP4: what all of it, or each matrix of a stack, is multiplied with. Default: 1
   */
  constructor(name: string, entry: GgufEntry, order?: RowOrder, factor?: VectorSource) {
    const { tensor } = entry;
    const [rows, cols] = tensor.shape as [number, number];
    this.name = name;
    this.rows = order?.rows ?? rows;
    this.cols = cols;
    this.format = matrixFormat(tensor);
    this.#entry = entry;
    this.#rowBytes = tensor.byteLength / rows;
    this.#order = order;
    this.#factor = factor;
    this.stored = this.#stored();
  }

  /** Not of rows that have a number of their own beside their blocks, or lie anywhere in the file. */
  #stored(): StoredRows | undefined {
    const { cols, format } = this;
    const { file, tensor } = this.#entry;
    const order = this.#order;
    if (format.kind === 'lut4' && format.scale === 'f32-e4m3') return undefined;
    if (order !== undefined && (order.rows !== undefined || (order.within ?? 1) % 8 !== 0)) return undefined;
    const floats = format.kind === 'float';
    return {
      type: floats ? 'floats' : (tensor.type.name as BlockType),
      rowBytes: this.#rowBytes,
      rowBlocks: floats ? 0 : cols / tensor.type.elements,
      order: order && { within: order.within!, of: order.of },
      readInto: async (start, end, into) => {
        checkRows(this, start, end);
        await file.readInto(tensor, start * this.#rowBytes, into);
      },
    };
  }

  async readRows(start: number, end: number, room?: ArrayBuffer): Promise<MatrixRows> {
    checkRows(this, start, end);
    const rows = end - start;
    const bytes = roomBytes(this.cols, this.format, rows);
    const buffer = room !== undefined && room.byteLength >= bytes ? room : this.#room(bytes);
    const out = roomRows(buffer, this.cols, this.format, rows);
    // What was read and handed out lives on as long as its reader keeps it.
    if (end === this.rows) this.#buffer = undefined;
    const { format } = this;
    if (rows === 0) return out;
    if (format.kind === 'float') {
      await this.#read(start, end, out.data);
      return out;
    }
    const { file, tensor } = this.#entry;
    const stored = rows * this.#rowBytes;
    const blocks = file.staging.take(stored);
    const read = new Uint8Array(blocks, 0, stored);
    await this.#read(start, end, read);
    unpackBlocks(tensor.type.name as BlockType, read, (rows * this.cols) / tensor.type.elements, out);
    file.staging.give(blocks);
    if (format.kind === 'lut4' && format.scale === 'f32-e4m3')
      await this.#writeFactors(start, end, out.scales!);
    return out;
  }

  /** The number of each row: 1, or that of the tensor or of each matrix in it. */
  async #writeFactors(start: number, end: number, to: Uint8Array): Promise<void> {
    this.#numbers ??= this.#factor?.read() ?? Promise.resolve(Float32Array.of(1));
    const numbers = await this.#numbers;
    const of = (row: number): number => numbers[Math.floor((row * numbers.length) / this.rows)]!;
    const factors = Float32Array.from({ length: end - start }, (_, i) => of(start + i));
    to.set(new Uint8Array(factors.buffer));
  }

  /** Reads rows as the file stores them, in the order of the matrix. */
  async #read(start: number, end: number, into: Uint8Array): Promise<void> {
    const { file, tensor } = this.#entry;
    const size = this.#rowBytes;
    const order = this.#order;
    if (order === undefined) {
      await file.readInto(tensor, start * size, into);
      return;
    }
    const { within } = order;
    if (within === undefined) {
      for (let row = start, next = row; row < end; row = next) {
        const from = order.of(row);
        do next++;
        while (next < end && order.of(next) === from + next - row);
        await file.readInto(tensor, from * size, into.subarray((row - start) * size, (next - start) * size));
      }
      return;
    }
    const first = Math.floor(start / within) * within;
    const last = Math.min(this.rows, Math.ceil(end / within) * within);
    const room = file.staging.take((last - first) * size);
    const stored = new Uint8Array(room, 0, (last - first) * size);
    await file.readInto(tensor, first * size, stored);
    for (let row = start; row < end; row++) {
      const from = (order.of(row) - first) * size;
      into.set(stored.subarray(from, from + size), (row - start) * size);
    }
    file.staging.give(room);
  }

  #room(bytes: number): ArrayBuffer {
    if (this.#buffer === undefined || this.#buffer.byteLength < bytes) this.#buffer = new ArrayBuffer(bytes);
    return this.#buffer;
  }
}
