/** Opens a GGUF file with what sees for it, if there is any. */

import { basename } from 'node:path';
import { KvantError } from '../../errors.js';
import type { Notice } from '../../notice.js';
import { type ChosenProjector, chooseProjector } from '../../weights/projectors.js';
import type { GgufArchitecture } from './architecture.js';
import { SeeingSource } from './seeing-source.js';
import { GgufSource } from './source.js';

/** What is stored as it is used. */
const BAKED = /(norm\.weight|\.A_log)$/;
const BAKED_DECAYS = /\.A_log$/;

function bakedOf({ bakedNorms, bakedDecays }: GgufArchitecture): RegExp | null {
  return bakedNorms ? BAKED : bakedDecays ? BAKED_DECAYS : null;
}

/**
 * What lies beside the model and cannot be used is told; what was asked for is refused.
 *
 * @param define makes the model of what was opened, which it closes where it fails
 * @throws KvantError those of `GgufSource.open`, `SeeingSource.open` and `define`
 */
export async function openGguf<Model extends { readonly notices: readonly Notice[] }>(
  path: string,
  mmproj: string | undefined,
  define: (source: GgufSource | SeeingSource, baked: RegExp | null) => Promise<Model>,
): Promise<Model> {
  const projector = await chooseProjector(path, mmproj);
  let told: Notice | undefined;
  if (projector !== undefined) {
    try {
      const source = await GgufSource.open(path);
      const baked = bakedOf(source.architecture);
      const model = await define(await SeeingSource.open(source, projector.path), baked);
      if (projector.given || projector.path === path) return model;
      return { ...model, notices: [...model.notices, found(projector)] };
    } catch (error) {
      if (projector.given || !(error instanceof KvantError)) throw error;
      told = unusable(projector.path, error);
    }
  }
  const source = await GgufSource.open(path);
  const model = await define(source, bakedOf(source.architecture));
  return told === undefined ? model : { ...model, notices: [...model.notices, told] };
}

function found({ path, others }: ChosenProjector): Notice {
  return {
    level: 'info',
    message: 'the mmproj file beside the model sees for it (--mmproj, `mmproj`: another)',
    fields: { file: basename(path), ...(others.length === 0 ? {} : { passedOver: others.join(', ') }) },
  };
}

function unusable(path: string, { message, fix }: KvantError): Notice {
  return { message: `pictures are refused: ${message}`, fields: { file: basename(path), fix } };
}
