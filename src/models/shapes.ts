/**
 * Named shapes with random weights, for `kvant bench --shapes`: the sizes of well-known models without their files.
 *
 * Weights are made on the fly from one small table of random bits, read at an offset that depends on tensor and row.
 * That is deterministic, costs a copy, and gives the arithmetic real work: weights are zero-mean with variance
 * `1 / cols`, so that activations keep their size and logits stay finite.
 */

import type {
  FloatDtype,
  KQuantFormat,
  MatrixFormat,
  MatrixRows,
  MatrixSource,
  VectorSource,
} from '../device/weights.js';
import { columnUnit, floatBytes, hasMinima, rowBytes, SUPERBLOCK } from '../device/weights.js';
import { KvantError } from '../errors.js';
import { isJsonObject } from '../text/json-file.js';
import { encodeFloats } from '../weights/dtypes.js';
import type { JsonObject } from '../weights/folder-files.js';
import { parseModelConfig } from './families.js';
import type { ModelDefinition } from './family.js';
import type { WeightSource } from './resolve-weights.js';
import { SHAPES } from './shape-configs.js';

export type ShapeName = keyof typeof SHAPES;

export function shapeNames(): ShapeName[] {
  return Object.keys(SHAPES) as ShapeName[];
}

export interface ShapeOptions {
  /** Rows of the vocabulary, instead of the model's. */
  readonly vocab?: number;
}

/**
 * The model of a named shape.
 * @throws KvantError `shape-unknown`, listing the names
 * @example shapeModel('qwen3-0.6b', { vocab: 32000 }).facts.layers // 28
 */
export function shapeModel(name: string, options: ShapeOptions = {}): ModelDefinition {
  return parseModelConfig(shapeFields(name, options), `shape ${name}`);
}

/**
 * The fields of config.json for a named shape.
 * @throws KvantError `shape-unknown`, listing the names
 */
export function shapeFields(name: string, { vocab }: ShapeOptions = {}): JsonObject {
  if (!Object.hasOwn(SHAPES, name))
    throw new KvantError('shape-unknown', `there is no shape ${JSON.stringify(name)}`, {
      kind: 'invalid-request',
      where: 'shapes',
      fix: `Use one of: ${shapeNames().join(', ')}.`,
    });
  const fields: JsonObject = SHAPES[name as ShapeName];
  if (vocab === undefined) return { ...fields };
  const text = fields.text_config;
  return isJsonObject(text)
    ? { ...fields, text_config: { ...text, vocab_size: vocab } }
    : { ...fields, vocab_size: vocab };
}

export const DEFAULT_SHAPE_FORMAT: MatrixFormat = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' };

/** Elements of the random table; odd, so that rows that begin at neighbouring offsets do not line up. */
const TABLE = 65_521;

/** What sees is not quantised in what is published. */
const TOWER = /(?:^|\.)(?:visual|vision_tower|multi_modal_projector|vision_adapter|vision_projection)\./;

/** A weight source that has every tensor it is asked for. Affine where groups divide a row, f16 elsewhere and in towers. */
export class RandomWeights implements WeightSource {
  readonly #format: MatrixFormat;
  readonly #table: Uint32Array;

  constructor(format: MatrixFormat = DEFAULT_SHAPE_FORMAT) {
    this.#format = format;
    this.#table = randomTable();
  }

  has(): boolean {
    return true;
  }

  matrix(name: string, { rows, cols }: { readonly rows: number; readonly cols: number }): MatrixSource {
    const fits = cols % columnUnit(this.#format) === 0 && !TOWER.test(name);
    const format: MatrixFormat = fits ? this.#format : { kind: 'float', dtype: 'f16' };
    return new RandomMatrix(name, rows, cols, format, this.#table);
  }

  /** Norm weights of 1, biases of 0. */
  vector(name: string, shape: readonly number[]): VectorSource {
    const length = shape.reduce((product, n) => product * n, 1);
    const value = name.endsWith('.bias') ? 0 : 1;
    return { name, length, read: async () => new Float32Array(length).fill(value) };
  }

  info(): undefined {}

  unusedNames(): readonly string[] {
    return [];
  }
}

class RandomMatrix implements MatrixSource {
  readonly name: string;
  readonly rows: number;
  readonly cols: number;
  readonly format: MatrixFormat;
  readonly #pattern: Uint8Array;
  readonly #start: number;
  /** Everything of a row but its codes. */
  readonly #row: Omit<MatrixRows, 'data'>;

  constructor(name: string, rows: number, cols: number, format: MatrixFormat, table: Uint32Array) {
    this.name = name;
    this.rows = rows;
    this.cols = cols;
    this.format = format;
    this.#start = hash(name) % TABLE;
    const deviation = 1 / Math.sqrt(cols);
    if (format.kind === 'float') {
      const width = Math.sqrt(12) * deviation;
      const values = Float32Array.from(table, (word) => (word / 2 ** 32 - 0.5) * width);
      this.#pattern = encoded(values, format.dtype);
      this.#row = {};
    } else {
      // Codes are uniform over 0 … 2^bits − 1, whose variance is (4^bits − 1) / 12.
      const levels = 2 ** format.bits;
      const scale = deviation * Math.sqrt(12 / (levels * levels - 1));
      this.#pattern = new Uint8Array(table.buffer, table.byteOffset, table.byteLength);
      this.#row = metaRow(format, cols, scale);
    }
  }

  async readRows(start: number, end: number): Promise<MatrixRows> {
    const { data: bytes } = rowBytes(this.cols, this.format);
    const data = new Uint8Array((end - start) * bytes);
    const pattern = this.#pattern;
    const element = pattern.length / TABLE;
    for (let row = start; row < end; row++) {
      let from = ((this.#start + row * 7919) % TABLE) * element;
      for (let at = 0; at < bytes; ) {
        const run = Math.min(bytes - at, pattern.length - from);
        data.set(pattern.subarray(from, from + run), (row - start) * bytes + at);
        at += run;
        from = 0;
      }
    }
    const { scales, biases, subscales } = this.#row;
    const rows = end - start;
    return {
      data,
      ...(scales && { scales: repeat(scales, rows) }),
      ...(biases && { biases: repeat(biases, rows) }),
      ...(subscales && { subscales: repeat(subscales, rows) }),
    };
  }
}

/** A step of `scale`, and values about zero. */
function metaRow(
  format: Exclude<MatrixFormat, { kind: 'float' }>,
  cols: number,
  scale: number,
): Omit<MatrixRows, 'data'> {
  switch (format.kind) {
    case 'affine':
      return affineRow(format, cols, scale);
    case 'k-quant':
      return kQuantRow(format, cols, scale);
    case 'symmetric':
      return { scales: encoded(new Float32Array(cols / format.groupSize).fill(scale), format.dtype) };
    case 'lut4': {
      // The tables reach eight steps, or 16 times that.
      const step = format.table === 'e2m1' ? scale : scale / 16;
      const bytes = rowBytes(cols, format);
      if (format.scale === 'e8m0')
        return { scales: new Uint8Array(bytes.scales).fill(127 + Math.round(Math.log2(step))) };
      // 0x38 is 1.
      if (format.scale === 'f32-e4m3')
        return {
          scales: encoded(Float32Array.of(step), 'f32'),
          subscales: new Uint8Array(bytes.subscales).fill(0x38),
        };
      const d = format.scale === 'f16' ? step : step / 8;
      const scales = encoded(new Float32Array(bytes.scales / 2).fill(d), format.dtype);
      return { scales, ...(bytes.subscales > 0 && { subscales: new Uint8Array(bytes.subscales).fill(8) }) };
    }
  }
}

function affineRow(
  { bits, groupSize, dtype }: Extract<MatrixFormat, { kind: 'affine' }>,
  cols: number,
  scale: number,
): Omit<MatrixRows, 'data'> {
  const all = (value: number): Uint8Array => encoded(new Float32Array(cols / groupSize).fill(value), dtype);
  return { scales: all(scale), biases: all((-scale * (2 ** bits - 1)) / 2) };
}

function kQuantRow({ bits, dtype }: KQuantFormat, cols: number, scale: number): Omit<MatrixRows, 'data'> {
  const all = (value: number): Uint8Array => encoded(new Float32Array(cols / SUPERBLOCK).fill(value), dtype);
  // Subscales of 8, in whatever form they have.
  const eight = bits === 2 ? 0x88 : 8;
  return {
    scales: all(scale / 8),
    ...(hasMinima(bits) && { biases: all((scale * (2 ** bits - 1)) / 16) }),
    subscales: new Uint8Array(cols / 16).fill(eight),
  };
}

function encoded(values: Float32Array, dtype: FloatDtype): Uint8Array {
  const out = new Uint8Array(values.length * floatBytes(dtype));
  encodeFloats(values, dtype, out);
  return out;
}

function repeat(row: Uint8Array, times: number): Uint8Array {
  const out = new Uint8Array(row.length * times);
  for (let i = 0; i < times; i++) out.set(row, i * row.length);
  return out;
}

/** xorshift32 (Marsaglia, "Xorshift RNGs", 2003), from a fixed seed. */
function randomTable(): Uint32Array {
  const out = new Uint32Array(TABLE);
  let state = 0x9e3779b9;
  for (let i = 0; i < TABLE; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    out[i] = state;
  }
  return out;
}

/** FNV-1a, 32 bits. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193) >>> 0;
  return value;
}
