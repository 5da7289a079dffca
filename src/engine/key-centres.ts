/** A calibration at load: its file, and what keys are freed of by it, put on the device. */

import { readFile } from 'node:fs/promises';
import type { Device } from '../device/device.js';
import type { KeyCentre } from '../device/graph.js';
import { isFloatKv, type KvLayerSpec } from '../device/kv.js';
import { KvantError } from '../errors.js';
import { checkKvCalibration, type KvCalibration, readKvCalibration } from '../kv/calibration.js';
import { keyCentre } from '../kv/key-centres.js';
import type { KvPlan } from '../kv/policy.js';
import type { Model } from '../models/load.js';
import { systemReason } from '../system-errors.js';
import type { HostConfig } from './messages.js';
import type { LogEntry } from './types.js';

/** Errors: `file-not-readable`, `kv-calibration-invalid`, `kv-calibration-mismatch`. */
export async function openKvCalibration(
  path: string,
  layers: readonly Pick<KvLayerSpec, 'kvHeads' | 'headDim'>[],
): Promise<KvCalibration> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw new KvantError('file-not-readable', `${path} cannot be read: ${systemReason(error)}.`, {
      kind: 'invalid-request',
      where: 'kvCalibration',
      fix: 'Make it: kvant calibrate MODEL --out FILE.',
    });
  }
  const calibration = readKvCalibration(text, path);
  checkKvCalibration(calibration, layers, path);
  return calibration;
}

/**
 * What `kvCalibration` names: a file's, `auto` for one that is to be made; null where there is none, or none is needed. Errors: those
 * of its file.
 */
export async function namedCalibration(
  { kvCalibration: path }: Pick<HostConfig, 'kvCalibration'>,
  layers: readonly KvLayerSpec[],
  { info }: Pick<Device, 'info'>,
  onLog: (entry: LogEntry) => void = () => {},
): Promise<KvCalibration | 'auto' | null> {
  if (path === undefined || layers.every(({ key, valueDim }) => isFloatKv(key) || valueDim !== undefined))
    return null;
  const named = path === 'auto' ? path : await openKvCalibration(path, layers);
  if (info.keyCentres !== undefined) return named;
  const message = 'the calibration of keys is not used: this device stores them as they are';
  onLog({ level: 'warn', message, fields: { device: info.name } });
  return null;
}

/** Where a centre is one for all positions it is the mean over so many. */
const FLAT_POSITIONS = 4096;

/**
 * Centres by layer; none where the device takes none, null where keys stay float, or where soft caps would bend what a device does not add.
 */
export async function loadKeyCentres(
  model: Model,
  device: Device,
  { layers, floatHead }: Pick<KvPlan, 'layers' | 'floatHead'>,
  calibration: KvCalibration,
): Promise<readonly (KeyCentre | null)[]> {
  const { graph, appends: all } = model.buildGraph({ sample: false });
  const appends = all.filter(({ shape }) => shape.valueDim === undefined);
  // Softmax would not see that all scores of a head are moved; a cap and a sink do.
  const capped = new Set(
    graph.nodes.flatMap((node) =>
      node.op === 'attend' && (node.softcap !== null || node.sinks) ? [node.layer] : [],
    ),
  );
  const { keyCentres } = device.info;
  if (keyCentres === undefined) return [];
  const flat = Math.min(model.maxContext, FLAT_POSITIONS);
  const centres = layers.map(({ key }, layer) => {
    // A calibration has the layers that attend alone.
    const at = appends.findIndex((node) => node.layer === layer);
    const append = appends[at];
    if (append === undefined) return null;
    // Centres turn by cache indexes: keys that turn by axes are at other positions.
    const positions = keyCentres === 'turning' && !append.rope?.axes ? 0 : flat;
    const centre = keyCentre(calibration.layers[at]!, key, append.rope, positions, floatHead !== null);
    return centre !== null && !centre.turns && capped.has(layer) ? null : centre;
  });
  return model.loadCentres(centres);
}
