/**
 * Weights on the GPU. A matrix is streamed by rows, in pieces small enough that Dawn's own staging ring takes them,
 * and cut into shards (weights-layout.ts) so that each fits one binding and has one format.
 */

import { KvantError } from '../../errors.js';
import type { Matrix, MatrixOptions, Vector } from '../device.js';
import type { Staging } from '../staging.js';
import {
  columnUnit,
  holdsRows,
  type MatrixRows,
  type MatrixSource,
  roomBytes,
  rowBytes,
  type VectorSource,
  wholeRowBytes,
} from '../weights.js';
import type { Allocator } from './allocator.js';
import { USAGE } from './constants.js';
import { writeMetas } from './matrix-metas.js';
import { rowMetaWords, rowWords, type ShardLayout, shardLayout } from './weights-layout.js';

export interface Shard {
  readonly rowStart: number;
  readonly rows: number;
  readonly layout: ShardLayout;
  readonly codes: GPUBuffer;
  readonly metas: GPUBuffer | null;
  /** f32 `[rows]`. */
  readonly bias: GPUBuffer | null;
}

export class GpuMatrix implements Matrix {
  readonly kind = 'matrix';
  readonly rows: number;
  readonly cols: number;
  readonly bytes: number;
  readonly shards: readonly Shard[];

  constructor(rows: number, cols: number, bytes: number, shards: readonly Shard[]) {
    this.rows = rows;
    this.cols = cols;
    this.bytes = bytes;
    this.shards = shards;
  }
}

export class GpuVector implements Vector {
  readonly kind = 'vector';
  readonly length: number;
  readonly buffer: GPUBuffer;

  constructor(length: number, buffer: GPUBuffer) {
    this.length = length;
    this.buffer = buffer;
  }
}

/** Copied from where a kernel wants two in one binding. */
const VECTOR_USAGE = USAGE.STORAGE | USAGE.COPY_DST | USAGE.COPY_SRC;

/** Most bytes in one writeBuffer. */
const PIECE_BYTES = 2 * 1024 * 1024;
/** Bytes written before the host waits for the GPU to take them, so that staging memory stays bounded. */
const WINDOW_BYTES = 64 * 1024 * 1024;

export interface LoadTarget {
  readonly device: GPUDevice;
  readonly allocator: Allocator;
  /** Metas as f16, for kernels that read nothing else. */
  readonly f16: boolean;
  /** Most bytes in a buffer of a shard. */
  readonly shardBytes: number;
  /** What pieces are read into. */
  readonly staging: Staging;
}

/** Rows of consecutive parts that lie in memory alike. */
interface Run {
  readonly layout: ShardLayout;
  readonly rowStart: number;
  rows: number;
}

export async function loadMatrix(
  target: LoadTarget,
  parts: readonly MatrixSource[],
  options: MatrixOptions,
): Promise<GpuMatrix> {
  const cols = parts[0]?.cols ?? 0;
  for (const part of parts) checkPart(part, cols);
  if (parts.length === 0) throw shapeError('loadMatrix', 'no parts');
  const rows = parts.reduce((sum, part) => sum + part.rows, 0);

  const bias = await readBias(parts, options, rows);
  const shards: Shard[] = [];
  try {
    for (const run of runsOf(parts, target.f16))
      shards.push(...allocate(target, run, cols, bias, parts[0]!.name, options.unit ?? 1));
    await target.allocator.settle();
    const upload = new Upload(target, shards, cols, options.onBytes);
    let start = 0;
    for (const part of parts) {
      await upload.part(part, start);
      start += part.rows;
    }
    await upload.finish();
  } catch (error) {
    for (const shard of shards) freeShard(target.allocator, shard);
    throw error;
  }
  let bytes = 0;
  for (const { codes, metas, bias: b } of shards) bytes += codes.size + (metas?.size ?? 0) + (b?.size ?? 0);
  return new GpuMatrix(rows, cols, bytes, shards);
}

export async function loadVector(target: LoadTarget, source: VectorSource): Promise<GpuVector> {
  const values = await source.read();
  if (values.length !== source.length) {
    throw shapeError(source.name, `${values.length} numbers, ${source.length} are stated`);
  }
  const buffer = target.allocator.create(source.name, source.length * 4, VECTOR_USAGE);
  try {
    await target.allocator.settle();
  } catch (error) {
    target.allocator.destroy(buffer);
    throw error;
  }
  target.device.queue.writeBuffer(buffer, 0, values as Float32Array<ArrayBuffer>);
  return new GpuVector(source.length, buffer);
}

function checkPart(part: MatrixSource, cols: number): void {
  if (part.cols !== cols) throw shapeError(part.name, `${part.cols} columns are stacked on ${cols}`);
  if (part.rows < 1 || part.cols < 1) throw shapeError(part.name, `shape [${part.rows}, ${part.cols}]`);
  const unit = columnUnit(part.format);
  if (part.cols % unit !== 0)
    throw shapeError(part.name, `${part.cols} columns are no multiple of the group size ${unit}`);
}

function shapeError(where: string, message: string): KvantError {
  return new KvantError('shape-mismatch', `${where}: ${message}.`, {
    kind: 'model',
    where,
    fix: 'Check the checkpoint, and the family that loads it.',
  });
}

async function readBias(
  parts: readonly MatrixSource[],
  options: MatrixOptions,
  rows: number,
): Promise<Float32Array<ArrayBuffer> | null> {
  const sources = options.bias;
  if (sources === undefined || sources.every((s) => s === null)) return null;
  const out = new Float32Array(rows);
  let start = 0;
  for (const [i, part] of parts.entries()) {
    const source = sources[i] ?? null;
    if (source !== null) {
      const values = await source.read();
      if (values.length !== part.rows) {
        throw shapeError(source.name, `a bias of ${values.length} numbers for ${part.rows} rows`);
      }
      out.set(values, start);
    }
    start += part.rows;
  }
  return out;
}

function runsOf(parts: readonly MatrixSource[], f16: boolean): Run[] {
  const runs: Run[] = [];
  let start = 0;
  for (const part of parts) {
    const layout = shardLayout(part.format, f16);
    const last = runs.at(-1);
    if (last !== undefined && JSON.stringify(last.layout) === JSON.stringify(layout)) last.rows += part.rows;
    else runs.push({ layout, rowStart: start, rows: part.rows });
    start += part.rows;
  }
  return runs;
}

function allocate(
  target: LoadTarget,
  run: Run,
  cols: number,
  bias: Float32Array<ArrayBuffer> | null,
  name: string,
  unit: number,
): Shard[] {
  const { allocator, device } = target;
  const { layout } = run;
  const rowBytes = Math.max(rowWords(layout, cols), rowMetaWords(layout, cols)) * 4;
  const most = Math.min(target.shardBytes, device.limits.maxBufferSize);
  const rowsPerShard = Math.floor(most / rowBytes / unit) * unit;
  if (rowsPerShard < 1) {
    const what = unit === 1 ? 'a row' : `${unit} rows`;
    throw shapeError(name, `${what} of ${unit * rowBytes} bytes is more than a binding holds`);
  }
  const shards: Shard[] = [];
  const usage = USAGE.STORAGE | USAGE.COPY_DST;
  try {
    for (let at = 0; at < run.rows; at += rowsPerShard) {
      const rows = Math.min(rowsPerShard, run.rows - at);
      const rowStart = run.rowStart + at;
      const codes = allocator.create(`${name} codes`, rows * rowWords(layout, cols) * 4, usage);
      const metaBytes = rows * rowMetaWords(layout, cols) * 4;
      const shard: { -readonly [K in keyof Shard]: Shard[K] } = {
        rowStart,
        rows,
        layout,
        codes,
        metas: null,
        bias: null,
      };
      shards.push(shard);
      if (metaBytes > 0) shard.metas = allocator.create(`${name} metas`, metaBytes, usage);
      if (bias !== null) {
        shard.bias = allocator.create(`${name} bias`, rows * 4, VECTOR_USAGE);
        device.queue.writeBuffer(shard.bias, 0, bias, rowStart, rows);
      }
    }
  } catch (error) {
    for (const shard of shards) freeShard(allocator, shard);
    throw error;
  }
  return shards;
}

function freeShard(allocator: Allocator, shard: Shard): void {
  allocator.destroy(shard.codes);
  if (shard.metas !== null) allocator.destroy(shard.metas);
  if (shard.bias !== null) allocator.destroy(shard.bias);
}

class Upload {
  readonly #target: LoadTarget;
  readonly #shards: readonly Shard[];
  readonly #cols: number;
  readonly #onBytes: ((bytes: number) => void) | undefined;
  #window = 0;

  constructor(
    target: LoadTarget,
    shards: readonly Shard[],
    cols: number,
    onBytes: ((bytes: number) => void) | undefined,
  ) {
    this.#target = target;
    this.#shards = shards;
    this.#cols = cols;
    this.#onBytes = onBytes;
  }

  async part(source: MatrixSource, rowStart: number): Promise<void> {
    const cols = this.#cols;
    const whole = wholeRowBytes(cols, source.format);
    const rowsPerPiece = Math.max(1, Math.floor(PIECE_BYTES / rowBytes(cols, source.format).data));
    const { staging } = this.#target;
    const most = Math.min(rowsPerPiece, source.rows);
    const room = staging.take(roomBytes(cols, source.format, most));
    const { layout } = this.#shards.find((s) => s.rowStart <= rowStart && rowStart < s.rowStart + s.rows)!;
    const metaRoom = staging.take(most * rowMetaWords(layout, cols) * 4);
    let at = 0;
    while (at < source.rows) {
      const shard = this.#shards.find(
        (s) => s.rowStart <= rowStart + at && rowStart + at < s.rowStart + s.rows,
      )!;
      const left = shard.rowStart + shard.rows - (rowStart + at);
      const count = Math.min(rowsPerPiece, source.rows - at, left);
      const piece = await source.readRows(at, at + count, room);
      if (!holdsRows(piece, cols, source.format, count)) throw shortPiece(source);
      this.#write(shard, rowStart + at - shard.rowStart, count, source, piece, metaRoom);
      const bytes = count * whole;
      this.#onBytes?.(bytes);
      this.#window += bytes;
      if (this.#window >= WINDOW_BYTES) await this.finish();
      at += count;
    }
    // The one that is taken first is given back last.
    staging.give(metaRoom);
    staging.give(room);
  }

  async finish(): Promise<void> {
    const { queue } = this.#target.device;
    queue.submit([]);
    await queue.onSubmittedWorkDone();
    this.#window = 0;
  }

  #write(
    shard: Shard,
    row: number,
    count: number,
    source: MatrixSource,
    piece: MatrixRows,
    metaRoom: ArrayBuffer,
  ): void {
    const { queue } = this.#target.device;
    const cols = this.#cols;
    const { layout } = shard;
    const stride = rowWords(layout, cols) * 4;
    const codes = padRows(piece.data, count, rowBytes(cols, source.format).data, stride);
    queue.writeBuffer(shard.codes, row * stride, codes as Uint8Array<ArrayBuffer>);
    if (shard.metas === null || layout.kind === 'float' || source.format.kind === 'float') return;
    const words = rowMetaWords(layout, cols);
    const metas = new Uint32Array(metaRoom, 0, count * words);
    writeMetas(layout, source, piece, row, count, metas);
    queue.writeBuffer(shard.metas, row * words * 4, metas);
  }
}

function shortPiece(source: MatrixSource): KvantError {
  return new KvantError('weights-truncated', `${source.name} gave fewer bytes than its shape asks for.`, {
    kind: 'model',
    where: source.name,
    fix: 'Fetch the checkpoint again: the file may be cut off.',
  });
}

function padRows(data: Uint8Array, rows: number, from: number, to: number): Uint8Array {
  if (from === to) return data;
  const out = new Uint8Array(rows * to);
  for (let r = 0; r < rows; r++) out.set(data.subarray(r * from, (r + 1) * from), r * to);
  return out;
}
