/** `kvCalibration: 'auto'`: the calibration of a model from kvant's cache, or made at its first start and kept there. */

import { createHash } from 'node:crypto';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { cacheFolder } from '../device/choice-file.js';
import type { Device } from '../device/device.js';
import { KvantError } from '../errors.js';
import {
  checkKvCalibration,
  type KvCalibration,
  readKvCalibration,
  writeKvCalibration,
} from '../kv/calibration.js';
import { makeFolder } from '../make-folder.js';
import type { Model } from '../models/load.js';
import { systemReason } from '../system-errors.js';
import { weightsFingerprint } from '../weights/fingerprint.js';
import { calibrateKv, calibrationTexts } from './calibrate.js';
import { CALIBRATION_TEXTS } from './calibration-texts.js';
import { DEFAULT_BLOCK_TOKENS } from './host-options.js';
import type { HostConfig } from './messages.js';
import { ModelText } from './model-text.js';
import { slotCaches } from './slot-caches.js';
import type { LogEntry } from './types.js';

/** A start waits for them. */
const TOKENS = 1024;

/**
 * Null where there is no text to make it of (made-up weights), or no memory for the pass: the log says so. What cannot be read from the
 * cache is made again, what cannot be written is lost.
 */
export async function autoCalibration(
  { weights, quantize, blockTokens = DEFAULT_BLOCK_TOKENS }: HostConfig,
  model: Model,
  device: Device,
  onLog: (entry: LogEntry) => void,
  signal?: AbortSignal,
): Promise<KvCalibration | null> {
  if (weights.kind !== 'folder') return null;
  const hash = createHash('sha256');
  for (const part of [
    await weightsFingerprint(weights.path, weights.mmproj),
    model.facts.identity,
    `${quantize}`,
  ])
    hash.update(`${part}\n`);
  for (const text of CALIBRATION_TEXTS) hash.update(text);
  if (weights.tokenizer !== undefined) hash.update(`\n${weights.tokenizer}`);
  const folder = join(cacheFolder(), 'calibration');
  const path = join(folder, `${hash.digest('hex').slice(0, 24)}.kvcal`);
  const kept = await readKept(path, model);
  if (kept !== null) return kept;

  const startedAt = performance.now();
  const text = await ModelText.forTasks(weights);
  const texts = calibrationTexts(text, model.maxContext, TOKENS);
  const context = Math.max(...texts.map((ids) => ids.length));
  const f32 = { kind: 'float', dtype: 'f32' } as const;
  let calibration: KvCalibration;
  try {
    const layers = model.kvLayers.map((layer) => ({ ...layer, key: f32, value: f32 }));
    const caches = slotCaches(device, layers, { slots: 1, context, blockTokens });
    try {
      calibration = await calibrateKv(model, device, caches, texts, undefined, signal);
    } finally {
      caches.dispose();
    }
  } catch (error) {
    if (!(error instanceof KvantError) || error.code !== 'device-out-of-memory') throw error;
    const message = 'there is no memory to calibrate quantised keys with: they are stored as they are';
    onLog({ level: 'warn', message, fields: { why: error.message } });
    return null;
  }
  const { digest, tokens } = calibration;
  const ms = Math.round(performance.now() - startedAt);
  onLog({
    level: 'info',
    message: 'quantised keys are calibrated',
    fields: { tokens, digest, ms, file: path },
  });
  try {
    await makeFolder(folder);
    const temporary = `${path}.${process.pid}`;
    await writeFile(temporary, writeKvCalibration(calibration));
    await rename(temporary, path);
  } catch (error) {
    const message = 'the calibration of keys cannot be kept for the next start';
    onLog({ level: 'warn', message, fields: { file: path, why: systemReason(error) } });
  }
  return calibration;
}

async function readKept(path: string, model: Model): Promise<KvCalibration | null> {
  try {
    const calibration = readKvCalibration(await readFile(path, 'utf8'), path);
    checkKvCalibration(calibration, model.kvLayers, path);
    return calibration;
  } catch {
    return null;
  }
}
