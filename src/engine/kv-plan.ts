/** Formats by layer at load: from the file of a plan, or picked by what a calibration says that formats lose. */

import { readFile, writeFile } from 'node:fs/promises';
import { type FloatKv, isFloatKv, kvTokenBytes } from '../device/kv.js';
import { KvantError } from '../errors.js';
import type { KvCalibration } from '../kv/calibration.js';
import { type KvChoice, kvChoiceName } from '../kv/formats.js';
import { expectedLoss, type KvLosses } from '../kv/losses.js';
import { type KvOptions, readKvOptions } from '../kv/options.js';
import { kvChoiceBytes, readKvPlan, writeKvPlan } from '../kv/plan-file.js';
import { type KvLayerShape, type KvPlan, planKvLayers } from '../kv/policy.js';
import { type KvSplit, splitKvBytes } from '../kv/split.js';
import { systemCode, systemReason } from '../system-errors.js';
import { openKvCalibration } from './key-centres.js';
import type { LogEntry } from './types.js';

/** What there is to pick formats by. */
export interface KvPlanSource {
  /** The file that `kvCalibration` names, if any. */
  readonly calibration: string | undefined;
  /** Of the model. */
  readonly layers: readonly KvLayerShape[];
  readonly float: FloatKv;
  /** Whether a plan that is not there is written; true if omitted. */
  readonly writes?: boolean;
  readonly onLog?: (entry: LogEntry) => void;
}

/**
 * The options with `kvPlan` and `kvBytesPerToken` become formats by layer; others as they are. A plan that is not there is written.
 *
 * Errors: `file-not-readable`, `file-not-writable`, `kv-plan-invalid`, `kv-plan-mismatch`, `kv-losses-missing`, `kv-bytes-too-few`; those of the calibration's file.
 */
export async function settleKvPlan(kv: KvOptions, source: KvPlanSource): Promise<KvOptions> {
  const { kvPlan, kvBytesPerToken: most, ...rest } = kv;
  if (kvPlan === undefined && most === undefined) return kv;
  readKvOptions(kv);
  const { layers, float, writes = true, onLog = () => {} } = source;
  const written = kvPlan === undefined ? null : await openPlan(kvPlan, most === undefined);
  if (kvPlan !== undefined && written !== null) {
    const options = { ...rest, kvLayerFormats: written };
    const bytes = checkPlan(options, source, kvPlan, most);
    onLog({
      level: 'info',
      message: 'formats of layers are those of the plan',
      fields: { file: kvPlan, bytes },
    });
    return options;
  }
  const losses = await lossesOf(source);
  const split = splitKvBytes(layers, losses, most!, float, rest.kvSkipLayers);
  if (kvPlan !== undefined && writes) await writePlan(kvPlan, writeKvPlan(split.choices, split.bytes));
  const { bytes, loss } = split;
  const fields = { bytes, expectedKl: rounded(loss), formats: countFormats(split.choices) };
  onLog({ level: 'info', message: 'formats of layers are picked by what they lose', fields });
  return { ...rest, kvLayerFormats: split.choices.map(kvChoiceName) };
}

/** Layers by format: `turbo4 × 12, turbo4/turbo3 × 18`. */
export function countFormats(choices: readonly KvChoice[]): string {
  const counts = new Map<string, number>();
  for (const choice of choices) {
    const name = kvChoiceName(choice);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].map(([name, count]) => `${name} × ${count}`).join(', ');
}

/**
 * A line for the log where, by what was measured, other formats lose less at no more bytes than those that were asked for; undefined where
 * none do. Where nothing was measured: a line on keys that have fewer bytes than values.
 */
export function betterFormats(
  { layers }: Pick<KvPlan, 'layers'>,
  shapes: readonly KvLayerShape[],
  calibration: Pick<KvCalibration, 'losses'>,
  float: FloatKv,
): LogEntry | undefined {
  const { losses } = calibration;
  if (losses === undefined) return narrowKeys(layers);
  const asked = layers.filter(({ state }) => state === undefined);
  const loss = expectedLoss(asked, losses);
  if (loss === undefined) return undefined;
  const bytes = kvChoiceBytes(shapes, layers);
  const best = splitWithin(shapes, losses, bytes, float);
  if (best === undefined || best.loss >= loss * WORTH_TELLING) return undefined;
  const message = 'other formats of the KV cache lose less at no more bytes';
  return { level: 'info', message, fields: comparison(bytes, loss, best) };
}

/** K and V the other way round take the same bytes; what that was worth: docs/kv-quality.md. */
function narrowKeys(layers: KvPlan['layers']): LogEntry | undefined {
  const narrow = layers.find(
    ({ key, value, headDim }) =>
      !isFloatKv(key) && !isFloatKv(value) && kvTokenBytes(key, headDim, 1) < kvTokenBytes(value, headDim, 1),
  );
  if (narrow === undefined) return undefined;
  const { key, value } = narrow;
  const instead = kvChoiceName({ key: value, value: key });
  const message =
    'keys have fewer bytes than values; the other way round lost less on SmolLM2, more on demo-text';
  const fix = `measure it on this model: kvant eval kv, or kvant calibrate --losses`;
  return { level: 'info', message, fields: { asked: kvChoiceName(narrow), instead, fix } };
}

/** undefined where none fits: what was asked to stay float may be narrower than it is unasked. */
function splitWithin(...asked: Parameters<typeof splitKvBytes>): KvSplit | undefined {
  try {
    return splitKvBytes(...asked);
  } catch (error) {
    if ((error as { code?: unknown }).code !== 'kv-bytes-too-few') throw error;
    return undefined;
  }
}

/** A difference that is worth a line. */
const WORTH_TELLING = 0.9;

function comparison(bytes: number, loss: number, best: KvSplit): Record<string, unknown> {
  return {
    expectedKl: rounded(loss),
    better: countFormats(best.choices),
    betterKl: rounded(best.loss),
    fix: `--kv-bytes-per-token ${bytes}`,
  };
}

const rounded = (loss: number): number => Number(loss.toPrecision(2));

async function lossesOf({ calibration, layers }: KvPlanSource): Promise<KvLosses> {
  const file = calibration === undefined || calibration === 'auto' ? undefined : calibration;
  const losses = file === undefined ? undefined : (await openKvCalibration(file, layers)).losses;
  if (losses !== undefined) return losses;
  throw new KvantError(
    'kv-losses-missing',
    `A split of bytes is picked by what formats lose; ${file === undefined ? 'no calibration is named' : `${file} does not say that`}.`,
    {
      kind: 'invalid-request',
      where: 'kvBytesPerToken',
      fix: 'Measure it once: kvant calibrate MODEL --losses --out FILE, then --kv-calibration FILE; or name a plan that is there: --kv-plan FILE.',
    },
  );
}

async function openPlan(path: string, needed: boolean): Promise<readonly string[] | null> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (!needed && systemCode(error) === 'ENOENT') return null;
    throw new KvantError('file-not-readable', `${path} cannot be read: ${systemReason(error)}.`, {
      kind: 'invalid-request',
      where: 'kvPlan',
      fix: 'Have it written: --kv-bytes-per-token BYTES beside --kv-plan FILE.',
    });
  }
  return readKvPlan(text, path);
}

async function writePlan(path: string, text: string): Promise<void> {
  try {
    await writeFile(path, text, { flag: 'wx' });
  } catch (error) {
    throw new KvantError('file-not-writable', `The plan ${path} cannot be written: ${systemReason(error)}.`, {
      kind: 'invalid-request',
      where: 'kvPlan',
      fix: 'Name a place in a folder that is there and that this user may write to.',
    });
  }
}

/** Bytes that a token takes by the plan. */
function checkPlan(
  options: KvOptions & { readonly kvLayerFormats: readonly string[] },
  { layers, float }: KvPlanSource,
  path: string,
  most: number | undefined,
): number {
  const refused = (what: string, fix: string): KvantError =>
    new KvantError('kv-plan-mismatch', `The plan ${path} ${what}.`, {
      kind: 'invalid-request',
      where: 'kvPlan',
      fix,
    });
  const count = options.kvLayerFormats.length;
  if (count !== layers.length)
    throw refused(
      `is one for ${count} layers; the model has ${layers.length}`,
      'Have one written for this model, to a file of its own.',
    );
  // Layers that cannot have what a plan says stay float, and take more.
  const bytes = kvChoiceBytes(layers, planKvLayers(layers, readKvOptions(options), float).layers);
  if (most !== undefined && bytes > most)
    throw refused(
      `takes ${bytes} bytes a token; ${most} were given`,
      'Remove the file to have it picked anew, or leave out the bytes.',
    );
  return bytes;
}
