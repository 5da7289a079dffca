/** A plan of formats by layer, as a file that people may write too. */

import { kvSideBytes } from '../device/kv.js';
import { KvantError } from '../errors.js';
import { type KvChoice, kvChoiceName, parseKvChoice } from './formats.js';
import type { KvLayerShape } from './policy.js';

const FORMAT = 'kvant-kv-plan-1';

/** Bytes that one token takes by it are written for people. */
export function writeKvPlan(choices: readonly KvChoice[], bytesPerToken: number): string {
  return `${JSON.stringify({ format: FORMAT, bytesPerToken, layers: choices.map(kvChoiceName) }, null, 2)}\n`;
}

/** Names of formats, a layer each. Errors: `kv-plan-invalid`, `kv-format-unknown`. */
export function readKvPlan(text: string, path: string): readonly string[] {
  let file: { format?: unknown; layers?: unknown } | null;
  try {
    file = JSON.parse(text) as typeof file;
  } catch {
    throw invalid(path, 'is no JSON');
  }
  if (typeof file !== 'object' || file?.format !== FORMAT)
    throw invalid(path, `is no file of the format ${FORMAT}`);
  const { layers } = file;
  if (!Array.isArray(layers) || layers.length === 0 || !layers.every((name) => typeof name === 'string'))
    throw invalid(path, 'has no list of formats by layer ("layers")');
  layers.forEach(parseKvChoice);
  return layers;
}

/** Bytes of one token in all layers. */
export function kvChoiceBytes(layers: readonly KvLayerShape[], choices: readonly KvChoice[]): number {
  return layers.reduce((sum, shape, layer) => {
    const { key, value } = choices[layer]!;
    return sum + kvSideBytes(shape, 'key', key) + kvSideBytes(shape, 'value', value);
  }, 0);
}

function invalid(path: string, what: string): KvantError {
  return new KvantError('kv-plan-invalid', `The plan ${path} ${what}.`, {
    kind: 'invalid-request',
    where: 'kvPlan',
    fix: 'Have it written: --kv-bytes-per-token BYTES --kv-plan FILE, with a FILE that is not there yet.',
  });
}
