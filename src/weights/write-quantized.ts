/**
 * `kvant quantize`: writes a quantised copy of a checkpoint, in MLX's layout, reading and writing by pieces.
 *
 * Everything is written under temporary names and renamed at the end, config.json last, so an interrupted run
 * leaves nothing that could pass for a model.
 */

import { copyFile, readdir, rename, rm, statfs, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { rowBytes } from '../device/weights.js';
import { KvantError } from '../errors.js';
import { makeFolder } from '../make-folder.js';
import { systemReason } from '../system-errors.js';
import { affineNames } from './affine.js';
import { isSmallModelFile, type JsonObject } from './folder-files.js';
import { PIECE_BYTES, type QuantizeInput } from './quantize-input.js';
import { type Plan, planQuantization, type QuantizeSpec, RECIPES, type Unit } from './quantize-plan.js';
import { type OpenForWriting, openNew, SafetensorsWriter, tensorBytes } from './safetensors-writer.js';
import { INDEX_NAME, SINGLE_NAME } from './shards.js';
import { withTextField } from './text-config.js';

export interface WriteQuantizedOptions extends QuantizeSpec {
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
  /** Of these, matrices that were quantised before: their errors add up. */
  readonly again: number;
  readonly kept: number;
  /** Tensors that a model of this kind never reads: a head tied to the embedding, stored rotary frequencies. */
  readonly dropped: readonly string[];
}

const TEMP_PREFIX = '.kvant-partial-';
const pad = (n: number) => String(n).padStart(5, '0');

const LICENCES = /^(LICEN[CS]E|NOTICE|USE_POLICY|README|MODEL_CARD)([.-].*)?$/i;

/**
 * Writes a model quantised into `outFolder`: safetensors shards with an index, config.json with its
 * `quantization` section, and the tokenizer and other small files as they are.
 *
 * @throws KvantError `quantize-output-exists`, `weights-already-quantized`, `quantize-nothing` where no tensor can
 * be quantised, `disk-full`, `quantize-write` for other failures of the disk, `weights-not-finite`, `cancelled`.
 * Whatever was written before a failure is removed.
 */
export async function writeQuantized(
  input: QuantizeInput,
  outFolder: string,
  options: WriteQuantizedOptions,
  onProgress: (progress: QuantizeProgress) => void = () => {},
): Promise<QuantizeResult> {
  const plan = await planQuantization(input, options, options.maxShardBytes);
  const created = await prepareFolder(outFolder);
  try {
    await checkSpace(outFolder, plan, options.freeBytes ?? freeBytes);
    return await write(input, outFolder, plan, options, onProgress);
  } catch (error) {
    await removePartial(outFolder, created);
    throw diskError(error, outFolder);
  }
}

async function write(
  input: QuantizeInput,
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
            totalBytes: input.totalBytes,
          });
        await writeUnit(writer, unit, options.signal, report);
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
  files.push(INDEX_NAME, ...(await smallFiles(input, outFolder)));
  await writeTemp(outFolder, 'config.json', quantizedConfig(input.config, plan, options));
  files.push('config.json');
  for (const file of files) await rename(join(outFolder, tempName(file)), join(outFolder, file));

  const quantized = plan.units.filter((unit) => unit.spec !== undefined).length;
  return {
    folder: outFolder,
    files,
    bytes: plan.bytes,
    quantized,
    again: plan.again,
    kept: plan.units.length - quantized,
    dropped: plan.dropped,
  };
}

async function writeUnit(
  writer: SafetensorsWriter,
  { tensor, source }: Unit,
  signal: AbortSignal | undefined,
  report: (done: number) => void,
): Promise<void> {
  const { name, byteLength } = tensor;
  if (source === undefined) {
    let at = 0;
    const bytes = tensorBytes(tensor);
    for await (const piece of tensor.pieces()) {
      throwIfAborted(signal);
      await writer.write(name, at, piece);
      at += piece.length;
      report((byteLength * at) / bytes);
    }
    return;
  }
  const names = affineNames(name);
  const one = rowBytes(source.cols, source.format);
  const step = Math.max(1, Math.floor(PIECE_BYTES / (4 * source.cols)));
  for (let start = 0; start < source.rows; start += step) {
    throwIfAborted(signal);
    const end = Math.min(source.rows, start + step);
    const { data, scales, biases } = await source.readRows(start, end);
    await writer.write(name, start * one.data, data);
    await writer.write(names.scales, start * one.scales, scales!);
    await writer.write(names.biases, start * one.biases, biases!);
    report((byteLength * end) / source.rows);
  }
}

/** The input's config with the section MLX reads, under both names that readers look for. */
function quantizedConfig(config: JsonObject, plan: Plan, options: QuantizeSpec): JsonObject {
  const bits = options.recipe === undefined ? options.bits : RECIPES[options.recipe][0];
  const section: Record<string, unknown> = {
    group_size: options.groupSize,
    bits,
    mode: 'affine',
  };
  for (const { tensor, spec } of plan.units) {
    if (spec === undefined || (spec.bits === bits && spec.groupSize === options.groupSize)) continue;
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

/** Those that the input makes, or has. */
async function smallFiles({ folder, files = {} }: QuantizeInput, to: string): Promise<string[]> {
  for (const [name, json] of Object.entries(files)) await writeTemp(to, name, json);
  return [...Object.keys(files), ...(folder === undefined ? [] : await copySmallFiles(folder, to))];
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
