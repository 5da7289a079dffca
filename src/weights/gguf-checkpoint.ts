/** GGUF files as one set of named tensors: one file, or the shards that `split.count` speaks of. Headers alone are read. */

import { basename, dirname, join } from 'node:path';
import type { MatrixSource, VectorSource } from '../device/weights.js';
import { KvantError } from '../errors.js';
import type { ExpectedShape } from './checkpoint.js';
import { decodeFloats } from './dtypes.js';
import { GgufFile } from './gguf.js';
import { headerError } from './gguf-errors.js';
import { notFirst } from './gguf-files.js';
import type { GgufTensor } from './gguf-header.js';
import { type GgufEntry, GgufMatrix, matrixFormat, type RowOrder } from './gguf-matrix.js';
import type { GgufMetadata, GgufValue } from './gguf-metadata.js';
import { ollamaSight } from './ollama-sight.js';
import { type GgufView, ollamaText, type ShapeOf } from './ollama-text.js';

const SHARD = /^(.*-)(\d{5})-of-(\d{5})\.gguf$/i;
const MAX_SHARDS = 10_000;

/** Some rows of a tensor, which are a matrix or a vector of their own. */
export interface RowPart {
  readonly first: number;
  readonly rows: number;
}

/** Open GGUF files. Close them when the weights are on the device. */
export class GgufCheckpoint {
  /** The first file. */
  readonly path: string;
  readonly metadata: GgufMetadata;
  /** Bytes of all tensors as stored. */
  readonly totalBytes: number;
  readonly #files: readonly GgufFile[];
  readonly #entries: ReadonlyMap<string, GgufEntry>;

  private constructor(
    files: readonly GgufFile[],
    entries: ReadonlyMap<string, GgufEntry>,
    metadata: GgufMetadata,
  ) {
    const [first] = files as [GgufFile];
    this.path = first.path;
    this.metadata = metadata;
    this.#files = files;
    this.#entries = entries;
    let total = 0;
    for (const { tensor } of entries.values()) total += tensor.byteLength;
    this.totalBytes = total;
  }

  /**
   * Opens a file, and with any shard of a set all of them. What Ollama's converters wrote is shown as llama.cpp's have it.
   * @param part of a file that holds a model and what sees for it: which of the two
   * @throws KvantError as {@link GgufFile.open}; `weights-shard-missing`, `weights-duplicate`
   */
  static async open(path: string, part: 'model' | 'sight' = 'model'): Promise<GgufCheckpoint> {
    const files: GgufFile[] = [];
    try {
      for (const shard of await shardPaths(path)) files.push(await openShard(shard, path));
      const entries = new Map<string, GgufEntry>();
      for (const file of files)
        for (const tensor of file.tensors.values()) {
          if (entries.has(tensor.name)) throw duplicate(file.path, tensor.name);
          entries.set(tensor.name, { file, tensor });
        }
      checkSplit(files, entries.size);
      const { metadata } = files[0]!;
      const shapeOf: ShapeOf = (name) => entries.get(name)?.tensor.shape;
      const view = (part === 'model' ? ollamaText : ollamaSight)(metadata, shapeOf);
      if (view === undefined) return new GgufCheckpoint(files, entries, metadata);
      return new GgufCheckpoint(files, renamed(entries, view), metadata.with(view.keys));
    } catch (error) {
      await Promise.all(files.map((file) => file.close()));
      throw error;
    }
  }

  names(): string[] {
    return [...this.#entries.keys()];
  }

  has(name: string): boolean {
    return this.#entries.has(name);
  }

  info(name: string): GgufTensor | undefined {
    return this.#entries.get(name)?.tensor;
  }

  /**
   * A matrix, in the format that its type is exactly.
   *
   * @param shown what it is called elsewhere
   * @param order set where the file has them in another one
   * @param part of which rows it is, among which `order` counts. Default: all
   * @throws KvantError `weights-tensor-missing`, `weights-tensor-shape`, `weights-gguf-type`
   */
  matrix(
    name: string,
    shown: string,
    expected?: ExpectedShape,
    order?: RowOrder,
    part?: RowPart,
  ): MatrixSource {
    const entry = partOf(flattened(this.#entry(name), expected?.stack), part);
    const { shape } = entry.tensor;
    const wanted = expected === undefined ? 'a matrix' : `[${expected.rows}, ${expected.cols}]`;
    // A matrix of one row may be stored as a vector.
    if (shape.length === 1 && expected?.rows === 1 && shape[0] === expected.cols)
      return new GgufMatrix(shown, { ...entry, tensor: { ...entry.tensor, shape: [1, shape[0]] } }, order);
    if (shape.length !== 2) throw shapeError(name, shape, wanted);
    const rows = order?.rows ?? shape[0];
    if (expected !== undefined && (rows !== expected.rows || shape[1] !== expected.cols))
      throw shapeError(name, shape, wanted);
    if (order?.within !== undefined && shape[0]! % order.within !== 0)
      throw shapeError(name, shape, `whole heads of ${order.within} rows`);
    const factor = factorName(entry.tensor);
    if (factor === undefined || !this.has(factor)) return new GgufMatrix(shown, entry, order);
    const numbers = this.#entry(factor).tensor.shape;
    if (shape[0]! % (numbers[0] ?? 1) !== 0) throw shapeError(factor, numbers, '[1]');
    return new GgufMatrix(shown, entry, order, this.vector(factor, factor, numbers));
  }

  /** Numbers as f32; `order` says which number of the file, or of the part, each one is. */
  vector(
    name: string,
    shown: string,
    expected?: readonly number[],
    order?: Pick<RowOrder, 'of' | 'rows'>,
    part?: RowPart,
  ): VectorSource {
    const entry = partOf(this.#entry(name), part);
    const { shape } = entry.tensor;
    // Where a dimension of 1 stands changes nothing, as kernels of convolutions are stored.
    const sizes = (all: readonly number[]): string => all.filter((size) => size !== 1).join();
    const wanted = order?.rows === undefined ? expected : shape;
    if (wanted === undefined ? shape.length !== 1 : sizes(shape) !== sizes(wanted))
      throw shapeError(name, shape, expected === undefined ? 'a vector' : `[${expected.join(', ')}]`);
    const count = shape.reduce((product, size) => product * size, 1);
    const length = order?.rows ?? count;
    const format = matrixFormat(entry.tensor);
    if (format.kind !== 'float')
      throw new KvantError(
        'weights-tensor-dtype',
        `${JSON.stringify(name)} is a vector of ${entry.tensor.type.name}`,
        {
          kind: 'model',
          where: name,
          fix: 'Convert the model again: norms and biases are F32, F16 or BF16.',
        },
      );
    return {
      name: shown,
      length,
      async read(): Promise<Float32Array> {
        const bytes = new Uint8Array(entry.tensor.byteLength);
        await entry.file.readInto(entry.tensor, 0, bytes);
        const stored = new Float32Array(count);
        decodeFloats(bytes, format.dtype, stored);
        return order === undefined ? stored : Float32Array.from({ length }, (_, i) => stored[order.of(i)]!);
      },
    };
  }

  async close(): Promise<void> {
    await Promise.all(this.#files.map((file) => file.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #entry(name: string): GgufEntry {
    const entry = this.#entries.get(name);
    if (entry !== undefined) return entry;
    throw new KvantError('weights-tensor-missing', `${this.path} has no tensor ${JSON.stringify(name)}`, {
      kind: 'model',
      where: name,
      fix: 'Fetch the file again, or convert the model again with a current version of the tool.',
    });
  }
}

/** The tensors that a view shows. A name that another has stays with that one. */
function renamed(entries: ReadonlyMap<string, GgufEntry>, { nameOf }: GgufView): Map<string, GgufEntry> {
  const shown = new Map<string, GgufEntry>();
  for (const [name, { file, tensor }] of entries) {
    const other = nameOf(name);
    if (other === null || (other !== name && entries.has(other))) continue;
    shown.set(other, { file, tensor: other === name ? tensor : { ...tensor, name: other } });
  }
  return shown;
}

/** Where the number is that a tensor of NVFP4 is multiplied with, if there is one. */
export function factorName({ name, type }: GgufTensor): string | undefined {
  return type.name === 'NVFP4' ? name.replace(/\.weight$/, '.scale') : undefined;
}

/** A tensor `[stack, n, cols]` as `[stack · n, cols]`; any other as it is, for shapes to be checked. */
function flattened(entry: GgufEntry, stack: number | undefined): GgufEntry {
  const [first, second, third] = entry.tensor.shape;
  if (stack === undefined || first !== stack || entry.tensor.shape.length !== 3) return entry;
  return { ...entry, tensor: { ...entry.tensor, shape: [first * second!, third!] } };
}

/** Rows of a tensor as one: they lie one behind the other. */
function partOf(entry: GgufEntry, part: RowPart | undefined): GgufEntry {
  if (part === undefined) return entry;
  const { tensor } = entry;
  const [all, ...inner] = tensor.shape as [number, ...number[]];
  const rowBytes = tensor.byteLength / all;
  const [start, byteLength] = [tensor.start + part.first * rowBytes, part.rows * rowBytes];
  return { ...entry, tensor: { ...tensor, shape: [part.rows, ...inner], start, byteLength } };
}

/** The file alone, or all of its set where its name says that it is one of several. */
async function shardPaths(path: string): Promise<string[]> {
  const [, stem, , count] = SHARD.exec(basename(path)) ?? [];
  if (stem === undefined || count === undefined) return [path];
  const shards = Number(count);
  if (shards < 1 || shards > MAX_SHARDS) return [path];
  return Array.from({ length: shards }, (_, i) =>
    join(dirname(path), `${stem}${String(i + 1).padStart(5, '0')}-of-${count}.gguf`),
  );
}

async function openShard(shard: string, asked: string): Promise<GgufFile> {
  try {
    return await GgufFile.open(shard);
  } catch (cause) {
    if (shard === asked || !(cause instanceof KvantError) || cause.code !== 'weights-missing') throw cause;
    throw new KvantError('weights-shard-missing', `${shard} is missing: ${basename(asked)} is one of a set`, {
      kind: 'not-found',
      where: shard,
      fix: `Fetch ${basename(shard)} into the same folder.`,
      cause,
    });
  }
}

/** What the header says of the set against what is there. */
function checkSplit(files: readonly GgufFile[], tensors: number): void {
  const [first] = files as [GgufFile];
  const count = first.metadata.count('split.count', 0) ?? 0;
  if (count > 1 && count !== files.length)
    throw new KvantError(
      'weights-shard-missing',
      `${first.path} is one of ${count} files; ${files.length} are here`,
      {
        kind: 'not-found',
        where: first.path,
        fix: 'Give the files their published names, name-00001-of-0000N.gguf, in one folder; or merge them with llama-gguf-split --merge.',
      },
    );
  for (const [index, { path, metadata }] of files.entries()) {
    const number = count > 1 ? (metadata.count('split.no', 0) ?? index) : index;
    if (number !== index) throw notFirst(path, number);
    for (const key of OF_ONE_SET) {
      const [one, other] = [first.metadata.value(key), metadata.value(key)];
      if (one !== undefined && other !== undefined && other !== one) throw otherSet(path, key, other, one);
    }
  }
  const stated = first.metadata.count('split.tensors.count', 0);
  if (count > 1 && stated !== undefined && stated !== tensors)
    throw headerError(first.path, `it speaks of ${stated} tensors in all files, and they hold ${tensors}`);
}

/**
 * What files of a set say alike, as far as they say it: published ones have numbers of the set alone behind the first. Files of two models
 * of one shape and as many tensors cannot be told apart.
 */
const OF_ONE_SET = [
  'general.architecture',
  'general.name',
  'general.basename',
  'general.size_label',
  'general.finetune',
  'general.file_type',
  'split.count',
  'split.tensors.count',
];

function otherSet(path: string, key: string, own: GgufValue, firsts: GgufValue): KvantError {
  const [one, other] = [own, firsts].map((value) => JSON.stringify(String(value).slice(0, 200)));
  return new KvantError(
    'weights-header',
    `${path} is of another set: its ${key} is ${one}, and the first file has ${other}`,
    {
      kind: 'model',
      where: path,
      fix: 'Fetch the files of the set again, from one revision of the model.',
    },
  );
}

function duplicate(path: string, name: string): KvantError {
  return new KvantError(
    'weights-duplicate',
    `${path} holds ${JSON.stringify(name)}, as another of its set does`,
    {
      kind: 'model',
      where: path,
      fix: 'Fetch the files of the set again, from one revision of the model.',
    },
  );
}

function shapeError(name: string, shape: readonly number[], expected: string): KvantError {
  return new KvantError(
    'weights-tensor-shape',
    `${JSON.stringify(name)} has shape [${shape.join(', ')}]; the model needs ${expected}`,
    { kind: 'model', where: name, fix: 'Fetch the file again, or convert the model again.' },
  );
}
