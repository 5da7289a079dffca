/**
 * What sees for a model, by the `projector_type` of its mmproj file: what its tensors are called in checkpoints, what a config.json and a
 * preprocessor_config.json would say.
 *
 * Source: what llama.cpp's converters write for each (conversion/qwenvl.py, qwen3vl.py, gemma.py, smolvlm.py, llava.py, intern_vision.py,
 * lfm2.py), and what publishers have in the files that no key stands for.
 */

import type { JsonObject } from '../../weights/folder-files.js';

/** Where a tensor goes: rows of several follow one another in one, or they are the frames of a patch. */
export interface TensorPlace {
  readonly name: string;
  readonly part?: number;
  readonly frames?: boolean;
  /** Its numbers in the order that the checkpoint has; `shape`: of the file's tensor. */
  readonly reordered?: (values: Float32Array, shape: readonly number[]) => Float32Array;
}

/** An mmproj file, and the model that it is to see for. Keys stand below `clip.vision.`. */
export interface ProjectorReader {
  /** `general.architecture` of the model, and its config. */
  readonly architecture: string;
  readonly text: JsonObject;
  count(key: string, min?: number): number | undefined;
  /** @throws KvantError `model-config` where there is none */
  required(key: string): number;
  number(key: string): number | undefined;
  numbers(key: string): readonly number[] | undefined;
  word(key: string): string | undefined;
  /** `clip.use_gelu` and the like. */
  flag(key: string): boolean;
  /** Sizes of a tensor, outermost first; undefined where there is none. */
  shape(tensor: string): readonly number[] | undefined;
  /** The id of a token of the model, if its file has it. */
  tokenId(text: string): number | undefined;
}

export interface ProjectorKind {
  readonly types: readonly string[];
  /** undefined: nothing is known of it. Null: it is of no use. */
  place(tensor: string, read: ProjectorReader): TensorPlace | null | undefined;
  /** All of config.json but `text_config`. */
  config(read: ProjectorReader): JsonObject;
  processor(read: ProjectorReader): JsonObject;
  /** `projection_dim` is that of the tower's training, and not the model's width. */
  readonly ownProjection?: boolean;
  /** q and k have the rows of a rotated pair beside one another. */
  readonly pairedRows?: boolean;
}

/** The tensors of blocks that are called `inner`: the block is `$1`, what `inner` finds comes next, `weight` or `bias` last. */
export const inBlock = (inner: string): RegExp => new RegExp(`^v\\.blk\\.(\\d+)\\.${inner}\\.(weight|bias)$`);

/** What {@link rules} says of a name that fits: where it goes, with `$1` for what the pattern found. */
export type PlaceRule = readonly [RegExp, string, Omit<TensorPlace, 'name'>?];

export function rules(list: readonly PlaceRule[]): ProjectorKind['place'] {
  return (tensor) => {
    const found = list.find(([pattern]) => pattern.test(tensor));
    if (found === undefined) return undefined;
    const [pattern, to, more] = found;
    return { name: tensor.replace(pattern, to), ...more };
  };
}

/** Ids of tokens by field, of those that the model's file has. */
export function tokenFields(read: ProjectorReader, tokens: Readonly<Record<string, string>>): JsonObject {
  return Object.fromEntries(
    Object.entries(tokens).flatMap(([field, text]) => {
      const id = read.tokenId(text);
      return id === undefined ? [] : [[field, id]];
    }),
  );
}

/** Mean and deviation of colours, where the file has them. */
export function colours(read: ProjectorReader): JsonObject {
  const [mean, std] = [read.numbers('image_mean'), read.numbers('image_std')];
  return {
    ...(mean === undefined ? {} : { image_mean: mean }),
    ...(std === undefined ? {} : { image_std: std }),
  };
}
