/** What `kvant quantize` reads: tensors under the names of safetensors checkpoints, whatever the format of their files. */

import type { FloatDtype, MatrixFormat, MatrixRows, MatrixSource } from '../device/weights.js';
import { KvantError } from '../errors.js';
import { affineNames } from './affine.js';
import type { Checkpoint, CheckpointTensor } from './checkpoint.js';
import { dequantiseRows } from './dequantise.js';
import { floatDtype, type TensorDtype } from './dtypes.js';
import type { JsonObject } from './folder-files.js';
import { checkRows } from './stored-matrix.js';
import { GLOBAL_SCALE } from './table-tensors.js';

/** Input read at a time. */
export const PIECE_BYTES = 8 << 20;

/** One tensor, and how to read it. */
export interface InputTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** Of what is written where it stays as it is. */
  readonly dtype: TensorDtype;
  /** Bytes that are read of the input. */
  readonly byteLength: number;
  /** A matrix of numbers, or a stack of them as one, as it is stored; undefined for anything else. */
  readonly matrix?: () => MatrixSource;
  /** What it is written as where it stays as it is, in pieces from the first byte to the last. */
  pieces(): AsyncIterable<Uint8Array>;
}

/** A model to be quantised. */
export interface QuantizeInput {
  /** Folder or file, for errors. */
  readonly path: string;
  readonly config: JsonObject;
  /** Bytes of all tensors. */
  readonly totalBytes: number;
  tensors(): Promise<readonly InputTensor[]>;
  /** Whether two tensors hold the same. */
  equal(a: string, b: string): Promise<boolean>;
  /** The folder that the small files are copied from. */
  readonly folder?: string;
  /** Small files that are written, by their names. */
  readonly files?: Readonly<Record<string, JsonObject>>;
}

/** A folder of safetensors files, float or quantised. */
export function checkpointInput(checkpoint: Checkpoint): QuantizeInput {
  return {
    path: checkpoint.folder,
    folder: checkpoint.folder,
    config: checkpoint.config,
    totalBytes: checkpoint.totalBytes,
    equal: (a, b) => checkpoint.equal(a, b),
    tensors: async () => {
      const names = checkpoint.names();
      const parts = new Set(
        names
          .filter((name) => isPacked(checkpoint, name))
          .flatMap((name) => {
            const { path, scales, biases } = affineNames(name);
            return [scales, biases, path + GLOBAL_SCALE];
          }),
      );
      return names
        .filter((name) => !parts.has(name))
        .map((name) => checkpointTensor(checkpoint, checkpoint.info(name)!));
    },
  };
}

/** Words of codes, with scales beside them. */
function isPacked(checkpoint: Checkpoint, name: string): boolean {
  return checkpoint.info(name)?.dtype === 'U32' && checkpoint.info(affineNames(name).scales) !== undefined;
}

function checkpointTensor(checkpoint: Checkpoint, tensor: CheckpointTensor): InputTensor {
  const { name, dtype, byteLength } = tensor;
  if (/_(blocks|scales)$/.test(name) && dtype === 'U8')
    throw new KvantError('weights-already-quantized', `${JSON.stringify(name)} is MXFP4 in blocks`, {
      kind: 'unsupported',
      where: name,
      fix: 'Take the MLX or GGUF version of the model: its matrices can be quantised anew.',
    });
  if (isPacked(checkpoint, name)) {
    const [stack, ...inner] = tensor.shape.length === 3 ? tensor.shape : [undefined, ...tensor.shape];
    const flat = checkpoint.matrix(name, undefined, stack);
    const names = affineNames(name);
    const others = [names.scales, names.biases].map((other) => checkpoint.info(other)?.byteLength ?? 0);
    const shape = [...(stack === undefined ? [] : [stack]), inner[0]!, flat.cols];
    return {
      name,
      shape,
      dtype: 'F32',
      byteLength: others.reduce((sum, bytes) => sum + bytes, byteLength),
      matrix: () => flat,
      pieces: () => matrixPieces(dequantised(flat)),
    };
  }
  const isMatrix = name.endsWith('.weight') && floatDtype(dtype) !== undefined;
  const stack = tensor.shape.length === 3 ? tensor.shape[0] : undefined;
  return {
    name,
    shape: tensor.shape,
    dtype,
    byteLength,
    ...(isMatrix && tensor.shape.length >= 2 && tensor.shape.length <= 3
      ? { matrix: () => checkpoint.matrix(name, undefined, stack) }
      : {}),
    async *pieces() {
      const piece = new Uint8Array(Math.min(PIECE_BYTES, byteLength));
      for (let at = 0; at < byteLength; at += piece.length) {
        const part = piece.subarray(0, Math.min(piece.length, byteLength - at));
        await checkpoint.readBytes(name, at, part);
        yield part;
      }
    },
  };
}

/** The numbers of a float matrix as they are written, in pieces. */
export async function* matrixPieces(source: MatrixSource): AsyncGenerator<Uint8Array> {
  const step = Math.max(1, Math.floor(PIECE_BYTES / (4 * source.cols)));
  for (let start = 0; start < source.rows; start += step)
    yield (await source.readRows(start, Math.min(source.rows, start + step))).data;
}

/** A matrix as floats: as it is, or as f32 of what its codes mean. */
export function dequantised(source: MatrixSource): MatrixSource & { readonly format: FloatFormat } {
  const { format } = source;
  return format.kind === 'float'
    ? (source as MatrixSource & { format: FloatFormat })
    : new Dequantised(source);
}

type FloatFormat = Extract<MatrixFormat, { kind: 'float' }>;

class Dequantised implements MatrixSource {
  readonly format = { kind: 'float', dtype: 'f32' as FloatDtype } as const;
  readonly #source: MatrixSource;
  #room = new Float32Array(0);

  constructor(source: MatrixSource) {
    this.#source = source;
  }

  get name(): string {
    return this.#source.name;
  }

  get rows(): number {
    return this.#source.rows;
  }

  get cols(): number {
    return this.#source.cols;
  }

  async readRows(start: number, end: number): Promise<MatrixRows> {
    checkRows(this, start, end);
    const count = (end - start) * this.cols;
    if (this.#room.length < count) this.#room = new Float32Array(count);
    const out = this.#room.subarray(0, count);
    dequantiseRows(await this.#source.readRows(start, end), end - start, this.cols, this.#source.format, out);
    return { data: new Uint8Array(out.buffer, 0, 4 * count) };
  }
}

/** The dtype of scales: that of a float matrix; of others bf16, as models are published in. */
export function scaleDtype({ format }: MatrixSource): FloatDtype {
  return format.kind === 'float' || format.kind === 'affine' ? format.dtype : 'bf16';
}
