/** Writes a checkpoint with random weights in the sizes of a known model: for measurements of what a folder costs. */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type MatrixFormat, rowBytes } from '../../device/weights.js';
import { KvantError } from '../../errors.js';
import { DEFAULT_SHAPE_FORMAT, RandomWeights, shapeFields, shapeModel } from '../../models/shapes.js';
import { STAND_IN_TEMPLATE, standInDefinition } from '../../text/stand-in.js';
import { affineNames } from '../../weights/affine.js';
import { encodeFloats, tensorDtype } from '../../weights/dtypes.js';
import {
  type OutputTensor,
  planShards,
  SafetensorsWriter,
  tensorBytes,
} from '../../weights/safetensors-writer.js';
import { INDEX_NAME } from '../../weights/shards.js';

export interface CheckpointOptions {
  /** Rows of the vocabulary, instead of the model's. */
  readonly vocab?: number;
  /** Bytes of a shard at most. Default 4 GiB. */
  readonly maxShardBytes?: number;
  readonly onBytes?: (done: number, total: number) => void;
}

const SHARD_BYTES = 4 * 2 ** 30;
const PIECE_BYTES = 8 << 20;
const STORED = DEFAULT_SHAPE_FORMAT as Extract<MatrixFormat, { kind: 'affine' }>;

/** The tensors of a matrix or vector, and how its bytes are written. */
interface Unit {
  readonly tensors: readonly OutputTensor[];
  write(file: SafetensorsWriter, onBytes: (bytes: number) => void): Promise<void>;
}

/**
 * Writes config.json, the stand-in tokenizer and chat template, and the weights, 4 bits in groups of 64 as MLX stores
 * them. Returns the bytes of the weights' files. Errors: `shape-unknown`; `folder-not-new` for one that exists.
 */
export async function writeShapeCheckpoint(
  shape: string,
  folder: string,
  { vocab, maxShardBytes = SHARD_BYTES, onBytes = () => {} }: CheckpointOptions = {},
): Promise<number> {
  const { facts, layout } = shapeModel(shape, vocab === undefined ? {} : { vocab });
  await newFolder(folder);
  try {
    const weights = new RandomWeights(STORED);
    const units = [
      ...layout.matrices.flatMap(({ parts, cols }) =>
        parts.flatMap(({ name, rows, bias }) => [
          matrixUnit(weights, name, rows, cols),
          ...(bias === null ? [] : [vectorUnit(weights, bias, [rows])]),
        ]),
      ),
      ...layout.vectors.flatMap(({ parts }) =>
        parts.map(({ name, shape }) => vectorUnit(weights, name, shape)),
      ),
    ];
    const total = units.reduce((sum, unit) => sum + unitBytes(unit), 0);
    const shards = planShards(
      units.map((unit) => unit.tensors),
      maxShardBytes,
    );
    const map: Record<string, string> = {};
    let bytes = 0;
    let done = 0;
    for (const [i, tensors] of shards.entries()) {
      const name = `model-${number(i + 1)}-of-${number(shards.length)}.safetensors`;
      const file = await SafetensorsWriter.create(join(folder, name), tensors, { format: 'mlx' });
      try {
        const held = new Set(tensors);
        for (const unit of units) {
          if (!held.has(unit.tensors[0]!)) continue;
          await unit.write(file, (written) => {
            done += written;
            onBytes(done, total);
          });
        }
      } finally {
        await file.close();
      }
      bytes += file.size;
      for (const tensor of tensors) map[tensor.name] = name;
    }
    const { groupSize: group_size, bits } = STORED;
    const fields = shapeFields(shape, { vocab: facts.vocabSize });
    await writeJson(folder, 'config.json', { ...fields, quantization: { group_size, bits } });
    await writeJson(folder, INDEX_NAME, { metadata: { total_size: total }, weight_map: map });
    await writeJson(folder, 'tokenizer.json', standInDefinition(facts.vocabSize));
    await writeJson(folder, 'tokenizer_config.json', { chat_template: STAND_IN_TEMPLATE });
    return bytes;
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

async function newFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder);
  } catch (cause) {
    throw new KvantError('folder-not-new', `${folder} cannot be made: ${(cause as Error).message}`, {
      kind: 'invalid-request',
      where: folder,
      fix: 'Name a folder that does not exist, in one that does.',
      cause,
    });
  }
}

const number = (n: number): string => String(n).padStart(5, '0');

function unitBytes({ tensors }: Unit): number {
  return tensors.reduce((sum, tensor) => sum + tensorBytes(tensor), 0);
}

function matrixUnit(weights: RandomWeights, name: string, rows: number, cols: number): Unit {
  const source = weights.matrix(name, { rows, cols });
  const { format } = source;
  const { data, scales: scale } = rowBytes(cols, format);
  const dtype = tensorDtype(format.dtype);
  const names = affineNames(name);
  const quantised = format.kind === 'affine';
  const tensors: OutputTensor[] = quantised
    ? [
        { name, dtype: 'U32', shape: [rows, data / 4] },
        { name: names.scales, dtype, shape: [rows, cols / format.groupSize] },
        { name: names.biases, dtype, shape: [rows, cols / format.groupSize] },
      ]
    : [{ name, dtype, shape: [rows, cols] }];
  return {
    tensors,
    async write(file, onBytes) {
      const piece = Math.max(1, Math.floor(PIECE_BYTES / data));
      for (let row = 0; row < rows; row += piece) {
        const end = Math.min(rows, row + piece);
        const read = await source.readRows(row, end);
        await file.write(name, row * data, read.data);
        if (quantised) {
          await file.write(names.scales, row * scale, read.scales!);
          await file.write(names.biases, row * scale, read.biases!);
        }
        onBytes((end - row) * (data + 2 * scale));
      }
    },
  };
}

function vectorUnit(weights: RandomWeights, name: string, shape: readonly number[]): Unit {
  return {
    tensors: [{ name, dtype: 'F16', shape }],
    async write(file, onBytes) {
      const source = weights.vector(name, shape);
      const bytes = new Uint8Array(source.length * 2);
      encodeFloats(await source.read(), 'f16', bytes);
      await file.write(name, 0, bytes);
      onBytes(bytes.length);
    },
  };
}

async function writeJson(folder: string, name: string, value: unknown): Promise<void> {
  await writeFile(join(folder, name), `${JSON.stringify(value)}\n`);
}
