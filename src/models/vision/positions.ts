/**
 * Rotary positions of a prompt with pictures, by Qwen's rule (arXiv:2409.12191, §2.1): text has one position on all three axes. The tokens of
 * a picture that begins at p have the time p, and the height and the width of their cell added to it. Text behind goes on at
 * p + the longer side of the picture, in tokens. Frames of a video that begins at p have their own times added to it; text behind goes on
 * behind the largest position.
 */

/** Where a picture stands in a prompt, and its size in tokens. */
export interface PicturePlace {
  readonly first: number;
  readonly rows: number;
  readonly cols: number;
  /** Of frames of a video: positions from its first ones on the axis of time. `goesOn`: they are not its first. */
  readonly film?: Film;
}

export interface Film {
  readonly time: number;
  readonly goesOn: boolean;
}

export interface RotaryPlaces {
  /** `[end, 3]` time, height and width of each token up to the end of the last picture. */
  readonly positions: Uint32Array;
  readonly end: number;
  /** What is added to a token's index behind that. At most 0, unless a video takes longer than it has tokens. */
  readonly shift: number;
}

/** `pictures`: in order. */
export function rotaryPlaces(pictures: readonly PicturePlace[]): RotaryPlaces {
  const last = pictures.at(-1);
  const end = last === undefined ? 0 : last.first + last.rows * last.cols;
  const positions = new Uint32Array(end * 3);
  let shift = 0;
  let at = 0;
  let begin = 0;
  for (const { first, rows, cols, film } of pictures) {
    for (; at < first; at++) positions.fill(at + shift, at * 3, at * 3 + 3);
    if (film?.goesOn !== true) begin = first + shift;
    const time = film?.time ?? 0;
    for (let y = 0; y < rows; y++)
      for (let x = 0; x < cols; x++, at++) positions.set([begin + time, begin + y, begin + x], at * 3);
    shift = begin + Math.max(rows, cols, time + 1) - at;
  }
  return { positions, end, shift };
}
