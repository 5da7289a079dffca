/**
 * Whether the build with 32-bit sums (`i32x4.relaxed_dot_i8x16_i7x16_add_s`) is right and worth it on this engine: an
 * engine that has one instruction for it (`vpdpbusd`, `sdot`) is half as fast again; others need three, and some compile it
 * wrongly. Both builds add up the same integers in the same order, so what one gives the other must give to the bit.
 */
import type { MatrixSource } from '../weights.js';
import { commandWords, writeCommands } from './command.js';
import { linearCommands, scratchBytes } from './linear-commands.js';
import { HEAP } from './opcodes.js';
import { packMatrix, stackedBytes } from './pack.js';

export interface DotProbe {
  /** The results were the same, in the first calls (baseline code) and in the last ones (optimised code). */
  readonly right: boolean;
  /** Time of a product with 16-bit sums over that with 32-bit sums, best calls of each. */
  readonly gain: number;
}

const OUT = 64;
const COLS = 512;
const GROUP = 64;
/** Row counts: one tile of every kind. */
const CHECKED = [1, 2, 4, 15];
const TIMED = 24;
const MOST_PAGES = 64;
/** More than so small matrices are packed with. */
const SCRATCH_BYTES = 1 << 18;

interface KernelExports {
  run(commands: number, count: number, thread: number, threads: number): number;
}

/** Compares two builds of one layout for `milliseconds`. */
export async function probeDot(
  sums16: WebAssembly.Module,
  sums32: WebAssembly.Module,
  milliseconds: number,
): Promise<DotProbe> {
  const memory = new WebAssembly.Memory({ initial: MOST_PAGES, maximum: MOST_PAGES, shared: true });
  let next = HEAP;
  const allocate = (bytes: number): number => {
    const at = next;
    next = Math.ceil((at + bytes) / 64) * 64;
    return at;
  };
  const sources = [randomMatrix(4), randomMatrix(8)];
  const matrices = [];
  const scratch = allocate(SCRATCH_BYTES);
  for (const source of sources) {
    const at = allocate(stackedBytes([source]));
    matrices.push(await packMatrix(memory, at, [source], { build: 'relaxed', scratch: () => scratch }));
  }
  const x = allocate(TIMED * COLS * 4);
  new Float32Array(memory.buffer, x, TIMED * COLS).set(boundaryRows());
  const out = allocate(TIMED * OUT * 4);
  const rowCount = new Uint32Array(memory.buffer, allocate(4), 1);
  const programs = matrices.map((matrix) => {
    const scratch = allocate(scratchBytes(matrix, TIMED, 'default', 1));
    const place = { x, out, residual: 0, rowCountAt: rowCount.byteOffset, scratch };
    const commands = linearCommands(matrix, place, 'default', TIMED);
    const at = allocate(commandWords(commands) * 4);
    writeCommands(new Uint32Array(memory.buffer, at, commandWords(commands)), commands);
    return { at, count: commands.length };
  });
  const kernels = [sums16, sums32].map(
    (module) =>
      new WebAssembly.Instance(module, { env: { memory, abort: () => {} } })
        .exports as unknown as KernelExports,
  );
  const result = new Uint32Array(memory.buffer, out, TIMED * OUT);
  const same = (): boolean =>
    programs.every(({ at, count }) =>
      CHECKED.every((rows) => {
        rowCount[0] = rows;
        const [a, b] = kernels.map((k) => {
          result.fill(0);
          k.run(at, count, 0, 1);
          return result.slice();
        });
        return a!.every((word, i) => word === b![i]);
      }),
    );

  if (!same()) return { right: false, gain: 0 };
  const best = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  const { at, count } = programs[0]!;
  rowCount[0] = TIMED;
  for (const end = performance.now() + milliseconds; performance.now() < end; ) {
    for (const [i, k] of kernels.entries()) {
      const start = performance.now();
      k.run(at, count, 0, 1);
      best[i] = Math.min(best[i]!, performance.now() - start);
    }
    // The engine compiles beside this.
    await new Promise((resolve) => setImmediate(resolve));
  }
  return { right: same(), gain: best[0]! / best[1]! };
}

/** Codes of all values, the largest the most frequent; scales and biases are bf16 numbers about 0.01. */
function randomMatrix(bits: 4 | 8): MatrixSource {
  const size = (COLS * bits) / 8;
  const data = new Uint8Array(OUT * size);
  for (let i = 0, state: number = bits; i < data.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    data[i] = state & 0x10000 ? 255 : state >>> 24;
  }
  const meta = new Uint8Array((OUT * COLS * 2) / GROUP).fill(0x3c);
  const metaSize = (COLS * 2) / GROUP;
  return {
    name: 'probe',
    rows: OUT,
    cols: COLS,
    format: { kind: 'affine', bits, groupSize: GROUP, dtype: 'bf16' },
    readRows: async (start, end) => {
      const part = meta.subarray(start * metaSize, end * metaSize);
      return { data: data.subarray(start * size, end * size), scales: part, biases: part };
    },
  };
}

/** Rows that become codes of ±127 and others, of one sign and of both. */
function boundaryRows(): Float32Array {
  let state = 1;
  return Float32Array.from({ length: TIMED * COLS }, (_, i) => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    const row = Math.floor(i / COLS);
    const value = state & 0x20000 ? 127 : (state >>> 24) - 128;
    return row % 4 === 0 ? Math.abs(value) : row % 4 === 1 ? -Math.abs(value) : value;
  });
}
