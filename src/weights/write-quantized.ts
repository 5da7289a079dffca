/**
 * `kvant quantize`: writes a quantised copy of a checkpoint, in MLX's layout, reading and writing by pieces.
 *
 * Everything is written under temporary names and renamed at the end, config.json last, so an interrupted run
 * leaves nothing that could pass for a model.
 */

import { copyFile, readdir, rename, rm, statfs, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type MatrixSource, rowBytes } from '../device/weights.js';
import { KvantError } from '../errors.js';
import { makeFolder } from '../make-folder.js';
import { systemReason } from '../system-errors.js';
import { type AffineSpec, affineNames } from './affine.js';
import type { Checkpoint, CheckpointTensor } from './checkpoint.js';
import { floatDtype, tensorDtype } from './dtypes.js';
import { isSmallModelFile, type JsonObject } from './folder-files.js';
import { isQuantizable, quantizedSource } from './quantize.js';
import {
  type OpenForWriting,
  type OutputTensor,
  openNew,
  planShards,
  SafetensorsWriter,
  tensorBytes,
} from './safetensors-writer.js';
import { INDEX_NAME, SINGLE_NAME } from './shards.js';
import { textField, withTextField } from './text-config.js';

export interface WriteQuantizedOptions extends AffineSpec {
  /** Largest shard in bytes. Default 5 GB. */
  readonly maxShardBytes?: number;
  readonly signal?: AbortSignal;
  /** For tests: opens the output files. */
  readonly openFile?: OpenForWriting;
  /** For tests: bytes free in a folder. */
  readonly freeBytes?: (folder: string) => Promise<number>;
}

export interface QuantizeProgress {
  /** The tensor being written. */
  readonly tensor: string;
  readonly index: number;
  readonly tensors: number;
  /** Bytes of the input done, of `totalBytes`. */
  readonly bytes: number;
  readonly totalBytes: number;
}

export interface QuantizeResult {
  readonly folder: string;
  readonly files: readonly string[];
  /** Bytes of all tensors written. */
  readonly bytes: number;
  readonly quantized: number;
  readonly kept: number;
  /** Tensors that a model of this kind never reads: a head tied to the embedding, stored rotary frequencies. */
  readonly dropped: readonly string[];
}

const MAX_SHARD_BYTES = 5_000_000_000;
/** Input read at a time. */
const PIECE_BYTES = 8 << 20;
const TEMP_PREFIX = '.kvant-partial-';
const pad = (n: number) => String(n).padStart(5, '0');

/** Towers that stay as they are: their matrices are few, and small errors in a picture cost much. */
const TOWERS =
  /(^|\.)(visual|vision_tower|vision_model|vision_encoder|vision_embed_tokens|audio_tower|audio_encoder|multi_modal_projector|mm_projector|vision_projector|connector)\./;
/** Routers of mixtures of experts: a wrong choice of expert costs more than their bits. */
const ROUTERS = /\.(gate|router|shared_expert_gate)\.weight$/;
const HEAD = /(^|\.)lm_head\.weight$/;
const EMBEDDING = /(^|\.)embed_tokens\.weight$/;
const ROTATION = /\.rotary_emb\.inv_freq$/;
/** Some norms have a row of weights for each head. */
const NORMS = /norm\.weight$/;
const LICENCES = /^(LICEN[CS]E|NOTICE|USE_POLICY|README|MODEL_CARD)([.-].*)?$/i;

/**
 * How a tensor is quantised when the whole checkpoint is asked to be `spec`: linear and embedding weights
 * (`….weight`, two dimensions, float) whose columns divide into groups; routers get 8 bits, towers and norms stay float.
 *
 * @returns undefined where the tensor stays as it is
 */
export function quantizationOf(
  tensor: { name: string; dtype: CheckpointTensor['dtype']; shape: readonly number[] },
  spec: AffineSpec,
): AffineSpec | undefined {
  const cols = tensor.shape[1];
  if (tensor.shape.length !== 2 || cols === undefined || !tensor.name.endsWith('.weight')) return undefined;
  if (floatDtype(tensor.dtype) === undefined || TOWERS.test(tensor.name) || NORMS.test(tensor.name))
    return undefined;
  if (!isQuantizable(cols, spec)) return undefined;
  const router: AffineSpec = { bits: 8, groupSize: 64 };
  if (ROUTERS.test(tensor.name)) return isQuantizable(cols, router) ? router : undefined;
  return { bits: spec.bits, groupSize: spec.groupSize };
}

/**
 * Writes `checkpoint` quantised into `outFolder`: safetensors shards with an index, config.json with its
 * `quantization` section, and the tokenizer and other small files as they are.
 *
 * @throws KvantError `quantize-output-exists`, `weights-already-quantized`, `quantize-nothing` where no tensor can
 * be quantised, `disk-full`, `quantize-write` for other failures of the disk, `weights-not-finite`, `cancelled`.
 * Whatever was written before a failure is removed.
 */
export async function writeQuantized(
  checkpoint: Checkpoint,
  outFolder: string,
  options: WriteQuantizedOptions,
  onProgress: (progress: QuantizeProgress) => void = () => {},
): Promise<QuantizeResult> {
  if (checkpoint.quantization !== undefined) {
    throw new KvantError('weights-already-quantized', `${checkpoint.folder} is already quantised`, {
      kind: 'invalid-request',
      where: checkpoint.folder,
      fix: 'Give the unquantised checkpoint: quantising twice only adds errors.',
    });
  }
  const plan = makePlan(checkpoint, await tiedHead(checkpoint), options);
  const created = await prepareFolder(outFolder);
  try {
    await checkSpace(outFolder, plan, options.freeBytes ?? freeBytes);
    return await write(checkpoint, outFolder, plan, options, onProgress);
  } catch (error) {
    await removePartial(outFolder, created);
    throw diskError(error, outFolder);
  }
}

/** One tensor of the input and what becomes of it. */
interface Unit {
  readonly tensor: CheckpointTensor;
  readonly source: MatrixSource | undefined;
  readonly spec: AffineSpec | undefined;
  readonly outputs: readonly OutputTensor[];
}

interface Plan {
  readonly units: readonly Unit[];
  readonly dropped: readonly string[];
  readonly shards: readonly (readonly OutputTensor[])[];
  readonly bytes: number;
  readonly head: Head;
}

/** What the head is: `copy` where the embedding says it all, `own` where config.json calls it tied and it is not. */
type Head = 'copy' | 'own' | 'as stated';

async function tiedHead(checkpoint: Checkpoint): Promise<Head> {
  const names = checkpoint.names();
  const head = names.find((name) => HEAD.test(name));
  const embedding = names.find((name) => EMBEDDING.test(name));
  const tied = textField(checkpoint.config, 'tie_word_embeddings') === true;
  if (!tied || head === undefined || embedding === undefined) return 'as stated';
  return (await checkpoint.equal(head, embedding)) ? 'copy' : 'own';
}

function makePlan(checkpoint: Checkpoint, head: Head, options: WriteQuantizedOptions): Plan {
  const units: Unit[] = [];
  const dropped: string[] = [];
  for (const name of checkpoint.names()) {
    const tensor = checkpoint.info(name)!;
    if (ROTATION.test(name) || (head === 'copy' && HEAD.test(name))) dropped.push(name);
    else units.push(planTensor(checkpoint, tensor, quantizationOf(tensor, options)));
  }
  if (!units.some((unit) => unit.spec !== undefined)) {
    throw new KvantError(
      'quantize-nothing',
      `${checkpoint.folder} has no matrix that divides into groups of ${options.groupSize}`,
      {
        kind: 'invalid-request',
        where: checkpoint.folder,
        fix: 'Choose a smaller group size.',
      },
    );
  }
  const shards = planShards(
    units.map((unit) => unit.outputs),
    options.maxShardBytes ?? MAX_SHARD_BYTES,
  );
  const bytes = units.flatMap((unit) => unit.outputs).reduce((sum, tensor) => sum + tensorBytes(tensor), 0);
  return { units, dropped, shards, bytes, head };
}

function planTensor(checkpoint: Checkpoint, tensor: CheckpointTensor, spec: AffineSpec | undefined): Unit {
  if (spec === undefined) return { tensor, spec, source: undefined, outputs: [tensor] };
  const source = quantizedSource(checkpoint.matrix(tensor.name), spec);
  const names = affineNames(tensor.name);
  const { rows, cols } = source;
  const dtype = tensorDtype(source.format.dtype);
  const groups = cols / spec.groupSize;
  return {
    tensor,
    spec,
    source,
    outputs: [
      { name: tensor.name, dtype: 'U32', shape: [rows, (cols * spec.bits) / 32] },
      { name: names.scales, dtype, shape: [rows, groups] },
      { name: names.biases, dtype, shape: [rows, groups] },
    ],
  };
}

async function write(
  checkpoint: Checkpoint,
  outFolder: string,
  plan: Plan,
  options: WriteQuantizedOptions,
  onProgress: (progress: QuantizeProgress) => void,
): Promise<QuantizeResult> {
  const count = plan.shards.length;
  const files: string[] = [];
  const weightMap: [string, string][] = [];
  const byOutput = new Map(plan.units.map((unit) => [unit.outputs[0]!.name, unit]));
  let index = 0;
  let bytes = 0;
  for (const [i, shard] of plan.shards.entries()) {
    const file = count === 1 ? SINGLE_NAME : `model-${pad(i + 1)}-of-${pad(count)}.safetensors`;
    files.push(file);
    const temp = join(outFolder, TEMP_PREFIX + file);
    const writer = await SafetensorsWriter.create(
      temp,
      shard,
      { format: 'mlx' },
      options.openFile ?? openNew,
    );
    try {
      for (const output of shard) {
        weightMap.push([output.name, file]);
        const unit = byOutput.get(output.name);
        if (unit === undefined) continue;
        const report = (done: number) =>
          onProgress({
            tensor: output.name,
            index,
            tensors: plan.units.length,
            bytes: bytes + done,
            totalBytes: checkpoint.totalBytes,
          });
        await writeUnit(checkpoint, writer, unit, options.signal, report);
        index++;
        bytes += unit.tensor.byteLength;
      }
      await writer.sync();
    } finally {
      await writer.close();
    }
  }

  weightMap.sort(([a], [b]) => (a < b ? -1 : 1));
  const indexJson = { metadata: { total_size: plan.bytes }, weight_map: Object.fromEntries(weightMap) };
  await writeTemp(outFolder, INDEX_NAME, indexJson);
  files.push(INDEX_NAME, ...(await copySmallFiles(checkpoint.folder, outFolder)));
  await writeTemp(outFolder, 'config.json', quantizedConfig(checkpoint.config, plan, options));
  files.push('config.json');
  for (const file of files) await rename(join(outFolder, tempName(file)), join(outFolder, file));

  const quantized = plan.units.filter((unit) => unit.spec !== undefined).length;
  return {
    folder: outFolder,
    files,
    bytes: plan.bytes,
    quantized,
    kept: plan.units.length - quantized,
    dropped: plan.dropped,
  };
}

async function writeUnit(
  checkpoint: Checkpoint,
  writer: SafetensorsWriter,
  unit: Unit,
  signal: AbortSignal | undefined,
  report: (done: number) => void,
): Promise<void> {
  const { tensor, source } = unit;
  if (source === undefined) {
    const piece = new Uint8Array(Math.min(PIECE_BYTES, tensor.byteLength));
    for (let at = 0; at < tensor.byteLength; at += piece.length) {
      throwIfAborted(signal);
      const part = piece.subarray(0, Math.min(piece.length, tensor.byteLength - at));
      await checkpoint.readBytes(tensor.name, at, part);
      await writer.write(tensor.name, at, part);
      report(at + part.length);
    }
    return;
  }
  const names = affineNames(tensor.name);
  const inputRowBytes = tensor.byteLength / source.rows;
  const one = rowBytes(source.cols, source.format);
  const step = Math.max(1, Math.floor(PIECE_BYTES / inputRowBytes));
  for (let start = 0; start < source.rows; start += step) {
    throwIfAborted(signal);
    const end = Math.min(source.rows, start + step);
    const { data, scales, biases } = await source.readRows(start, end);
    await writer.write(tensor.name, start * one.data, data);
    await writer.write(names.scales, start * one.scales, scales!);
    await writer.write(names.biases, start * one.biases, biases!);
    report(end * inputRowBytes);
  }
}

/** The input's config with the section MLX reads, under both names that readers look for. */
function quantizedConfig(config: JsonObject, plan: Plan, options: AffineSpec): JsonObject {
  const section: Record<string, unknown> = {
    group_size: options.groupSize,
    bits: options.bits,
    mode: 'affine',
  };
  for (const { tensor, spec } of plan.units) {
    if (spec === undefined || (spec.bits === options.bits && spec.groupSize === options.groupSize)) continue;
    section[affineNames(tensor.name).path] = { group_size: spec.groupSize, bits: spec.bits, mode: 'affine' };
  }
  // Other readers believe what config.json says, and would take the embedding.
  const stated = plan.head === 'own' ? withTextField(config, 'tie_word_embeddings', false) : config;
  return { ...stated, quantization: section, quantization_config: section };
}

async function prepareFolder(folder: string): Promise<boolean> {
  const entries = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw outputExists(
      folder,
      error.code === 'ENOTDIR' ? 'is a file' : `cannot be read: ${systemReason(error)}`,
    );
  });
  if (entries !== undefined && entries.length > 0) throw outputExists(folder, 'is not empty');
  try {
    await makeFolder(folder);
  } catch (error) {
    throw diskError(error, folder);
  }
  return entries === undefined;
}

/** Leaves the folder as it was found. */
async function removePartial(folder: string, created: boolean): Promise<void> {
  if (created) return await rm(folder, { recursive: true, force: true });
  for (const name of await readdir(folder)) await rm(join(folder, name), { recursive: true, force: true });
}

async function checkSpace(
  folder: string,
  plan: Plan,
  free: (folder: string) => Promise<number>,
): Promise<void> {
  const available = await free(folder);
  if (available < plan.bytes)
    throw diskFull(folder, `it needs ${plan.bytes} bytes and ${available} are free`);
}

async function freeBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}

async function copySmallFiles(from: string, to: string): Promise<string[]> {
  const copied: string[] = [];
  const templates = await readdir(join(from, 'additional_chat_templates')).catch(() => []);
  const candidates = [
    ...(await readdir(from)),
    ...templates.map((name) => `additional_chat_templates/${name}`),
  ];
  for (const path of candidates) {
    if (path === 'config.json' || !(isSmallModelFile(path) || LICENCES.test(path))) continue;
    await makeFolder(join(to, dirname(path)));
    await copyFile(join(from, path), join(to, tempName(path)));
    copied.push(path);
  }
  return copied.sort();
}

async function writeTemp(folder: string, name: string, json: object): Promise<void> {
  await writeFile(join(folder, tempName(name)), `${JSON.stringify(json, null, 2)}\n`, { flag: 'wx' });
}

/** The temporary name stands beside the final one, so that the rename never crosses a file system. */
function tempName(path: string): string {
  const at = path.lastIndexOf('/') + 1;
  return path.slice(0, at) + TEMP_PREFIX + path.slice(at);
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted !== true) return;
  throw new KvantError('cancelled', 'quantising was cancelled', {
    kind: 'invalid-request',
    cause: signal.reason,
  });
}

function outputExists(folder: string, what: string): KvantError {
  return new KvantError('quantize-output-exists', `${folder} ${what}`, {
    kind: 'invalid-request',
    where: folder,
    fix: 'Give a folder that does not exist yet: nothing is ever overwritten.',
  });
}

function diskFull(folder: string, what: string, cause?: unknown): KvantError {
  return new KvantError('disk-full', `the disk of ${folder} is full: ${what}`, {
    kind: 'invalid-request',
    where: folder,
    fix: 'Free some space, or write to another disk. Nothing was left behind.',
    ...(cause === undefined ? {} : { cause }),
  });
}

function diskError(error: unknown, folder: string): unknown {
  if (error instanceof KvantError || error instanceof RangeError) return error;
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOSPC' || code === 'EDQUOT') return diskFull(folder, 'it ran out while writing', error);
  if (code === undefined) return error;
  const reason = systemReason(error, 'the folder above takes none');
  return new KvantError('quantize-write', `writing to ${folder} failed: ${reason}`, {
    kind: 'invalid-request',
    where: folder,
    fix: 'Check that the folder may be written to.',
    cause: error,
  });
}
