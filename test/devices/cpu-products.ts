/** Products by the CPU's kernels themselves: matrices of any format, one thread or several, and what they may be off by. */
import { expect } from 'vitest';
import { commandWords, f32Word, writeCommands } from '../../src/device/cpu/command.js';
import { linearCommands, scratchBytes, tableWords } from '../../src/device/cpu/linear-commands.js';
import { HEAP, OP_EMBED } from '../../src/device/cpu/opcodes.js';
import type { KernelBuild, PackedMatrix } from '../../src/device/cpu/pack.js';
import { packMatrix, stackedBytes } from '../../src/device/cpu/pack.js';
import type { Precision } from '../../src/device/device.js';
import type {
  AffineBits,
  FloatDtype,
  GroupSize,
  KQuantFormat,
  MatrixFormat,
  MatrixSource,
  VectorSource,
} from '../../src/device/weights.js';
import { hasMinima, rowBytes } from '../../src/device/weights.js';
import { Random } from './numbers.js';
import { kQuantValues, randomMatrix } from './sources.js';

export const BUILDS = ['simd', 'relaxed', 'dot'] as const;
export type KernelFile = (typeof BUILDS)[number];

/** Numbers that repeat, in [0, 1). */
export function random(seed: number): () => number {
  let state = seed * 2654435761 + 1;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    let z = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 2 ** 32;
  };
}

const scratchF32 = new Float32Array(1);
const scratchU32 = new Uint32Array(scratchF32.buffer);

function toBf16(value: number): number {
  scratchF32[0] = value;
  return (scratchU32[0]! + 0x8000) >>> 16;
}

function fromBf16(bits: number): number {
  scratchU32[0] = bits << 16;
  return scratchF32[0]!;
}

/** From the definition of IEEE binary16. */
function fromF16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  return sign * (exponent === 0 ? mantissa * 2 ** -24 : (1024 + mantissa) * 2 ** (exponent - 25));
}

function toF16(value: number): number {
  const magnitude = Math.abs(value);
  const sign = value < 0 ? 0x8000 : 0;
  if (magnitude < 2 ** -14) return sign | Math.round(magnitude * 2 ** 24);
  let exponent = Math.floor(Math.log2(magnitude));
  let mantissa = Math.round((magnitude / 2 ** exponent - 1) * 1024);
  if (mantissa === 1024) {
    exponent++;
    mantissa = 0;
  }
  return sign | ((exponent + 15) << 10) | mantissa;
}

/** A matrix as stored, and what it means in float64. */
interface TestMatrix {
  readonly source: MatrixSource;
  readonly weights: Float64Array;
}

function store(values: readonly number[], dtype: FloatDtype): { bytes: Uint8Array; exact: number[] } {
  if (dtype === 'f32') {
    const f32 = Float32Array.from(values);
    return { bytes: new Uint8Array(f32.buffer), exact: [...f32] };
  }
  const bits = Uint16Array.from(values, dtype === 'f16' ? toF16 : toBf16);
  return { bytes: new Uint8Array(bits.buffer), exact: [...bits].map(dtype === 'f16' ? fromF16 : fromBf16) };
}

export function testMatrix(rows: number, cols: number, format: MatrixFormat, seed: number): TestMatrix {
  const next = random(seed);
  const weights = new Float64Array(rows * cols);
  const name = `test-${seed}`;
  if (format.kind === 'float') {
    const { bytes, exact } = store(
      // Every 9th is tiny: subnormal as f16.
      Array.from(weights, (_, i) => (next() - 0.5) * (i % 9 === 0 ? 1e-5 : 0.2)),
      format.dtype,
    );
    weights.set(exact);
    return { weights, source: memorySource(name, rows, cols, format, bytes) };
  }
  if (format.kind === 'k-quant') return kQuantMatrix(rows, cols, format, next);
  if (format.kind !== 'affine') {
    const { source, values } = randomMatrix(new Random(seed), rows, cols, format);
    return { source, weights: values };
  }
  const { bits, groupSize, dtype } = format;
  const groups = (rows * cols) / groupSize;
  const top = 2 ** bits - 1;
  // Every 5th group is tiny, every 7th has a scale of 0.
  const scales = store(
    Array.from({ length: groups }, (_, g) =>
      g % 7 === 6 ? 0 : ((next() - 0.3) * (g % 5 === 0 ? 1e-5 : 0.3)) / top,
    ),
    dtype,
  );
  const biases = store(
    Array.from({ length: groups }, (_, g) => (next() - 0.5) * (g % 5 === 0 ? 1e-5 : 0.3)),
    dtype,
  );
  const data = new Uint8Array((rows * cols * bits) / 8);
  for (let i = 0; i < weights.length; i++) {
    const code = Math.floor(next() * (top + 1));
    for (let b = 0; b < bits; b++) {
      const bit = i * bits + b;
      if (code & (1 << b)) data[bit >> 3]! |= 1 << (bit & 7);
    }
    const g = Math.floor(i / groupSize);
    weights[i] = scales.exact[g]! * code + biases.exact[g]!;
  }
  return { weights, source: memorySource(name, rows, cols, format, data, scales.bytes, biases.bytes) };
}

/** As weights.ts says what a k-quant means, in float64. */
function kQuantMatrix(rows: number, cols: number, format: KQuantFormat, next: () => number): TestMatrix {
  const { bits } = format;
  const superblocks = (rows * cols) / 256;
  // Every 4th superblock is subnormal as f16, every 7th has a scale of 0; the others go up to 64 times 4.
  const numbers = (): { bytes: Uint8Array; exact: number[] } =>
    store(
      Array.from({ length: superblocks }, (_, i) =>
        i % 7 === 6 ? 0 : (next() - 0.3) * (i % 4 === 0 ? 1e-5 : i % 5 === 0 ? 4 : 0.01),
      ),
      'f16',
    );
  const scales = numbers();
  const minima = numbers();
  const data = Uint8Array.from({ length: (rows * cols * bits) / 8 }, () => next() * 256);
  const six = bits === 4 || bits === 5;
  const subscales = Uint8Array.from({ length: (rows * cols) / 16 }, () => next() * (six ? 64 : 256));
  const weights = kQuantValues(bits, rows * cols, data, scales.exact, minima.exact, subscales);
  const biases = hasMinima(bits) ? minima.bytes : undefined;
  return {
    weights,
    source: memorySource('k-quant', rows, cols, format, data, scales.bytes, biases, subscales),
  };
}

/**
 * Three blocks of 8 rows: scales near each other (signed, one group and one row of zeros), scales too far apart for integers of 14
 * bits, and biases far beyond the scales.
 */
export function scaledMatrix(
  cols: number,
  bits: AffineBits,
  groupSize: GroupSize,
  dtype: FloatDtype,
): MatrixSource {
  const next = random(bits * groupSize);
  const rows = 24;
  const groups = cols / groupSize;
  const scales: number[] = [];
  const biases: number[] = [];
  for (let row = 0; row < rows; row++) {
    for (let g = 0; g < groups; g++) {
      const sign = next() < 0.5 ? -1 : 1;
      let scale = sign * 0.01 * (1 + 6 * next());
      if (row === 3 || (row === 5 && g === 1)) scale = 0;
      if (row >= 8 && row < 16 && g === 2) scale *= 1e-5;
      scales.push(scale);
      biases.push((next() - 0.5) * (row < 16 ? 0.3 : dtype === 'f16' ? 5e4 : 1e20));
    }
  }
  const data = Uint8Array.from({ length: (rows * cols * bits) / 8 }, () => next() * 256);
  const format = { kind: 'affine', bits, groupSize, dtype } as const;
  return memorySource(
    `scaled-${bits}`,
    rows,
    cols,
    format,
    data,
    store(scales, dtype).bytes,
    store(biases, dtype).bytes,
  );
}

export function memorySource(
  name: string,
  rows: number,
  cols: number,
  format: MatrixFormat,
  data: Uint8Array,
  scales?: Uint8Array,
  biases?: Uint8Array,
  subscales?: Uint8Array,
): MatrixSource {
  const one = rowBytes(cols, format);
  return {
    name,
    rows,
    cols,
    format,
    readRows: async (start, end) => ({
      data: data.subarray(start * one.data, end * one.data),
      ...(scales && { scales: scales.subarray(start * one.scales, end * one.scales) }),
      ...(biases && { biases: biases.subarray(start * one.biases, end * one.biases) }),
      ...(subscales && { subscales: subscales.subarray(start * one.subscales, end * one.subscales) }),
    }),
  };
}

export function vectorSource(values: Float32Array): VectorSource {
  return { name: 'bias', length: values.length, read: async () => values };
}

interface KernelExports {
  run(commands: number, count: number, thread: number, threads: number): number;
}

const SCRATCH_BYTES = 1 << 20;

/** A memory with the kernels of one build over it, and the simplest allocator there is. */
export class Bench {
  readonly build: KernelBuild;
  readonly memory = new WebAssembly.Memory({ initial: 512, maximum: 65536, shared: true });
  readonly kernels: KernelExports;
  #next = HEAP;

  constructor(
    file: KernelFile,
    readonly module: WebAssembly.Module,
  ) {
    this.build = file === 'simd' ? 'simd' : 'relaxed';
    const instance = new WebAssembly.Instance(module, {
      env: { memory: this.memory, abort: () => {} },
    });
    this.kernels = instance.exports as unknown as KernelExports;
  }

  allocate(bytes: number): number {
    const at = this.#next;
    this.#next = Math.ceil((at + bytes) / 64) * 64;
    if (this.#next > this.scratch(0)) throw new Error('the test needs more memory');
    return at;
  }

  clear(): void {
    this.#next = HEAP;
  }

  /** The end of the memory is kept for packing. */
  scratch(bytes: number): number {
    if (bytes > SCRATCH_BYTES) throw new Error('the test packs with more than it has');
    return this.memory.buffer.byteLength - SCRATCH_BYTES;
  }

  f32(at: number, length: number): Float32Array {
    return new Float32Array(this.memory.buffer, at, length);
  }

  u32(at: number, length: number): Uint32Array {
    return new Uint32Array(this.memory.buffer, at, length);
  }

  async pack(parts: readonly MatrixSource[], bias?: readonly (VectorSource | null)[]): Promise<PackedMatrix> {
    const at = this.allocate(stackedBytes(parts));
    return packMatrix(this.memory, at, parts, {
      build: this.build,
      scratch: (size) => this.scratch(size),
      ...(bias ? { bias } : {}),
    });
  }

  /** Writes the commands of a product and returns where they and the result are. */
  prepare(matrix: PackedMatrix, x: Float32Array, precision: Precision, residual?: Float32Array) {
    const rows = x.length / matrix.cols;
    const place = {
      x: this.allocate(x.byteLength),
      out: this.allocate(rows * matrix.rows * 4 + 64),
      residual: 0,
      rowCountAt: this.allocate(4),
      scratch: this.allocate(scratchBytes(matrix, rows, precision, 3)),
    };
    this.f32(place.x, x.length).set(x);
    this.f32(place.out, rows * matrix.rows + 1).fill(-77);
    this.u32(place.rowCountAt, 1)[0] = rows;
    if (residual) {
      // In place, as a model adds to its stream.
      place.residual = place.out;
      this.f32(place.out, residual.length).set(residual);
    }
    const commands = linearCommands(matrix, place, precision, rows);
    const at = this.allocate(commandWords(commands) * 4);
    writeCommands(this.u32(at, commandWords(commands)), commands);
    return { at, count: commands.length, out: place.out, length: rows * matrix.rows };
  }

  /** All rows of a table and one row too many. */
  gather(matrix: PackedMatrix, scale: number, out: Float32Array): void {
    const words = tableWords(matrix);
    const table = this.allocate(words.length * 4);
    this.u32(table, words.length).set(words);
    const count = matrix.rows + 1;
    const tokens = this.allocate(count * 4);
    for (let i = 0; i < count; i++) this.u32(tokens, count)[i] = i;
    const rowsAt = this.allocate(4);
    this.u32(rowsAt, 1)[0] = count;
    const command = {
      opcode: OP_EMBED,
      words: [table, tokens, rowsAt, out.byteOffset, matrix.cols, f32Word(scale)],
    };
    const at = this.allocate(commandWords([command]) * 4);
    writeCommands(this.u32(at, commandWords([command])), [command]);
    expect(this.kernels.run(at, 1, 0, 1)).toBe(1);
  }

  multiply(
    matrix: PackedMatrix,
    x: Float32Array,
    precision: Precision,
    residual?: Float32Array,
  ): Float32Array {
    const { at, count, out, length } = this.prepare(matrix, x, precision, residual);
    expect(this.kernels.run(at, count, 0, 1)).toBe(1);
    expect(this.f32(out, length + 1)[length]).toBe(-77);
    return this.f32(out, length).slice();
  }
}

export function activations(rows: number, cols: number, seed: number): Float32Array {
  const next = random(seed);
  // Rows and groups of very different size: a scale that were shared would show.
  return Float32Array.from(
    { length: rows * cols },
    (_, i) => (next() - 0.5) * 10 ** ((Math.floor(i / cols) % 5) - 2) * (1 + (Math.floor(i / 32) % 3)),
  );
}

/** The float64 product, and Σ|w·x| by which errors are measured. */
export function exactProduct(weights: Float64Array, x: Float32Array, cols: number, row: number, out: number) {
  let sum = 0;
  let magnitude = 0;
  for (let c = 0; c < cols; c++) {
    const p = weights[out * cols + c]! * x[row * cols + c]!;
    sum += p;
    magnitude += Math.abs(p);
  }
  return { sum, magnitude };
}

/** Half a quantisation step of x in every group, times the weights: the stated bound of the int8 path. */
export function int8Bound(
  weights: Float64Array,
  x: Float32Array,
  cols: number,
  group: number,
  row: number,
  out: number,
) {
  let bound = 0;
  for (let g = 0; g < cols; g += group) {
    let top = 0;
    let size = 0;
    for (let c = g; c < g + group; c++) {
      top = Math.max(top, Math.abs(x[row * cols + c]!));
      size += Math.abs(weights[out * cols + c]!);
    }
    bound += (top / 254) * size;
  }
  return bound;
}
