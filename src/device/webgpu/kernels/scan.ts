/**
 * What the scans over a recurrent state have in common (gated-delta.ts, selective-scan.ts). A workgroup has `COLUMNS` columns of one
 * head's state `[rows, cols]` in registers and takes them through all tokens of a sequence. A thread has a part of the rows of two
 * neighbouring columns (of one, where their number is odd), so that what it reads of a vector serves twice. Of a token two vectors of
 * `rows` numbers (key and query, or B and C) and the values of the columns come through workgroup memory, some tokens at a time.
 *
 *     planScan({ rows: 128, cols: 128 }, state); // 8 parts of 16 rows, 2 columns a thread: 128 threads, 4 workgroups a head
 */

import { stateBytes, stateMatrixAt } from '../../state.js';
import type { Binding } from '../kernel.js';
import type { LayerState } from '../layer-caches.js';

/** Columns of a workgroup. */
export const COLUMNS = 32;
/** The two vectors of the tokens in workgroup memory take no more. */
const STAGED_BYTES = 8192;

/** `state`: where the layer's states lie, and how many blocks a slot may have. */
export function planScan(
  { rows, cols }: { readonly rows: number; readonly cols: number },
  { shape, maxBlocksPerSlot }: Pick<LayerState, 'shape' | 'maxBlocksPerSlot'>,
) {
  /** Threads that share a column. */
  const parts = [8, 4, 2, 1].find((n) => rows % (4 * n) === 0)!;
  /** Pieces of four rows of a column. */
  const quads = rows / 4;
  const at = stateMatrixAt(shape);
  const stride = stateBytes(shape) / 4;
  /** Columns of a thread. */
  const own = (cols | at | stride) % 2 === 0 ? [0, 1] : [0];
  const columns = own.length;
  /** What a thread reads and writes of a row of its columns. */
  const pair = columns === 2 ? 'vec2<f32>' : 'f32';
  const across = COLUMNS / columns;
  const threads = across * parts;
  /** Workgroups of a head. */
  const tiles = Math.ceil(cols / COLUMNS);
  /** Tokens in workgroup memory at a time. */
  const tokens = [8, 4, 2, 1].find((n) => n * rows * 8 <= STAGED_BYTES) ?? 1;
  /** A thread's pieces of four rows. */
  const all = Array.from({ length: quads / parts }, (_, i) => i);
  /** Pieces that a thread puts into workgroup memory, of the two vectors and of the values. */
  const staged = Array.from({ length: Math.ceil((tokens * quads * 2) / threads) }, (_, i) => i);
  const values = Array.from({ length: Math.ceil((tokens * COLUMNS) / threads) }, (_, i) => i);
  const each = (text: (i: number) => string): string => lines(all, text);
  const cell = (i: number, e: number): string => `state[base + ${((4 * parts * i + e) * cols) / columns}u]`;
  /** One of the numbers that a thread has of each of its columns. */
  const of = (name: string, o: number): string => (columns === 2 ? `${name}.${'xy'[o]}` : name);
  return {
    parts,
    quads,
    own,
    columns,
    pair,
    across,
    threads,
    tiles,
    tokens,
    all,
    staged,
    values,
    each,
    of,
    /** Whether a piece of `count` reaches `limit` with all threads. */
    where: (i: number, limit: number): string =>
      (i + 1) * threads > limit ? `if (lid + ${i * threads}u < ${limit}u) ` : '',
    /** `column`, `valid` and `base` of a thread, behind its `head`, `tile`, `c` and `part`. */
    place: `let column = tile * ${COLUMNS}u + ${columns}u * c;
  // Threads of no column go along and store nothing.
  let valid = column < ${cols}u;
  let base = tables[sequence.w * ${maxBlocksPerSlot}u] * ${stride / columns}u + ${at / columns}u +
    (head * ${rows}u + part * 4u) * ${cols / columns}u + min(column, ${cols - columns}u) / ${columns}u;`,
    /** The state as it is before the first token: zeros, or what is stored where tokens came before. */
    load: `${each((i) => own.map((o) => `var s${i}_${o} = vec4<f32>(0.0);`).join(' '))}
  if (sequence.z > 0u) {
    ${each(
      (i) => `{
      ${[0, 1, 2, 3].map((e) => `let e${e} = ${cell(i, e)};`).join(' ')}
      ${own.map((o) => `s${i}_${o} = vec4<f32>(${[0, 1, 2, 3].map((e) => of(`e${e}`, o)).join(', ')});`).join(' ')}
    }`,
    )}
  }`,
    /** The state as it is behind the last token. */
    store: `if (valid) {
    ${each((i) => [0, 1, 2, 3].map((e) => `${cell(i, e)} = ${pair}(${own.map((o) => `s${i}_${o}.${'xyzw'[e]}`).join(', ')});`).join('\n    '))}
  }`,
  };
}

/** One text for each number, a line each. */
export function lines(of: readonly number[], text: (i: number) => string): string {
  return of.map(text).join('\n      ');
}

/** The state and the result, behind what a scan reads. */
export function scanWrites(pair: string): readonly Binding[] {
  return [
    { name: 'state', access: 'read_write', type: `array<${pair}>` },
    { name: 'out', access: 'read_write', type: `array<${pair}>` },
  ];
}
