/** A page of this folder: how models of a family see. The list of them is families.ts. */

import type { ConfigFields } from '../config-fields.js';
import type { ModelDefinition } from '../family.js';
import type { VisionDefinition } from './tower.js';

export interface VisionFamily {
  /** Short and lower case: `qwen3-vl`. */
  readonly name: string;
  /**
   * What sees in front of a decoder; null where the config says nothing of it.
   *
   * @param fields those of the wrapper
   * @throws KvantError `model-config`, `model-config-unsupported`
   */
  read(fields: ConfigFields, decoder: Pick<ModelDefinition, 'facts' | 'layout'>): ReadVision | null;
}

/** `identity`: what features depend on besides weights, as plain data. */
export type ReadVision = VisionDefinition & { readonly identity: unknown };
