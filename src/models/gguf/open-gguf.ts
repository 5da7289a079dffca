/** Opens a GGUF file with what sees for it, if there is any. */

import { basename, dirname } from 'node:path';
import { KvantError } from '../../errors.js';
import type { Notice } from '../../notice.js';
import { chooseProjector, projectorsOf } from '../../weights/gguf-files.js';
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
  let blind: Notice | undefined;
  if (projector !== undefined) {
    try {
      const model = await GgufSource.open(path);
      const baked = bakedOf(model.architecture);
      return await define(await SeeingSource.open(model, projector.path), baked);
    } catch (error) {
      if (projector.given || !(error instanceof KvantError)) throw error;
      blind = unusable(projector.path, error);
    }
  } else blind = await several(path);
  const source = await GgufSource.open(path);
  const model = await define(source, bakedOf(source.architecture));
  return blind === undefined ? model : { ...model, notices: [...model.notices, blind] };
}

function unusable(path: string, { message, fix }: KvantError): Notice {
  return { message: `pictures are refused: ${message}`, fields: { file: basename(path), fix } };
}

async function several(path: string): Promise<Notice | undefined> {
  const files = await projectorsOf(dirname(path));
  if (files.length === 0) return undefined;
  return {
    message:
      'pictures are refused: several mmproj files lie beside the model; say which with --mmproj (`mmproj`)',
    fields: { files: files.join(', ') },
  };
}
