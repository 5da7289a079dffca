/** The commands and parameter words of the matrix kernels (assembly/matmul.ts, assembly/quantize-rows.ts). */
import { KvantError } from '../../errors.js';
import type { Precision } from '../device.js';
import type { MatrixFormat } from '../weights.js';
import { groupColumns } from '../weights.js';
import { type Command, f32Word } from './command.js';
import { OP_LINEAR, OP_QUANTIZE_ROWS } from './opcodes.js';
import type { PackedMatrix, PackedSegment } from './pack-layout.js';
import { blockBytes, blockCount } from './pack-layout.js';

/** A norm, or a glu (an index of ACTIVATIONS) of twice the columns, that is done as the activations are quantised. */
export type ActivationSource =
  | { readonly kind: 'norm'; readonly weight: number; readonly eps: number }
  | { readonly kind: 'glu'; readonly activation: number };

export interface LinearPlace {
  /** Address of f32 activations `[rows, cols]`, or of what they are made of. */
  readonly x: number;
  /** How, for a matrix that {@link quantisesOnce}. */
  readonly source?: ActivationSource;
  /** Address of the f32 result `[rows, matrix.rows]`. May be that of the residual, not of x. */
  readonly out: number;
  /** Address of f32 `[rows, matrix.rows]` to be added, 0 for none. */
  readonly residual: number;
  /** Address of the u32 that holds the number of rows at run time. */
  readonly rowCountAt: number;
  /** Address of {@link scratchBytes} bytes, a multiple of 64. Free again after the commands. */
  readonly scratch: number;
}

/**
 * Bytes that the commands need: for quantised activations (laid out as quantize-rows.ts says) and for every thread's
 * panel (see panelTile). 0 where the activations are read as f32.
 */
export function scratchBytes(
  matrix: PackedMatrix,
  rows: number,
  precision: Precision,
  threads: number,
): number {
  let bytes = threads * panelRoom(matrix, precision, rows);
  for (const group of activationGroups(matrix, precision)) bytes += quantizedBytes(matrix, group, rows);
  return bytes;
}

/** The commands of `x · Wᵀ + bias (+ residual)`, to be run in this order. */
export function linearCommands(
  matrix: PackedMatrix,
  place: LinearPlace,
  precision: Precision,
  maxRows: number,
): Command[] {
  const commands: Command[] = [];
  const quantized = new Map<number, number>();
  const room = panelRoom(matrix, precision, maxRows);
  let panels = place.scratch;
  for (const group of activationGroups(matrix, precision)) {
    quantized.set(group, panels);
    panels += quantizedBytes(matrix, group, maxRows);
  }
  for (const [group, at] of quantized) {
    const { rowCountAt, x, source } = place;
    const stride = rowStride(matrix, group);
    // Panels are free until the products begin.
    const words = [rowCountAt, x, matrix.cols, group, at, stride, ...sourceWords(source), panels, room];
    commands.push({ opcode: OP_QUANTIZE_ROWS, words });
  }
  for (const segment of matrix.segments) {
    const group = groupOf(segment, precision);
    const x = group === 0 ? place.x : quantized.get(group)!;
    const stride = group === 0 ? matrix.cols * 4 : rowStride(matrix, group);
    const first = segment.firstRow * 4;
    commands.push({
      opcode: OP_LINEAR,
      words: [
        ...segmentWords(segment, matrix.cols),
        place.rowCountAt,
        x,
        stride,
        place.out + first,
        matrix.rows * 4,
        place.residual === 0 ? 0 : place.residual + first,
        group === 0 ? 1 : 0,
        // Two words of the kernel's own: the next piece of work, and the threads that found none left.
        0,
        0,
        panels,
        room,
      ],
    });
  }
  return commands;
}

/** `[kind, weight, eps]` of quantize-rows.ts. */
function sourceWords(source: ActivationSource | undefined): number[] {
  if (source === undefined) return [0, 0, 0];
  return source.kind === 'norm' ? [1, source.weight, f32Word(source.eps)] : [2 + source.activation, 0, 0];
}

/** Whether all of a matrix takes its activations quantised in one way, so that they may be made on the way. */
export function quantisesOnce(matrix: PackedMatrix, precision: Precision): boolean {
  const [group, ...others] = new Set(matrix.segments.map((s) => groupOf(s, precision)));
  return group !== 0 && others.length === 0;
}

/**
 * What `gatherRow(table, row, scale, out)` reads: `[segments, rows, cols, 0]`, then the words of each segment. To be
 * put in memory at a multiple of 4.
 */
export function tableWords(matrix: PackedMatrix): number[] {
  const words = [matrix.segments.length, matrix.rows, matrix.cols, 0];
  for (const segment of matrix.segments) words.push(...segmentWords(segment, matrix.cols));
  return words;
}

const DTYPE_WORDS = { f32: 0, f16: 1, bf16: 2 } as const;

const LUT4_KINDS = { f16: 48, e8m0: 64, 'f16-i8': 80, 'f32-e4m3': 96 } as const;

/**
 * What the kernels call a format: bits of a code as a panel holds it (WIDTH of assembly/matmul.ts), and 16 times a kind (FORMATS of
 * scripts/matmul/formats.mjs).
 */
function formatWord(format: MatrixFormat): number {
  switch (format.kind) {
    case 'float':
      return 0;
    case 'affine':
      return format.bits;
    case 'k-quant':
      return 16 + format.bits;
    case 'symmetric':
      return 32 + format.bits;
    case 'lut4':
      // The numbers of `e2m1` are those of 5 bits, and of `iq4` those of 8.
      return LUT4_KINDS[format.scale] + (format.table === 'e2m1' ? 5 : 8);
  }
}

/** `[at, firstRow, rows, cols, format, group, dtype, bytes of a block, factors, biases]` */
export function segmentWords({ at, firstRow, rows, format }: PackedSegment, cols: number): number[] {
  const size = blockBytes(cols, format);
  const factors = at + blockCount(rows) * size;
  const biases = factors + blockCount(rows) * 32;
  return [
    at,
    firstRow,
    rows,
    cols,
    formatWord(format),
    groupColumns(format),
    DTYPE_WORDS[format.dtype],
    size,
    factors,
    biases,
  ];
}

/** That of a stack, whose matrices (of experts, of heads) are all in one format. */
export function onlySegment({ segments, rows, cols }: PackedMatrix, op: string): PackedSegment {
  if (segments.length === 1) return segments[0]!;
  throw new KvantError(
    'shape-mismatch',
    `${op}: a stack [${rows}, ${cols}] has parts in ${segments.length} runs of formats.`,
    { where: op, fix: 'Use a checkpoint whose weights of a layer are all in one format.' },
  );
}

/** The group by which a segment wants its activations quantised, 0 if it wants them as they are. */
export function groupOf({ format }: PackedSegment, precision: Precision): number {
  return precision === 'default' ? groupColumns(format) : 0;
}

function activationGroups(matrix: PackedMatrix, precision: Precision): number[] {
  const groups = new Set(matrix.segments.map((s) => groupOf(s, precision)));
  groups.delete(0);
  return [...groups];
}

/** Most rows that pass a panel at a time; CHUNK_ROWS of assembly/matmul.ts. */
const CHUNK_ROWS = 264;

/** FLOAT_ROWS, floatBlocks and FLOAT_PANEL_BYTES of assembly/matmul-floats.ts. */
const FLOAT_ROWS = 16;
const FLOAT_PANEL_BYTES = 524288;
const floatBlocks = (cols: number): number =>
  Math.max(2, Math.min(8, Math.floor(FLOAT_PANEL_BYTES / (cols * 32))));

/** Bytes of the largest panel: see panelPiece and floatPieces. */
export function panelRoom(
  { segments, cols, build }: PackedMatrix,
  precision: Precision,
  maxRows: number,
): number {
  let bytes = 0;
  for (const segment of segments) {
    const group = groupOf(segment, precision);
    if (segment.format.kind === 'float' && maxRows >= FLOAT_ROWS)
      bytes = Math.max(bytes, floatBlocks(cols) * cols * 32 + cols * 16 + 128);
    if (group === 0 || segment.format.kind === 'float') continue;
    const codes = build === 'relaxed' && formatWord(segment.format) % 16 < 8 ? 8 : 16;
    // Scales, biases; what is added to the rows of two blocks; powers of two; the sums of a tile.
    const added = Math.min(maxRows, CHUNK_ROWS) * 64;
    bytes = Math.max(bytes, cols * codes + (cols / group) * 64 + added + 64 + 208);
  }
  return alignUp(bytes);
}

/** Whole tiles of 4 rows. */
function quantizedBytes(matrix: PackedMatrix, group: number, rows: number): number {
  return Math.ceil(rows / 4) * 4 * rowStride(matrix, group);
}

export function rowStride({ cols, build }: PackedMatrix, group: number): number {
  const codes = build === 'relaxed' ? cols : cols * 2;
  // Scale, sum and one byte for every group.
  return alignUp(codes + (cols / group) * 9);
}

export function alignUp(bytes: number): number {
  return Math.ceil(bytes / 64) * 64;
}
