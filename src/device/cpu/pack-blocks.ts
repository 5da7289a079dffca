/** Blocks of 8 rows (pack-layout.ts), packed in WebAssembly where they stay: rows are copied beside them, or lie there as they were read. */
import { SPARE, UNPACKERS } from '../blocks/unpackers.js';
import type { BesideRows, MatrixFormat, MatrixRows, RowBytes, StoredRows } from '../weights.js';
import { floatBytes, hasMinima, rowBytes } from '../weights.js';
import {
  HEAD_HALVES,
  HEAD_NONE,
  HEAD_PAIRS,
  STORED_MXFP4,
  STORED_Q4_0,
  STORED_Q4_1,
  STORED_Q4_K,
  STORED_Q5_K,
  STORED_Q6_K,
  STORED_Q8_0,
  TAIL_BYTE,
  TAIL_HALVES,
  TAIL_PAIRS,
  TAIL_TWO_BYTES,
  TAIL_WIDE,
} from './pack-kinds.js';
import type { KernelBuild } from './pack-layout.js';
import { BLOCK_ROWS, blockBytes, CHUNK } from './pack-layout.js';
import { type PackModule, packModule } from './pack-module.js';

/** Rows that are packed at once have about so many bytes: they stay in the caches of a core. */
const BATCH_BYTES = 65_536;

export interface PackPlace {
  readonly memory: WebAssembly.Memory;
  /** Where the first block goes. */
  readonly at: number;
  /** The address of so many bytes of that memory, for work that is done before anything else is: nothing stays in them. */
  readonly scratch: (bytes: number) => number;
}

/** Of rows that are packed, the first of them by its number; NaN for those that hold what is no number. Valid until the next. */
export type FactorSink = (first: number, factors: Float32Array) => void;

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

/** Types whose blocks are packed as they are stored; others are taken apart into arrays first. */
const STORED_KINDS: Partial<Record<StoredRows['type'], number>> = {
  Q4_0: STORED_Q4_0,
  Q4_1: STORED_Q4_1,
  Q8_0: STORED_Q8_0,
  MXFP4: STORED_MXFP4,
  IQ4_NL: STORED_Q4_0,
  Q4_K: STORED_Q4_K,
  Q5_K: STORED_Q5_K,
  Q6_K: STORED_Q6_K,
};

/** Where the arrays of a batch of rows lie in scratch. */
interface Places {
  /** Rows as they are stored. */
  readonly stored: number;
  readonly data: number;
  readonly scales: number;
  readonly biases: number;
  readonly subscales: number;
  readonly room: number;
  readonly factors: number;
  /** Of rows within a run. */
  readonly order: number;
}

/** Packs rows in order, whatever pieces they come in. */
export class BlockPacker {
  readonly #cols: number;
  readonly #format: MatrixFormat;
  readonly #relaxed: boolean;
  readonly #place: PackPlace;
  readonly #module: PackModule;
  readonly #sink: FactorSink;
  readonly #one: RowBytes;
  readonly #size: number;
  readonly #batch: number;
  /** Rows that do not fill a block yet. */
  readonly #waiting: MatrixRows[] = [];
  #row = 0;

  constructor(cols: number, format: MatrixFormat, build: KernelBuild, place: PackPlace, sink: FactorSink) {
    this.#cols = cols;
    this.#format = format;
    this.#relaxed = build === 'relaxed';
    this.#place = place;
    this.#module = packModule(place.memory);
    this.#sink = sink;
    this.#one = rowBytes(cols, format);
    this.#size = blockBytes(cols, format);
    const { data, scales, biases, subscales } = this.#one;
    const blocks = Math.floor(BATCH_BYTES / (BLOCK_ROWS * (data + scales + biases + subscales)));
    this.#batch = BLOCK_ROWS * Math.max(1, blocks);
  }

  /** Takes `count` rows, and packs the blocks that they fill. They are copied: their memory may change afterwards. */
  add(rows: MatrixRows, count: number): void {
    let at = 0;
    while (at < count && this.#waiting.length > 0) {
      this.#waiting.push(copied(rows, at++, this.#one));
      if (this.#waiting.length === BLOCK_ROWS) this.#packWaiting();
    }
    const places = this.#layOut();
    for (const whole = count - ((count - at) % BLOCK_ROWS); at < whole; ) {
      const some = Math.min(this.#batch, whole - at);
      this.#copyIn(rows, at, some, 0, places);
      this.#pack(some, places);
      at += some;
    }
    for (; at < count; at++) this.#waiting.push(copied(rows, at, this.#one));
  }

  /** Bytes that blocks of so many rows take. */
  blockSpan(rows: number): number {
    return Math.ceil(rows / BLOCK_ROWS) * this.#size;
  }

  /**
   * Takes the next rows, no rows waiting for others, as they were read to the end of the bytes that their blocks will take: a block
   * is written where rows have been read from already. Only the last of all may be no whole blocks. `beside`: of codes, their other arrays.
   */
  addStored(
    { type, rowBytes: stored, rowBlocks, order }: StoredRows,
    count: number,
    beside: BesideRows = {},
  ): void {
    const within = order?.within ?? BLOCK_ROWS;
    const batch = Math.max(1, Math.floor(this.#batch / within)) * within;
    const places = this.#layOut(batch, stored, within);
    const module = this.#module;
    if (order !== undefined) {
      const rows = Uint32Array.from({ length: within }, (_, row) => order.of(row));
      new Uint32Array(this.#place.memory.buffer, places.order, within).set(rows);
    }
    let from = this.#place.at + this.blockSpan(this.#row) + this.blockSpan(count) - count * stored;
    for (let done = 0; done < count; done += batch) {
      const some = Math.min(batch, count - done);
      if (some % BLOCK_ROWS !== 0) this.#memory().fill(0, places.stored, places.room);
      const here = (to: number): number => {
        if (order === undefined) module.copy(from, stored, some, to);
        else module.gather(from, stored, some, to, places.order, within);
        return to;
      };
      if (type === 'floats' || type === 'codes') {
        here(places.data);
        this.#copyIn(beside, done, some, 0, places);
        this.#pack(some, places);
      } else if (type in STORED_KINDS && (type !== 'Q8_0' || some % BLOCK_ROWS === 0)) {
        // Of Q8_0 the codes of rows that are missing would count from the middle.
        this.#packStored(STORED_KINDS[type]!, stored, here(places.stored), some, places);
      } else {
        const blocks = order === undefined ? from : here(places.stored);
        UNPACKERS[type](module, some * rowBlocks, { ...places, blocks });
        this.#pack(some, places);
      }
      from += some * stored;
    }
  }

  /** Packs the last block, whose missing rows are zeros. */
  finish(): void {
    if (this.#waiting.length > 0) this.#packWaiting();
  }

  #packWaiting(): void {
    const places = this.#layOut();
    const count = this.#waiting.length;
    if (count < BLOCK_ROWS) this.#memory().fill(0, places.data, places.room);
    for (const [slot, row] of this.#waiting.splice(0).entries()) this.#copyIn(row, 0, 1, slot, places);
    this.#pack(count, places);
  }

  /** Rows to slots of the batch. */
  #copyIn(rows: Partial<MatrixRows>, first: number, count: number, slot: number, places: Places): void {
    const memory = this.#memory();
    const copy = (from: Uint8Array | undefined, size: number, at: number): void => {
      if (from !== undefined)
        memory.set(from.subarray(first * size, (first + count) * size), at + slot * size);
    };
    const { data, scales, biases, subscales } = this.#one;
    copy(rows.data, data, places.data);
    copy(rows.scales, scales, places.scales);
    copy(rows.biases, biases, places.biases);
    copy(rows.subscales, subscales, places.subscales);
  }

  /** Packs what is in the first `rows` slots. */
  #pack(rows: number, places: Places): void {
    const { data, scales, biases, subscales, room, factors } = places;
    const format = this.#format;
    const cols = this.#cols;
    const one = this.#one;
    const blocks = Math.ceil(rows / BLOCK_ROWS);
    const to = this.#place.at + this.blockSpan(this.#row);
    const found = new Float32Array(this.#place.memory.buffer, factors, rows).fill(1);
    if (format.kind === 'float') {
      const shifted = format.dtype === 'f16' ? 1 : 0;
      this.#module.packFloats(blocks, cols, floatBytes(format.dtype), shifted, data, to, factors);
    } else {
      const { head, tail, unit, shifted } = metasOf(format);
      // Exponents are scales of a byte, which lie where subscales do elsewhere.
      const bytes = one.subscales > 0 ? [subscales, one.subscales] : [scales, one.scales];
      this.#module.packCodes(
        ...([blocks, cols, format.bits, head, tail, unit, this.#relaxed ? 1 : 0, shifted ? 1 : 0] as const),
        ...([data, scales, one.scales, biases, one.biases, bytes[0]!, bytes[1]!, room, to, factors] as const),
      );
      if (format.kind === 'lut4') this.#byteFactors(format.scale, found, places);
    }
    this.#sink(this.#row, found);
    this.#row += rows;
  }

  /** The same of rows of `rowBytes` as they are stored. */
  #packStored(kind: number, rowBytes: number, from: number, rows: number, { factors, room }: Places): void {
    const to = this.#place.at + this.blockSpan(this.#row);
    const blocks = Math.ceil(rows / BLOCK_ROWS);
    this.#module.packStored(blocks, kind, rowBytes, this.#relaxed ? 1 : 0, from, to, factors, room);
    this.#sink(this.#row, new Float32Array(this.#place.memory.buffer, factors, rows));
    this.#row += rows;
  }

  /** Of scales of a byte the largest is no number; beside floats of 8 bits a row has a number of its own. */
  #byteFactors(scale: keyof typeof LUT4_METAS, factors: Float32Array, { scales, subscales }: Places): void {
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

  /** Scratch is asked for anew each time: others may have had more of it since. `stored`: bytes of a row as it is stored, `order` rows. */
  #layOut(rows = this.#batch, stored = 0, order = 0): Places {
    let end = 0;
    const take = (bytes: number): number => {
      const at = end;
      end += Math.ceil((bytes + SPARE) / SPARE) * SPARE;
      return at;
    };
    const { data, scales, biases, subscales } = this.#one;
    const offsets = {
      stored: take(rows * stored),
      data: take(rows * data),
      scales: take(rows * scales),
      biases: take(rows * biases),
      subscales: take(rows * subscales),
      room: take(this.#format.kind === 'float' ? 0 : BLOCK_ROWS * this.#cols),
      factors: take(rows * 4),
      order: take(order * 4),
    };
    const at = this.#place.scratch(end);
    return {
      stored: at + offsets.stored,
      data: at + offsets.data,
      scales: at + offsets.scales,
      biases: at + offsets.biases,
      subscales: at + offsets.subscales,
      room: at + offsets.room,
      factors: at + offsets.factors,
      order: at + offsets.order,
    };
  }

  #memory(): Uint8Array {
    return new Uint8Array(this.#place.memory.buffer);
  }
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
