/** What a resize weighs each pixel with: PIL's numbers, to the last bit (Pillow, src/libImaging/Resample.c). */

const RESIZE_FILTERS = ['bilinear', 'bicubic', 'lanczos'] as const;
export type ResizeFilter = (typeof RESIZE_FILTERS)[number];

/** Bits behind the point. */
const PRECISION = 22;

export interface ResizeWeights {
  /** First source pixel and number of them, for each output pixel: `[2 · size]`. */
  readonly bounds: Int32Array;
  /** `[size, taps]`, whole numbers of 22 bits; zeros behind a pixel's own. */
  readonly weights: Int32Array;
  readonly taps: number;
}

const sinc = (x: number): number => (x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI));

const KERNELS: Readonly<
  Record<ResizeFilter, { readonly support: number; readonly at: (x: number) => number }>
> = {
  bilinear: { support: 1, at: (x) => Math.max(0, 1 - Math.abs(x)) },
  bicubic: {
    support: 2,
    at: (given) => {
      const a = -0.5;
      const x = Math.abs(given);
      if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
      return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
    },
  },
  lanczos: { support: 3, at: (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0) },
};

/** Weights that make `to` pixels of `from`. */
export function resizeWeights(from: number, to: number, filter: ResizeFilter): ResizeWeights {
  const { support, at } = KERNELS[filter];
  const scale = from / to;
  // A smaller picture is blurred first: the filter covers all that falls into a pixel.
  const stretch = Math.max(scale, 1);
  const radius = support * stretch;
  const taps = Math.ceil(radius) * 2 + 1;
  const bounds = new Int32Array(2 * to);
  const weights = new Int32Array(to * taps);
  const floats = new Float64Array(taps);
  for (let x = 0; x < to; x++) {
    const centre = (x + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - radius + 0.5));
    const count = Math.min(from, Math.trunc(centre + radius + 0.5)) - first;
    let sum = 0;
    for (let i = 0; i < count; i++) {
      const weight = at((i + first - centre + 0.5) * (1 / stretch));
      floats[i] = weight;
      sum += weight;
    }
    for (let i = 0; i < count; i++) {
      const weight = (sum === 0 ? floats[i]! : floats[i]! / sum) * 2 ** PRECISION;
      weights[x * taps + i] = Math.trunc(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    bounds[2 * x] = first;
    bounds[2 * x + 1] = count;
  }
  return { bounds, weights, taps };
}
