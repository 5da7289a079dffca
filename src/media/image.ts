/** A decoded picture: rows from the top, three bytes a pixel (red, green, blue). */
export interface RgbImage {
  readonly width: number;
  readonly height: number;
  /** `[height, width, 3]`. */
  readonly pixels: Uint8Array;
}
