/** The pictures of a prompt: where they stand, what they are known by, and where their features lie once they are computed. */

import { FEATURE_TOKEN } from '../../device/feature-slab.js';
import { type RotaryPlaces, rotaryPlaces } from '../../models/vision/positions.js';
import type { PatchGrid } from '../../models/vision/tower.js';

/** Words of a digest. */
const DIGEST_WORDS = 8;
/** Words that a block's key takes in at once. */
const KEY_BLOCK = 16;

/** A picture as it comes with a request: plain data. */
export interface PromptPicture {
  /** Of pixels, size and processor: eight words. */
  readonly digest: Uint32Array;
  readonly grid: PatchGrid;
  /** `[rows · cols, patchValues]`, in shared memory. */
  readonly patches: Float32Array;
  /** Its first token in the prompt, and how many it has. */
  readonly first: number;
  readonly tokens: number;
}

/** What all choices of a request have in common. */
export class PromptPictures {
  readonly list: readonly PromptPicture[];
  /** Null where the model turns by cache indexes alone. */
  readonly rotary: RotaryPlaces | null;

  /** `mergeSize`: patches a side of a token, of a model that turns by axes. */
  constructor(list: readonly PromptPicture[], mergeSize: number | null) {
    this.list = list;
    this.rotary =
      mergeSize === null
        ? null
        : rotaryPlaces(
            list.map(({ first, grid }) => ({
              first,
              rows: grid.rows / mergeSize,
              cols: grid.cols / mergeSize,
            })),
          );
  }

  /** The index of the picture that a position is of; −1 for text. */
  at(position: number): number {
    return this.list.findIndex(({ first, tokens }) => position >= first && position < first + tokens);
  }

  /** What stands for a picture's token in keys of prefixes: another word for each place of another picture. */
  keyAt(position: number): number | undefined {
    const index = this.at(position);
    if (index < 0) return undefined;
    const { digest, first } = this.list[index]!;
    const offset = position - first;
    return (digest[offset % DIGEST_WORDS]! ^ Math.imul(offset, 0x9e3779b1)) | 0;
  }

  /** Digests of the pictures that have a token in `[from, to)`, each with where in it the first of these is; null for none. */
  wordsIn(from: number, to: number): Uint32Array | null {
    const touched = this.list.filter(({ first, tokens }) => first < to && first + tokens > from);
    if (touched.length === 0) return null;
    const words = new Uint32Array(touched.length * KEY_BLOCK);
    touched.forEach(({ digest, first }, i) => {
      words.set(digest, i * KEY_BLOCK);
      words[i * KEY_BLOCK + DIGEST_WORDS] = from - first;
      words[i * KEY_BLOCK + DIGEST_WORDS + 1] = 1;
    });
    return words;
  }
}

/** The pictures of one sequence. */
export class SequencePictures {
  readonly prompt: PromptPictures;
  /** Their rows are in the slab. */
  ready = false;
  /** The first row of each in the slab, once they have been given rows. */
  readonly rows: number[] = [];

  constructor(prompt: PromptPictures) {
    this.prompt = prompt;
  }

  /** The source of a position's token, if that is of a picture. */
  sourceAt(position: number): number | undefined {
    const index = this.prompt.at(position);
    if (index < 0) return undefined;
    return FEATURE_TOKEN + this.rows[index]! + position - this.prompt.list[index]!.first;
  }
}
