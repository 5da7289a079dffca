/**
 * Rotary positions of a prompt with pictures, by Qwen's rule (arXiv:2409.12191, §2.1): text has one position on all three axes. The tokens of
 * a picture that begins at p have the time p, and the height and the width of their cell added to it. Text behind goes on at
 * p + the longer side of the picture, in tokens.
 */

/** Where a picture stands in a prompt, and its size in tokens. */
export interface PicturePlace {
  readonly first: number;
  readonly rows: number;
  readonly cols: number;
}

export interface RotaryPlaces {
  /** `[end, 3]` time, height and width of each token up to the end of the last picture. */
  readonly positions: Uint32Array;
  readonly end: number;
  /** What is added to a token's index behind that. At most 0. */
  readonly shift: number;
}

/** `pictures`: in order. */
export function rotaryPlaces(pictures: readonly PicturePlace[]): RotaryPlaces {
  const last = pictures.at(-1);
  const end = last === undefined ? 0 : last.first + last.rows * last.cols;
  const positions = new Uint32Array(end * 3);
  let shift = 0;
  let at = 0;
  for (const { first, rows, cols } of pictures) {
    for (; at < first; at++) positions.fill(at + shift, at * 3, at * 3 + 3);
    const begin = first + shift;
    for (let y = 0; y < rows; y++)
      for (let x = 0; x < cols; x++, at++) positions.set([begin, begin + y, begin + x], at * 3);
    shift += Math.max(rows, cols) - rows * cols;
  }
  return { positions, end, shift };
}
