/** Matrices of safetensors files, read by ranges of rows. */

import {
  type MatrixFormat,
  type MatrixRows,
  type MatrixSource,
  roomBytes,
  roomRows,
  rowBytes,
  type StoredRows,
} from '../device/weights.js';
import type { SafetensorsFile, TensorInfo } from './safetensors.js';

/** A tensor with the file that it lies in. */
export interface StoredEntry {
  readonly file: SafetensorsFile;
  readonly tensor: TensorInfo;
}

/** A matrix as it lies in a file: floats, or codes with scales and biases. */
export class StoredMatrix implements MatrixSource {
  readonly name: string;
  readonly rows: number;
  readonly cols: number;
  readonly format: MatrixFormat;
  readonly stored: StoredRows;
  readonly #parts: readonly StoredEntry[];
  readonly #factors: (() => Promise<Float32Array>) | undefined;
  #buffer: ArrayBuffer | undefined;

  /**
   * @param parts codes or floats, scales, biases
   * @param factors a number for each row: `parts` are then codes and subscales
   */
  constructor(
    name: string,
    rows: number,
    cols: number,
    format: MatrixFormat,
    parts: readonly StoredEntry[],
    factors?: () => Promise<Float32Array>,
  ) {
    this.name = name;
    this.rows = rows;
    this.cols = cols;
    this.format = format;
    this.#parts = parts;
    this.#factors = factors;
    const type = format.kind === 'float' ? 'floats' : 'codes';
    const readInto: StoredRows['readInto'] = (start, end, into, beside) =>
      this.#read(start, end, { ...beside, data: into });
    this.stored = { type, rowBytes: rowBytes(cols, format).data, rowBlocks: 0, readInto };
  }

  /** Each part begins at a multiple of 16 bytes, so that typed arrays can be laid over it. */
  async readRows(start: number, end: number, room?: ArrayBuffer): Promise<MatrixRows> {
    checkRows(this, start, end);
    const rows = end - start;
    const bytes = roomBytes(this.cols, this.format, rows);
    const buffer = room !== undefined && room.byteLength >= bytes ? room : this.#room(bytes);
    // The caller's view keeps the bytes alive; a source that has been read to its end need not hold them too.
    if (end === this.rows) this.#buffer = undefined;
    const read = roomRows(buffer, this.cols, this.format, rows);
    await this.#read(start, end, read);
    return read;
  }

  async #read(start: number, end: number, to: MatrixRows): Promise<void> {
    checkRows(this, start, end);
    const one = rowBytes(this.cols, this.format);
    const [weight, scale, bias] = this.#parts as [StoredEntry, StoredEntry?, StoredEntry?];
    const codes = weight.file.readInto(weight.tensor, start * one.data, to.data);
    if (this.#factors !== undefined) {
      await Promise.all([
        codes,
        this.#factors().then((all) => to.scales!.set(new Uint8Array(all.slice(start, end).buffer))),
        scale!.file.readInto(scale!.tensor, start * one.subscales, to.subscales!),
      ]);
      return;
    }
    await Promise.all([
      codes,
      scale?.file.readInto(scale.tensor, start * one.scales, to.scales!),
      bias?.file.readInto(bias.tensor, start * one.biases, to.biases!),
    ]);
  }

  #room(bytes: number): ArrayBuffer {
    if (this.#buffer === undefined || this.#buffer.byteLength < bytes) this.#buffer = new ArrayBuffer(bytes);
    return this.#buffer;
  }
}

/** A matrix of f64, which no device computes in: read as f32. */
export class DoubleMatrix implements MatrixSource {
  readonly name: string;
  readonly rows: number;
  readonly cols: number;
  readonly format: MatrixFormat = { kind: 'float', dtype: 'f32' };
  readonly #entry: StoredEntry;

  constructor(name: string, rows: number, cols: number, entry: StoredEntry) {
    this.name = name;
    this.rows = rows;
    this.cols = cols;
    this.#entry = entry;
  }

  async readRows(start: number, end: number, room?: ArrayBuffer): Promise<MatrixRows> {
    checkRows(this, start, end);
    const count = (end - start) * this.cols;
    const values = await readDoubles(this.#entry, start * this.cols, count);
    const given = room !== undefined && room.byteLength >= count * 4;
    const narrowed = new Float32Array(given ? room : new ArrayBuffer(count * 4), 0, count);
    narrowed.set(values);
    return { data: new Uint8Array(narrowed.buffer, 0, count * 4) };
  }
}

export async function readDoubles(
  { file, tensor }: StoredEntry,
  first: number,
  count: number,
): Promise<Float64Array> {
  const values = new Float64Array(count);
  await file.readInto(tensor, first * 8, new Uint8Array(values.buffer));
  return values;
}

/** @throws RangeError where `[start, end)` is no range of the matrix's rows */
export function checkRows(source: MatrixSource, start: number, end: number): void {
  if (Number.isInteger(start) && Number.isInteger(end) && 0 <= start && start <= end && end <= source.rows)
    return;
  throw new RangeError(`rows [${start}, ${end}) of ${source.name}, which has ${source.rows}`);
}
