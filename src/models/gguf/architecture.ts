/** What is said of an architecture of GGUF files. */

import type { KvantError } from '../../errors.js';
import type { JsonObject } from '../../weights/folder-files.js';

/** What converters did to the weights of an architecture. */
export interface GgufArchitecture {
  /** `general.architecture`. */
  readonly name: string;
  /** `model_type` and `architectures` of the config; null: no class is the text model alone. */
  readonly modelType: string;
  readonly className: string | null;
  /** q and k have the rows of a rotated pair beside one another. Default: as they were published. */
  readonly pairedRows?: boolean;
  /** With positions of several axes, q and k have the halves of rotated pairs one after the other, though families have them side by side. */
  readonly halvedByAxes?: boolean;
  /** The family has q, k and v as one tensor. Default: as three, also where the file has one. */
  readonly joinedQkv?: boolean;
  /** q has rows of a gate beside each head's: it is twice as high as what comes behind attention is wide. */
  readonly gatedQueries?: boolean;
  /**
   * Norms that multiply by 1 + w are stored as 1 + w, and decays as they are used; `in layers`: not the last norm, which multiplies by w.
   * Default: they are as they were published.
   */
  readonly bakedNorms?: boolean | 'in layers';
  /** Decays alone are stored as they are used. */
  readonly bakedDecays?: boolean;
  /** Layers that do not attend have no KV heads in the list of them. Default: all have as many. */
  readonly someAttend?: boolean;
  /** Numbers that may differ by layer, which `fields` reads. */
  readonly lists?: readonly string[];
  /** Where value heads are tiled over key heads, and are to stand by key head: default as they were published. */
  readonly tiledHeads?: boolean;
  /** Names of a layer's tensors that differ from those of others, without `.weight`. */
  readonly names?: Readonly<Record<string, string>>;
  /** Names of tensors that stand in no layer, without `.weight`. */
  readonly topNames?: Readonly<Record<string, string>>;
  /** The same as `names` with `.weight` or `.bias`, of tensors that are called neither elsewhere. */
  readonly wholeNames?: Readonly<Record<string, string>>;
  /** Single numbers of layers that the file keeps as lists: a list's key by the tensor that each was. */
  readonly numbers?: Readonly<Record<string, string>>;
  /** The norms are layer norms, whose ε the config calls so. Default: RMS norms. */
  readonly layerNormEps?: string;
  /** How experts are scored: another way that a file says is refused. Default: `softmax`. */
  readonly scores?: 'softmax' | 'sigmoid' | 'softmax or sigmoid';
  /** Tensors of layers that hold one number each, all the same: the field that it is, by the tensor; null where it is to be 1. */
  readonly constants?: Readonly<Record<string, string | null>>;
  /** Layers may be said not to rotate, which is refused. Default: the key means something else. */
  readonly rotates?: boolean;
  /** Keys that change other models, and that `fields` reads. */
  readonly reads?: readonly string[];
  /** Fields that are its alone. */
  readonly fields?: (read: MetadataReader, config: JsonObject) => JsonObject;
}

/** Keys of the metadata below the architecture, checked; and which tensors there are. */
export interface MetadataReader {
  readonly headDim: number;
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  count(key: string, min?: number): number | undefined;
  number(key: string): number | undefined;
  text(key: string): string | undefined;
  flag(key: string): boolean | undefined;
  /** A list of numbers, one a layer. */
  list(key: string): readonly number[] | undefined;
  /** A list of flags, one a layer; a number of layers where there is a period. */
  pattern(key: string): readonly boolean[] | number | undefined;
  hasTensor(name: string): boolean;
  /** The error for a key that changes the model, and is not computed. */
  unsupported(key: string, what: string): KvantError;
  /** Of a tensor, undefined where there is none. */
  rows(name: string): number | undefined;
}
