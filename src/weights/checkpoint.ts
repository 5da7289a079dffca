/**
 * A checkpoint: the safetensors files of a model folder seen as one set of named tensors, handed out as sources
 * that read by ranges of rows. Nothing but headers is read when it is opened.
 */

import { join } from 'node:path';
import type { MatrixSource, VectorSource } from '../device/weights.js';
import { KvantError } from '../errors.js';
import { affineNames, parseQuantization, type QuantizationConfig, resolveAffine } from './affine.js';
import { decodeFloats, floatDtype } from './dtypes.js';
import { type JsonObject, readOptionalJsonFile, requireFolder } from './folder-files.js';
import { foreignQuantization } from './foreign-quantization.js';
import { SafetensorsFile, type TensorInfo } from './safetensors.js';
import { findWeights, INDEX_NAME, shardMissing } from './shards.js';
import { DoubleMatrix, type StoredEntry as Entry, readDoubles, StoredMatrix } from './stored-matrix.js';
import { blockNames, GLOBAL_SCALE, resolveBlocks, resolveTable, rowFactors } from './table-tensors.js';

/** What a model expects of a matrix; given, it is checked. */
export interface ExpectedShape {
  readonly rows: number;
  readonly cols: number;
  /** It is stored as `[stack, rows / stack, cols]`; as `[rows, cols]` if omitted. */
  readonly stack?: number;
}

/** A tensor with the file that holds it. */
export interface CheckpointTensor extends TensorInfo {
  /** The shard's name within the folder. */
  readonly file: string;
}

/** An open checkpoint. Close it when the weights are on the device. */
export class Checkpoint {
  readonly folder: string;
  /** The parsed config.json, empty where the folder has none. */
  readonly config: JsonObject;
  /** Set for an MLX-quantised checkpoint. */
  readonly quantization: QuantizationConfig | undefined;
  /** Bytes of all tensors as stored. */
  readonly totalBytes: number;
  readonly #entries: ReadonlyMap<string, Entry>;
  readonly #files: readonly SafetensorsFile[];
  readonly #used = new Set<string>();

  private constructor(
    folder: string,
    config: JsonObject,
    quantization: QuantizationConfig | undefined,
    files: readonly SafetensorsFile[],
    entries: Map<string, Entry>,
  ) {
    this.folder = folder;
    this.config = config;
    this.quantization = quantization;
    this.#files = files;
    this.#entries = entries;
    let total = 0;
    for (const { tensor } of entries.values()) total += tensor.byteLength;
    this.totalBytes = total;
  }

  /**
   * Opens a folder: `model.safetensors`, or `model.safetensors.index.json` with its shards, or every
   * `model*.safetensors`, or every `*.safetensors` there.
   *
   * @throws KvantError `model-folder-missing`, `weights-none`, `weights-pickle`, `weights-gguf`, `weights-index`,
   * `weights-shard-missing`, `weights-duplicate`, and those of {@link SafetensorsFile.open},
   * {@link parseQuantization} and {@link foreignQuantization}
   */
  static async open(folder: string): Promise<Checkpoint> {
    await requireFolder(folder);
    const config = (await readOptionalJsonFile(folder, 'config.json')) ?? {};
    const { files: names, index } = await findWeights(folder);
    // Before the files, whose types may be the method's own.
    const quantization = parseQuantization(config, join(folder, 'config.json'));
    const files: SafetensorsFile[] = [];
    try {
      for (const name of names) files.push(await openShard(folder, name, index !== undefined));
      const entries = collect(folder, names, files, index);
      const foreign = foreignQuantization(entries.keys(), folder);
      if (foreign !== undefined) throw foreign;
      return new Checkpoint(folder, config, quantization, files, entries);
    } catch (error) {
      await Promise.all(files.map((file) => file.close()));
      throw error;
    }
  }

  /** Every tensor's name, scales and biases of quantised matrices included, in the order of the files. */
  names(): string[] {
    return [...this.#entries.keys()];
  }

  /** A stack of experts that is stored as blocks and scales is there under its own name, too. */
  has(name: string): boolean {
    return this.#entries.has(name) || this.#entries.has(blockNames(name).blocks);
  }

  /** The tensor's header entry, undefined where there is none. */
  info(name: string): CheckpointTensor | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    return { ...entry.tensor, file: entry.file.path.slice(this.folder.length).replace(/^[/\\]/, '') };
  }

  /**
   * A matrix by its weight's name (`….weight`), float or quantised as it is stored.
   *
   * @param expected what the model needs; a different shape is an error here rather than a wrong answer later
   * @param stack it is stored as so many matrices, and read as one
   * @throws KvantError `weights-tensor-missing`, `weights-tensor-shape`, `weights-tensor-dtype`, and those of
   * {@link resolveAffine}, {@link resolveTable}, {@link resolveBlocks}
   */
  matrix(name: string, expected?: ExpectedShape, stack = expected?.stack): MatrixSource {
    if (!this.#entries.has(name) && this.has(name)) return this.#blocks(name, expected);
    const flat = (entry: Entry): Entry => flattened(entry, stack);
    const { file, tensor } = flat(this.#take(name));
    const names = affineNames(name);
    const [scales, biases] = [names.scales, names.biases].map((other) => {
      const entry = this.#entries.get(other);
      return entry && flat(entry);
    });
    if (scales?.tensor.dtype === 'U8') {
      const { rows, cols, format } = resolveTable(tensor, scales.tensor, biases?.tensor, this.quantization);
      checkShape(name, [rows, cols], expected);
      this.#used.add(names.scales);
      const codes = { file, tensor };
      if (format.scale !== 'f32-e4m3') return new StoredMatrix(name, rows, cols, format, [codes, scales]);
      const global = names.path + GLOBAL_SCALE;
      const largest = this.#entries.has(global)
        ? this.vector(global, this.#entries.get(global)!.tensor.shape)
        : undefined;
      return new StoredMatrix(name, rows, cols, format, [codes, scales], rowFactors(rows, largest));
    }
    if (scales !== undefined || tensor.dtype === 'U32') {
      const affine = resolveAffine(
        { weight: tensor, scales: scales?.tensor, biases: biases?.tensor },
        this.quantization,
        expected?.cols,
      );
      checkShape(name, [affine.rows, affine.cols], expected);
      this.#used.add(names.scales).add(names.biases);
      return new StoredMatrix(name, affine.rows, affine.cols, affine.format, [
        { file, tensor },
        scales as Entry,
        biases as Entry,
      ]);
    }
    const dtype = tensor.dtype === 'F64' ? 'f32' : floatDtype(tensor.dtype);
    if (dtype === undefined) throw dtypeError(tensor);
    if (tensor.shape.length !== 2) throw shapeError(name, tensor.shape, 'a matrix');
    const [rows, cols] = tensor.shape as [number, number];
    checkShape(name, [rows, cols], expected);
    if (tensor.dtype === 'F64') return new DoubleMatrix(name, rows, cols, { file, tensor });
    return new StoredMatrix(name, rows, cols, { kind: 'float', dtype }, [{ file, tensor }]);
  }

  /**
   * A vector by name, to be read as f32. A number alone may be stored as `[]` or `[1]`; of more dimensions it is read row by row.
   * @param shape default: of one dimension
   * @throws KvantError `weights-tensor-missing`, `weights-tensor-shape`, `weights-tensor-dtype`
   */
  vector(name: string, shape?: readonly number[]): VectorSource {
    const { file, tensor } = this.#take(name);
    const double = tensor.dtype === 'F64';
    const dtype = double ? 'f32' : floatDtype(tensor.dtype);
    if (dtype === undefined) throw dtypeError(tensor);
    const stored = tensor.shape.length === 0 ? [1] : tensor.shape;
    if (shape === undefined && stored.length !== 1) throw shapeError(name, tensor.shape, 'a vector');
    // Where a dimension of 1 stands changes nothing: kernels of convolutions are [n, 1, k] or [n, k, 1].
    const sizes = (all: readonly number[]): string => all.filter((n) => n !== 1).join();
    if (shape !== undefined && sizes(stored) !== sizes(shape))
      throw shapeError(name, tensor.shape, `[${shape.join(', ')}]`);
    const length = stored.reduce((product, n) => product * n, 1);
    return {
      name,
      length,
      async read(): Promise<Float32Array> {
        if (double) return Float32Array.from(await readDoubles({ file, tensor }, 0, length));
        const values = new Float32Array(length);
        // f32 is read in place; a half needs room of its own while it is widened.
        const bytes = dtype === 'f32' ? new Uint8Array(values.buffer) : new Uint8Array(tensor.byteLength);
        await file.readInto(tensor, 0, bytes);
        if (dtype !== 'f32') decodeFloats(bytes, dtype, values);
        return values;
      },
    };
  }

  /**
   * Some bytes of a tensor, whatever its dtype, from `offset` on.
   * @throws KvantError `weights-tensor-missing`
   */
  async readBytes(name: string, offset: number, target: Uint8Array): Promise<void> {
    const { file, tensor } = this.#take(name);
    await file.readInto(tensor, offset, target);
  }

  /**
   * Whether two tensors hold the same: dtype, shape and every byte, and so do their scales and biases where they have any.
   * Reads both up to the first difference.
   */
  async equal(a: string, b: string): Promise<boolean> {
    const [first, second] = [affineNames(a), affineNames(b)];
    const pairs = [
      [a, b],
      [first.scales, second.scales],
      [first.biases, second.biases],
    ] as const;
    for (const [one, other] of pairs) {
      const left = this.#entries.get(one);
      const right = this.#entries.get(other);
      if (left === undefined && right === undefined) continue;
      if (left === undefined || right === undefined || !(await equalBytes(left, right))) return false;
    }
    return true;
  }

  /** The tensors that nobody asked for: with a model loaded, the checkpoint's extra tensors. */
  unusedNames(): string[] {
    return this.names().filter((name) => !this.#used.has(name));
  }

  async close(): Promise<void> {
    await Promise.all(this.#files.map((file) => file.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #blocks(name: string, expected: ExpectedShape | undefined): MatrixSource {
    const names = blockNames(name);
    const blocks = this.#take(names.blocks);
    const scales = this.#entries.get(names.scales);
    const { rows, cols, format } = resolveBlocks(blocks.tensor, scales?.tensor, expected?.stack);
    checkShape(name, [rows, cols], expected);
    this.#used.add(names.scales);
    return new StoredMatrix(name, rows, cols, format, [blocks, scales as Entry]);
  }

  #take(name: string): Entry {
    const entry = this.#entries.get(name);
    if (entry === undefined) {
      throw new KvantError('weights-tensor-missing', `${this.folder} has no tensor ${JSON.stringify(name)}`, {
        kind: 'model',
        where: name,
        fix: 'Check that config.json belongs to these weights, and that every shard is there.',
      });
    }
    this.#used.add(name);
    return entry;
  }
}

/** A tensor `[stack, n, …]` as `[stack · n, …]`; any other as it is, for shapes to be checked. */
function flattened(entry: Entry, stack: number | undefined): Entry {
  const [first, second, ...rest] = entry.tensor.shape;
  if (stack === undefined || first !== stack || rest.length !== 1) return entry;
  return { ...entry, tensor: { ...entry.tensor, shape: [first * second!, ...rest] } };
}

/** Bytes compared at a time; tensors that differ mostly do so in the first few. */
const COMPARED_BYTES = 1 << 20;

async function equalBytes(a: Entry, b: Entry): Promise<boolean> {
  const { byteLength, dtype, shape } = a.tensor;
  if (b.tensor.dtype !== dtype || String(b.tensor.shape) !== String(shape)) return false;
  const left = Buffer.allocUnsafe(Math.min(COMPARED_BYTES, byteLength));
  const right = Buffer.allocUnsafe(left.length);
  for (let at = 0; at < byteLength; at += left.length) {
    const size = Math.min(left.length, byteLength - at);
    const pieces = [left.subarray(0, size), right.subarray(0, size)] as const;
    await Promise.all([a.file.readInto(a.tensor, at, pieces[0]), b.file.readInto(b.tensor, at, pieces[1])]);
    if (!pieces[0].equals(pieces[1])) return false;
  }
  return true;
}

async function openShard(folder: string, name: string, fromIndex: boolean): Promise<SafetensorsFile> {
  try {
    return await SafetensorsFile.open(join(folder, name));
  } catch (cause) {
    if (!fromIndex || !(cause instanceof KvantError) || cause.code !== 'weights-missing') throw cause;
    throw shardMissing(folder, name, `${INDEX_NAME} names it`, cause);
  }
}

function collect(
  folder: string,
  names: readonly string[],
  files: readonly SafetensorsFile[],
  index: ReadonlyMap<string, string> | undefined,
): Map<string, Entry> {
  const entries = new Map<string, Entry>();
  const homes = new Map<string, string>();
  for (const [i, file] of files.entries()) {
    for (const [name, tensor] of file.tensors) {
      const home = homes.get(name);
      if (home !== undefined) {
        const named = index?.get(name);
        if (named === undefined) {
          throw new KvantError(
            'weights-duplicate',
            `${home} and ${names[i]} both hold ${JSON.stringify(name)}`,
            {
              kind: 'model',
              where: folder,
              fix: `Remove the files that do not belong to the model, or add the ${INDEX_NAME} that came with it.`,
            },
          );
        }
        if (named !== names[i]) continue;
      }
      entries.set(name, { file, tensor });
      homes.set(name, names[i] as string);
    }
  }
  // Published indexes name tensors that were left out of the shards (a tied head, rotary frequencies), or that another shard
  // holds. What counts is where they are; whoever needs one that is nowhere says that it is missing.
  return entries;
}

function checkShape(
  name: string,
  shape: readonly [number, number],
  expected: ExpectedShape | undefined,
): void {
  if (expected === undefined || (shape[0] === expected.rows && shape[1] === expected.cols)) return;
  throw shapeError(name, shape, `[${expected.rows}, ${expected.cols}]`);
}

function shapeError(name: string, shape: readonly number[], expected: string): KvantError {
  return new KvantError(
    'weights-tensor-shape',
    `${JSON.stringify(name)} has shape [${shape.join(', ')}]; the model needs ${expected}`,
    { kind: 'model', where: name, fix: 'Check that config.json belongs to these weights.' },
  );
}

function dtypeError(tensor: TensorInfo): KvantError {
  return new KvantError(
    'weights-tensor-dtype',
    `${JSON.stringify(tensor.name)} is ${tensor.dtype}; the model needs F32, F16, BF16 or F64`,
    { kind: 'model', where: tensor.name, fix: 'Convert the checkpoint to BF16, F16 or F32.' },
  );
}
