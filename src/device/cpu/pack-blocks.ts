/** Blocks of 8 rows (pack-layout.ts), packed in WebAssembly: rows are copied in, and blocks out. */
import { readFileSync } from 'node:fs';
import { workerUrl } from '../../worker-url.js';
import type { MatrixFormat, MatrixRows, RowBytes } from '../weights.js';
import { floatBytes, hasMinima, rowBytes } from '../weights.js';
import {
  HEAD_HALVES,
  HEAD_NONE,
  HEAD_PAIRS,
  TAIL_BYTE,
  TAIL_HALVES,
  TAIL_PAIRS,
  TAIL_TWO_BYTES,
  TAIL_WIDE,
} from './pack-kinds.js';
import type { KernelBuild } from './pack-layout.js';
import { BLOCK_ROWS, blockBytes, CHUNK } from './pack-layout.js';

interface PackModule {
  readonly memory: WebAssembly.Memory;
  packCodes(
    ...numbers: [
      ...[blocks: number, cols: number, bits: number, head: number, tail: number, unit: number],
      ...[relaxed: number, shifted: number, data: number, scales: number, scaleRow: number],
      ...[biases: number, biasRow: number, subscales: number, subRow: number],
      ...[room: number, to: number, factors: number],
    ]
  ): void;
  packFloats(
    ...numbers: [
      ...[blocks: number, cols: number, bytes: number, shifted: number],
      ...[data: number, to: number, factors: number],
    ]
  ): void;
}

const PAGE = 65_536;
/** What is read behind an array at most. */
const SPARE = 16;
/** Rows that are packed at once have about so many bytes: they stay in the caches of a core. */
const BATCH_BYTES = 65_536;

/** Blocks that are done, valid until the next are packed. `first` is a row, `factors` has one of each that is real: NaN where it holds what is no number. */
export type BlockSink = (first: number, blocks: Uint8Array, factors: Float32Array) => void;

/** What lies between the codes. */
interface Metas {
  readonly head: number;
  readonly tail: number;
  /** Columns that a tail stands behind. */
  readonly unit: number;
  /** Scales are f16, which kernels want without subnormals. */
  readonly shifted: boolean;
}

function metasOf(format: Exclude<MatrixFormat, { kind: 'float' }>): Metas {
  switch (format.kind) {
    case 'affine': {
      const tail = format.dtype === 'f32' ? TAIL_WIDE : TAIL_PAIRS;
      return { head: HEAD_NONE, tail, unit: format.groupSize, shifted: format.dtype === 'f16' };
    }
    case 'k-quant': {
      const head = hasMinima(format.bits) ? HEAD_PAIRS : HEAD_HALVES;
      return { head, tail: TAIL_TWO_BYTES, unit: CHUNK, shifted: true };
    }
    case 'symmetric':
      return { head: HEAD_NONE, tail: TAIL_HALVES, unit: CHUNK, shifted: true };
    case 'lut4':
      return LUT4_METAS[format.scale];
  }
}

const LUT4_METAS = {
  f16: { head: HEAD_NONE, tail: TAIL_HALVES, unit: CHUNK, shifted: true },
  e8m0: { head: HEAD_NONE, tail: TAIL_BYTE, unit: CHUNK, shifted: false },
  'f16-i8': { head: HEAD_HALVES, tail: TAIL_BYTE, unit: CHUNK, shifted: true },
  'f32-e4m3': { head: HEAD_NONE, tail: TAIL_TWO_BYTES, unit: CHUNK, shifted: false },
} as const;

/** Where the arrays of a batch of rows lie in the module's memory. */
interface Places {
  readonly data: number;
  readonly scales: number;
  readonly biases: number;
  readonly subscales: number;
  readonly room: number;
  readonly out: number;
  readonly factors: number;
  readonly end: number;
}

let shared: PackModule | undefined;

/** Packs rows in order, whatever pieces they come in. */
export class BlockPacker {
  readonly #cols: number;
  readonly #format: MatrixFormat;
  readonly #relaxed: boolean;
  readonly #sink: BlockSink;
  readonly #one: RowBytes;
  readonly #batch: number;
  readonly #places: Places;
  /** Rows that do not fill a block yet. */
  readonly #waiting: MatrixRows[] = [];
  #row = 0;

  constructor(cols: number, format: MatrixFormat, build: KernelBuild, sink: BlockSink) {
    this.#cols = cols;
    this.#format = format;
    this.#relaxed = build === 'relaxed';
    this.#sink = sink;
    this.#one = rowBytes(cols, format);
    const { data, scales, biases, subscales } = this.#one;
    const blocks = Math.floor(BATCH_BYTES / (BLOCK_ROWS * (data + scales + biases + subscales)));
    this.#batch = BLOCK_ROWS * Math.max(1, blocks);
    this.#places = this.#layOut();
  }

  /** Takes `count` rows, and hands on the blocks that they fill. They are copied: their memory may change afterwards. */
  add(rows: MatrixRows, count: number): void {
    let at = 0;
    while (at < count && this.#waiting.length > 0) {
      this.#waiting.push(copied(rows, at++, this.#one));
      if (this.#waiting.length === BLOCK_ROWS) this.#packWaiting();
    }
    for (const whole = count - ((count - at) % BLOCK_ROWS); at < whole; ) {
      const some = Math.min(this.#batch, whole - at);
      this.#copyIn(rows, at, some, 0);
      this.#pack(some);
      at += some;
    }
    for (; at < count; at++) this.#waiting.push(copied(rows, at, this.#one));
  }

  /** Hands on the last block, whose missing rows are zeros. */
  finish(): void {
    if (this.#waiting.length > 0) this.#packWaiting();
  }

  #packWaiting(): void {
    const { data, out } = this.#places;
    const count = this.#waiting.length;
    if (count < BLOCK_ROWS) this.#memory().fill(0, data, out);
    for (const [slot, row] of this.#waiting.splice(0).entries()) this.#copyIn(row, 0, 1, slot);
    this.#pack(count);
  }

  /** Rows to slots of the batch. */
  #copyIn(rows: MatrixRows, first: number, count: number, slot: number): void {
    const memory = this.#memory();
    const copy = (from: Uint8Array | undefined, size: number, at: number): void => {
      if (from !== undefined)
        memory.set(from.subarray(first * size, (first + count) * size), at + slot * size);
    };
    const { data, scales, biases, subscales } = this.#one;
    copy(rows.data, data, this.#places.data);
    copy(rows.scales, scales, this.#places.scales);
    copy(rows.biases, biases, this.#places.biases);
    copy(rows.subscales, subscales, this.#places.subscales);
  }

  /** Packs what is in the first `rows` slots. */
  #pack(rows: number): void {
    const { data, scales, biases, subscales, room, out, factors } = this.#places;
    const { memory, packCodes, packFloats } = packModule();
    const format = this.#format;
    const cols = this.#cols;
    const one = this.#one;
    const blocks = Math.ceil(rows / BLOCK_ROWS);
    const found = new Float32Array(memory.buffer, factors, rows).fill(1);
    if (format.kind === 'float') {
      const shifted = format.dtype === 'f16' ? 1 : 0;
      packFloats(blocks, cols, floatBytes(format.dtype), shifted, data, out, factors);
    } else {
      const { head, tail, unit, shifted } = metasOf(format);
      // Exponents are scales of a byte, which lie where subscales do elsewhere.
      const bytes = one.subscales > 0 ? [subscales, one.subscales] : [scales, one.scales];
      packCodes(
        ...([blocks, cols, format.bits, head, tail, unit, this.#relaxed ? 1 : 0, shifted ? 1 : 0] as const),
        ...([
          data,
          scales,
          one.scales,
          biases,
          one.biases,
          bytes[0]!,
          bytes[1]!,
          room,
          out,
          factors,
        ] as const),
      );
      if (format.kind === 'lut4') this.#byteFactors(format.scale, found);
    }
    const size = blockBytes(cols, format);
    this.#sink(this.#row, new Uint8Array(memory.buffer, out, blocks * size), found);
    this.#row += rows;
  }

  /** Of scales of a byte the largest is no number; beside floats of 8 bits a row has a number of its own. */
  #byteFactors(scale: keyof typeof LUT4_METAS, factors: Float32Array): void {
    const { scales, subscales } = this.#places;
    const memory = this.#memory();
    const holds = (at: number, size: number, row: number, byte: number): boolean =>
      memory.subarray(at + row * size, at + (row + 1) * size).includes(byte);
    const { buffer } = memory;
    if (scale === 'f32-e4m3') factors.set(new Float32Array(buffer, scales, factors.length));
    for (let row = 0; row < factors.length; row++) {
      const odd =
        scale === 'e8m0'
          ? holds(scales, this.#one.scales, row, 0xff)
          : scale === 'f32-e4m3' &&
            (holds(subscales, this.#one.subscales, row, 0x7f) ||
              holds(subscales, this.#one.subscales, row, 0xff));
      if (odd) factors[row] = Number.NaN;
    }
  }

  #layOut(): Places {
    let end = PAGE;
    const take = (bytes: number): number => {
      const at = end;
      end += Math.ceil((bytes + SPARE) / SPARE) * SPARE;
      return at;
    };
    const { data, scales, biases, subscales } = this.#one;
    const rows = this.#batch;
    return {
      data: take(rows * data),
      scales: take(rows * scales),
      biases: take(rows * biases),
      subscales: take(rows * subscales),
      room: take(this.#format.kind === 'float' ? 0 : BLOCK_ROWS * this.#cols),
      out: take((rows / BLOCK_ROWS) * blockBytes(this.#cols, this.#format)),
      factors: take(rows * 4),
      end,
    };
  }

  /** The memory of the module, which all packers share: nothing stays in it between two calls. */
  #memory(): Uint8Array {
    const { memory } = packModule();
    const missing = this.#places.end - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / PAGE));
    return new Uint8Array(memory.buffer);
  }
}

function packModule(): PackModule {
  shared ??= new WebAssembly.Instance(
    new WebAssembly.Module(readFileSync(workerUrl('./pack-wasm/pack.wasm', import.meta.url))),
    {},
  ).exports as unknown as PackModule;
  return shared;
}

function copied(rows: MatrixRows, row: number, one: RowBytes): MatrixRows {
  const of = (from: Uint8Array, size: number): Uint8Array => from.slice(row * size, (row + 1) * size);
  const { data, scales, biases, subscales } = rows;
  return {
    data: of(data, one.data),
    ...(scales && { scales: of(scales, one.scales) }),
    ...(biases && { biases: of(biases, one.biases) }),
    ...(subscales && { subscales: of(subscales, one.subscales) }),
  };
}
