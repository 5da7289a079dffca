/** Tensors of a file that are one number each, which families have in their config: scales that converters make weights of. */

import { KvantError } from '../../errors.js';
import type { JsonObject } from '../../weights/folder-files.js';
import type { GgufCheckpoint } from '../../weights/gguf-checkpoint.js';
import type { GgufArchitecture } from './architecture.js';

/** No head is as wide. */
const MOST = 65_536;

export interface LayerConstants {
  /** Fields of the config. */
  readonly fields: JsonObject;
  /** The tensors that they stand for. */
  readonly names: ReadonlySet<string>;
}

/**
 * @param layers how many the file holds
 * @throws KvantError `weights-tensor-missing` for a layer without such a tensor, `model-config-unsupported` for one of several numbers
 */
export async function layerConstants(
  checkpoint: GgufCheckpoint,
  { constants = {} }: GgufArchitecture,
  layers: number,
): Promise<LayerConstants> {
  const fields: Record<string, number> = {};
  const names = new Set<string>();
  for (const [tensor, field] of Object.entries(constants)) {
    const found = new Set<number>(field === null ? [1] : []);
    for (let layer = 0; layer < layers; layer++) {
      const name = `blk.${layer}.${tensor}`;
      const length = checkpoint.info(name)?.shape.reduce((product, size) => product * size, 1);
      if (length === undefined) throw missing(checkpoint.path, name);
      if (length > MOST) throw several(name);
      for (const value of await checkpoint.vector(name, name).read()) found.add(value);
      if (found.size > 1) throw several(name);
      names.add(name);
    }
    const [only] = found;
    if (field !== null && only !== undefined) fields[field] = only;
  }
  return { fields, names };
}

function missing(path: string, name: string): KvantError {
  return new KvantError('weights-tensor-missing', `${path} has no tensor "${name}"`, {
    kind: 'model',
    where: name,
    fix: 'Download the file again, or convert the model again with a current version of llama.cpp.',
  });
}

function several(name: string): KvantError {
  return new KvantError(
    'model-config-unsupported',
    `${name}: weights that are not one number, the same in all layers, are not supported`,
    { kind: 'unsupported', where: name, fix: 'Use a model as published.' },
  );
}
