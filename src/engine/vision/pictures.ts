/** The pictures of a prompt: where they stand, what they are known by, and where their features lie once they are computed. */

import { FEATURE_TOKEN } from '../../device/feature-slab.js';
import { type Film, type RotaryPlaces, rotaryPlaces } from '../../models/vision/positions.js';
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
  /** `[rows · cols, patchValues]`, in memory of its own, which goes to the engine's thread. */
  readonly patches: Float32Array<ArrayBuffer>;
  /** Those of the second of two frames of a video, likewise. Default: a still picture. */
  readonly second?: Float32Array<ArrayBuffer>;
  /** Two frames of a video that turn by their time. */
  readonly film?: Film;
  /** Its first token in the prompt, and how many it has: rows of features. */
  readonly first: number;
  readonly tokens: number;
  /** Where its tokens stand, where other tokens are between them. Default: one behind the other from the first on. */
  readonly runs?: readonly TokenRun[];
}

/** Tokens one behind the other. */
export interface TokenRun {
  readonly first: number;
  readonly tokens: number;
}

/** A run, with the picture that it is of and the row of features of its first token. */
interface PlacedRun extends TokenRun {
  readonly picture: number;
  readonly row: number;
}

/** What all choices of a request have in common. */
export class PromptPictures {
  readonly list: readonly PromptPicture[];
  /** Null where the model turns by cache indexes alone. */
  readonly rotary: RotaryPlaces | null;

  /** `[from, to, from, to, …]`, rising: positions that see each other, so that all of them are computed in one step. */
  readonly uncut: readonly number[];

  readonly #runs: readonly PlacedRun[];
  readonly #ends: readonly number[];

  /** `mergeSize`: patches a side of a token, of a model that turns by axes. `ahead`: tokens of a picture see each other. */
  constructor(list: readonly PromptPicture[], mergeSize: number | null, ahead = false) {
    this.list = list;
    this.#ends = list.map(endOf);
    this.#runs = list.flatMap(({ first, tokens, runs = [{ first, tokens }] }, picture) => {
      let row = 0;
      return runs.map((run) => {
        const placed = { ...run, picture, row };
        row += run.tokens;
        return placed;
      });
    });
    this.uncut = ahead ? spansOf(this.#runs) : [];
    this.rotary =
      mergeSize === null
        ? null
        : rotaryPlaces(
            list.map(({ first, grid, film }) => ({
              ...(film === undefined ? {} : { film }),
              first,
              rows: grid.rows / mergeSize,
              cols: grid.cols / mergeSize,
            })),
          );
  }

  /** The first picture that has tokens behind the first `tokens`; as many as there are, if none has. */
  firstBehind(tokens: number): number {
    let at = 0;
    while (at < this.#ends.length && this.#ends[at]! <= tokens) at++;
    return at;
  }

  /** The picture that a position is of, and its row of features; null for text. */
  at(position: number): { readonly picture: number; readonly row: number } | null {
    let [from, to] = [0, this.#runs.length];
    // The last run that begins at the position or before it.
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.#runs[middle]!.first <= position) from = middle + 1;
      else to = middle;
    }
    const run = this.#runs[from - 1];
    if (run === undefined || position >= run.first + run.tokens) return null;
    return { picture: run.picture, row: run.row + position - run.first };
  }

  /** What stands for a picture's token in keys of prefixes: another word for each place of another picture. */
  keyAt(position: number): number | undefined {
    const found = this.at(position);
    if (found === null) return undefined;
    const { digest } = this.list[found.picture]!;
    return (digest[found.row % DIGEST_WORDS]! ^ Math.imul(found.row, 0x9e3779b1)) | 0;
  }

  /** Digests of the pictures that have a token in `[from, to)`, each with where in it the first of these is; null for none. */
  wordsIn(from: number, to: number): Uint32Array | null {
    // From its first token to its last one, with what stands between them.
    const touched = this.list.filter(({ first }, i) => first < to && this.#ends[i]! > from);
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

/** Runs that touch are one. */
function spansOf(runs: readonly TokenRun[]): number[] {
  const spans: number[] = [];
  for (const { first, tokens } of runs) {
    if (spans.at(-1) === first) spans.pop();
    else spans.push(first);
    spans.push(first + tokens);
  }
  return spans;
}

/** The pictures of one sequence. */
export class SequencePictures {
  readonly prompt: PromptPictures;
  /** Those from this one on have been asked for. What a prefix covers is not computed, and needs no rows. */
  from: number;
  /** The rows of those are in the slab. */
  ready = false;
  /** The first row of each in the slab, once it has been given rows. */
  readonly rows: number[] = [];

  constructor(prompt: PromptPictures) {
    this.prompt = prompt;
    this.from = prompt.list.length;
  }

  /** All that is needed to compute what is behind the first `tokens`. */
  isReady(tokens: number): boolean {
    const first = this.prompt.firstBehind(tokens);
    return first === this.prompt.list.length || (this.ready && this.from <= first);
  }

  /** The source of a position's token, if that is of a picture. */
  sourceAt(position: number): number | undefined {
    const found = this.prompt.at(position);
    return found === null ? undefined : FEATURE_TOKEN + this.rows[found.picture]! + found.row;
  }
}

/** Behind the last token of a picture. */
function endOf({ first, tokens, runs }: PromptPicture): number {
  const last = runs?.at(-1);
  return last === undefined ? first + tokens : last.first + last.tokens;
}
