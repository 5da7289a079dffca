/** Loading of matrices into the layout of pack-layout.ts, a piece at a time. */
import { KvantError } from '../../errors.js';
import { Staging } from '../staging.js';
import type {
  BesideRows,
  MatrixFormat,
  MatrixRows,
  MatrixSource,
  StoredRows,
  VectorSource,
} from '../weights.js';
import {
  besideBytes,
  besideRows,
  columnUnit,
  holdsRows,
  roomBytes,
  sameFormat,
  wholeRowBytes,
} from '../weights.js';
import { BlockPacker } from './pack-blocks.js';
import type { KernelBuild, PackedMatrix, PackedSegment } from './pack-layout.js';
import { BLOCK_ROWS, blockBytes, blockCount, packedBytes } from './pack-layout.js';

export type { KernelBuild, PackedMatrix, PackedSegment } from './pack-layout.js';
export { packedBytes } from './pack-layout.js';

export interface PackOptions {
  /** Which wasm build will read it. */
  readonly build: KernelBuild;
  /** The address of so many bytes of the memory, which nothing else uses until they are asked for again. */
  readonly scratch: (bytes: number) => number;
  /** One for each part, null where a part has none. */
  readonly bias?: readonly (VectorSource | null)[];
  /** Rooms to read into. */
  readonly staging?: Staging;
  /** Called as bytes of the source are taken in. */
  readonly onBytes?: (bytes: number) => void;
}

/** Most bytes read from a source at once. */
const PIECE_BYTES = 4 << 20;

/** Bytes of a stack of parts. Checks that they can be stacked and packed. */
export function stackedBytes(parts: readonly MatrixSource[]): number {
  checkParts(parts);
  let bytes = 0;
  for (const run of runsOf(parts)) bytes += packedBytes(run.rows, parts[0]!.cols, run.format);
  return bytes;
}

/**
 * Packs parts stacked by rows at address `at` (a multiple of 64, {@link stackedBytes} free bytes). The memory may grow
 * meanwhile, but not shrink.
 */
export async function packMatrix(
  memory: WebAssembly.Memory,
  at: number,
  parts: readonly MatrixSource[],
  options: PackOptions,
): Promise<PackedMatrix> {
  const bytes = stackedBytes(parts);
  if (at % 64 !== 0 || at + bytes > memory.buffer.byteLength)
    throw new KvantError('bad-address', `${bytes} bytes for ${parts[0]!.name} do not fit at ${at}.`);
  const cols = parts[0]!.cols;
  const segments: PackedSegment[] = [];
  let firstRow = 0;
  let next = at;
  for (const run of runsOf(parts)) {
    const segment = { at: next, firstRow, rows: run.rows, format: run.format };
    const biases = options.bias?.slice(run.firstPart, run.firstPart + run.parts.length) ?? [];
    await packSegment(memory, segment, run.parts, biases, options);
    segments.push(segment);
    next += packedBytes(run.rows, cols, run.format);
    firstRow += run.rows;
  }
  return { kind: 'matrix', rows: firstRow, cols, bytes, at, build: options.build, segments };
}

interface Run {
  readonly format: MatrixFormat;
  readonly firstPart: number;
  readonly parts: MatrixSource[];
  rows: number;
}

/** Neighbouring parts of one format are one run, and become one segment. */
function runsOf(parts: readonly MatrixSource[]): Run[] {
  const runs: Run[] = [];
  for (const [index, part] of parts.entries()) {
    const last = runs.at(-1);
    if (last !== undefined && sameFormat(last.format, part.format)) {
      last.parts.push(part);
      last.rows += part.rows;
    } else {
      runs.push({ format: part.format, firstPart: index, parts: [part], rows: part.rows });
    }
  }
  return runs;
}

async function packSegment(
  memory: WebAssembly.Memory,
  segment: PackedSegment,
  parts: readonly MatrixSource[],
  biases: readonly (VectorSource | null)[],
  options: PackOptions,
): Promise<void> {
  const { format, rows } = segment;
  const cols = parts[0]!.cols;
  const size = blockBytes(cols, format);
  const padded = blockCount(rows) * BLOCK_ROWS;
  const tail = new Float32Array(padded * 2);
  const { scratch } = options;
  const packer = new BlockPacker(
    cols,
    format,
    options.build,
    { memory, at: segment.at, scratch },
    (first, factors) => {
      let sum = 0;
      for (let i = 0; i < factors.length; i++) sum += factors[i]!;
      // A factor is no infinity, but where a row of NVFP4 has one.
      if (!Number.isFinite(sum)) {
        const odd = factors.findIndex((factor) => !Number.isFinite(factor));
        if (odd >= 0) throw notFinite(parts, first + odd);
      }
      tail.set(factors, first);
    },
  );
  let row = 0;
  for (const [index, part] of parts.entries()) {
    const bias = biases[index];
    if (bias) tail.set(checkedBias(await bias.read(), bias.name, part), padded + row);
    const { stored } = part;
    const whole = row % BLOCK_ROWS === 0 && (part.rows % BLOCK_ROWS === 0 || index === parts.length - 1);
    if (stored !== undefined && whole && stored.rowBytes * BLOCK_ROWS <= size)
      await packStored(packer, part, stored, memory, segment.at + packer.blockSpan(row), options);
    else await packRows(packer, part, options);
    row += part.rows;
  }
  packer.finish();
  new Float32Array(memory.buffer, segment.at + blockCount(rows) * size, tail.length).set(tail);
}

/** Rows that their source hands out in arrays. */
async function packRows(packer: BlockPacker, part: MatrixSource, options: PackOptions): Promise<void> {
  const { cols, format } = part;
  const { staging = new Staging() } = options;
  const rowBytes = wholeRowBytes(cols, format);
  const piece = pieceRows(rowBytes);
  const room = staging.take(roomBytes(cols, format, Math.min(piece, part.rows)));
  for (let start = 0; start < part.rows; start += piece) {
    const end = Math.min(part.rows, start + piece);
    const data = await part.readRows(start, end, room);
    checkPiece(part, data, end - start);
    packer.add(data, end - start);
    options.onBytes?.((end - start) * rowBytes);
  }
  staging.give(room);
}

/**
 * Rows that are read to where their blocks will be. A piece is read while the one before is packed: the first touch of fresh memory
 * takes longer than the copy, and is not this thread's then.
 */
async function packStored(
  packer: BlockPacker,
  part: MatrixSource,
  stored: StoredRows,
  memory: WebAssembly.Memory,
  at: number,
  options: PackOptions,
): Promise<void> {
  const { cols, format } = part;
  const { staging = new Staging() } = options;
  const within = stored.order?.within ?? BLOCK_ROWS;
  const piece = Math.max(1, Math.floor(pieceRows(stored.rowBytes) / within)) * within;
  const end = (start: number): number => Math.min(part.rows, start + piece);
  // What lies beside the codes of a piece, and of the next.
  const room = (): ArrayBuffer => staging.take(besideBytes(cols, format, end(0)));
  const rooms = stored.type === 'codes' ? [room(), room()] : [];
  const beside = (start: number): BesideRows | undefined => {
    const own = rooms[(start / piece) % 2];
    return own && besideRows(own, cols, format, end(start) - start);
  };
  const read = (start: number): Promise<void> => {
    const bytes = (end(start) - start) * stored.rowBytes;
    const to = new Uint8Array(memory.buffer, at + packer.blockSpan(end(start)) - bytes, bytes);
    return stored.readInto(start, end(start), to, beside(start));
  };
  let next = read(0);
  try {
    for (let start = 0; start < part.rows; start += piece) {
      await next;
      if (end(start) < part.rows) next = read(end(start));
      packer.addStored(stored, end(start) - start, beside(start));
      options.onBytes?.((end(start) - start) * wholeRowBytes(cols, format));
    }
  } finally {
    // The memory is somebody else's once this has failed.
    await next.catch(() => {});
    for (const own of rooms) staging.give(own);
  }
}

/** Rows of a piece: whole blocks. */
function pieceRows(rowBytes: number): number {
  return Math.max(1, Math.floor(PIECE_BYTES / rowBytes / BLOCK_ROWS)) * BLOCK_ROWS;
}

function checkParts(parts: readonly MatrixSource[]): void {
  const first = parts[0];
  if (first === undefined) throw new KvantError('bad-matrix', 'A matrix needs at least one part.');
  for (const { name, rows, cols, format } of parts) {
    if (!Number.isInteger(rows) || rows < 1 || !Number.isInteger(cols) || cols < 4 || cols % 4 !== 0)
      throw badMatrix(
        name,
        `[${rows}, ${cols}] has no rows or a number of columns that is not a multiple of 4`,
      );
    if (cols !== first.cols) throw badMatrix(name, `${cols} columns cannot be stacked on ${first.cols}`);
    if (cols % columnUnit(format) !== 0)
      throw badMatrix(name, `${cols} columns are not a multiple of the group of ${columnUnit(format)}`);
  }
}

function checkPiece(part: MatrixSource, data: MatrixRows, rows: number): void {
  if (!holdsRows(data, part.cols, part.format, rows))
    throw badMatrix(part.name, `its source gave a wrong number of bytes for ${rows} rows`);
}

function checkedBias(values: Float32Array, name: string, part: MatrixSource): Float32Array {
  if (values.length === part.rows) return values;
  throw badMatrix(name, `a bias of ${values.length} does not fit the ${part.rows} rows of ${part.name}`);
}

function badMatrix(name: string, message: string): KvantError {
  return new KvantError('bad-matrix', `${name}: ${message}.`, {
    kind: 'model',
    where: name,
    fix: 'The checkpoint does not fit its config.json: fetch it again.',
  });
}

/** @param stacked a row of all parts */
function notFinite(parts: readonly MatrixSource[], stacked: number): KvantError {
  let row = stacked;
  let index = 0;
  for (; row >= parts[index]!.rows; index++) row -= parts[index]!.rows;
  const { name } = parts[index]!;
  return new KvantError('weights-not-finite', `${name}: row ${row} holds an infinity or NaN.`, {
    kind: 'model',
    where: name,
    fix: 'The checkpoint is damaged: fetch it again, or use one in bf16 or f32.',
  });
}
