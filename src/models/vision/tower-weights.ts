/** Collects what a tower is made of, under the names of its checkpoint. */

import type { MatrixPart, MatrixSpec, VectorSpec } from '../layout.js';

export const CHANNELS = 3;
/** Frames of a patch, of towers that see videos. */
export const FILM = 2;

export interface PatchConvolution {
  /** Without `.weight`. */
  readonly name: string;
  readonly hiddenSize: number;
  readonly patchSize: number;
  readonly bias: boolean;
  /** Frames that a patch of the checkpoint spans; null where it has no such axis. */
  readonly frames: number | null;
}

const kept = (values: Float32Array): Float32Array => values;

/** Matrices of a GPU take columns by so many. */
export const WIDTH_UNIT = 64;

/** Columns of a matrix up to a multiple that kernels take. */
export function paddedColumns(count: number): number {
  return Math.ceil(count / 4) * 4;
}

export class TowerWeights {
  readonly matrices: MatrixSpec[] = [];
  readonly vectors: VectorSpec[] = [];
  readonly #prefix: string;
  readonly #group: number;

  /**
   * @param prefix what names begin with, `visual.`
   * @param group the placement group
   */
  constructor(prefix: string, group: number) {
    this.#prefix = prefix;
    this.#group = group;
  }

  /** A tensor of so many rows, as one part of a matrix. `name`: without `.weight`. */
  part(name: string, rows: number, bias = true, scaledBy?: string): MatrixPart {
    return {
      name: `${this.#prefix}${name}.weight`,
      rows,
      bias: bias ? `${this.#prefix}${name}.bias` : null,
      ...(scaledBy === undefined ? {} : { scaledBy: this.#prefix + scaledBy }),
    };
  }

  matrix(key: string, cols: number, parts: readonly MatrixPart[]): void {
    this.matrices.push({ key, kind: 'vision', parts, cols, use: 'linear', group: this.#group, float: true });
  }

  /** Numbers, `[…shape]`. `name`: whole. */
  vector(key: string, name: string, shape: readonly number[], make?: VectorSpec['make']): void {
    const parts = [{ name: this.#prefix + name, shape }];
    this.vectors.push({ key, parts, group: this.#group, ...(make === undefined ? {} : { make }) });
  }

  /** Numbers that stay on the host. `name`: whole. */
  constant(key: string, name: string, size: number): void {
    const parts = [{ name: this.#prefix + name, shape: [size] }];
    this.vectors.push({ key, parts, group: this.#group, host: true });
  }

  /** Rows of several tensors, one behind the other. Names: whole. */
  table(
    key: string,
    parts: readonly { readonly name: string; readonly shape: readonly number[] }[],
    make?: VectorSpec['make'],
  ): void {
    const named = parts.map(({ name, shape }) => ({ name: this.#prefix + name, shape }));
    this.vectors.push({ key, parts: named, group: this.#group, ...(make === undefined ? {} : { make }) });
  }

  /** Tensors of one number each. Names: whole. `host`: they stay on the host. */
  scalars(key: string, names: readonly string[], host = false): void {
    const parts = names.map((name) => ({ name: this.#prefix + name, shape: [1] }));
    this.vectors.push({ key, parts, group: this.#group, ...(host && { host }) });
  }

  /** `name`: without `.weight`. */
  norm(key: string, name: string, size: number, bias: boolean): void {
    this.vector(key, `${name}.weight`, [size]);
    if (bias) this.vector(`${key}.bias`, `${name}.bias`, [size]);
  }

  /** A product with patches whose numbers the checkpoint has in the order row, column, channel. Returns the tensor's name. */
  pixelRows(
    key: string,
    { name, hiddenSize, patchSize }: Pick<PatchConvolution, 'name' | 'hiddenSize' | 'patchSize'>,
  ): string {
    const area = patchSize ** 2;
    const cols = CHANNELS * area;
    const make = (values: Float32Array): Float32Array =>
      Float32Array.from(values, (_, at) => {
        const [row, col] = [Math.floor(at / cols), at % cols];
        return values[row * cols + (col % area) * CHANNELS + Math.floor(col / area)]!;
      });
    const part = this.part(name, hiddenSize);
    // GGUF files have it as a convolution.
    const convolution = { shape: [hiddenSize, CHANNELS, patchSize, patchSize], make: kept };
    this.pixels(key, cols, { ...part, stored: [{ shape: [hiddenSize, cols], make }, convolution] });
    return part.name;
  }

  /** A product with patches of so many numbers, behind which there are columns of zeros. */
  pixels(key: string, cols: number, part: MatrixPart): void {
    const width = Math.ceil(cols / WIDTH_UNIT) * WIDTH_UNIT;
    this.matrix(key, width, [width === cols ? part : { ...part, own: { rows: part.rows, cols } }]);
  }

  /** A table `[count, size]` whose rows are weighed and added up: a matrix `[size, count]`, with columns of zeros up to a multiple of 4. */
  columns(key: string, name: string, count: number, size: number): void {
    const cols = paddedColumns(count);
    const make = (values: Float32Array): Float32Array => {
      const out = new Float32Array(size * cols);
      for (let at = 0; at < count; at++)
        for (let row = 0; row < size; row++) out[row * cols + at] = values[at * size + row]!;
      return out;
    };
    this.matrix(key, cols, [{ ...this.part(name, size, false), stored: [{ shape: [count, size], make }] }]);
  }

  /**
   * The convolution over patches as a product: stride and kernel are one. A still picture is all frames of a patch, so the weights of the
   * frames are added up; with two frames `${key}.motion` has what those of the first are more than those of the second. PyTorch stores
   * `[out, channel, frame, y, x]`, MLX `[out, frame, y, x, channel]`. `kind` linear: a matrix, with columns in the order frame, channel, y, x.
   * Returns the tensor's name.
   */
  patches(
    key: string,
    { name, hiddenSize, patchSize: p, bias, frames: stated }: PatchConvolution,
    kind: 'convolution' | 'linear' = 'convolution',
  ): string {
    const area = p * p;
    const frames = stated ?? 1;
    const axis = stated === null ? [] : [frames];
    const cols = CHANNELS * area;
    type At = (channel: number, frame: number, pixel: number) => number;
    const weighed =
      (at: At, by: (frame: number) => number) =>
      (values: Float32Array): Float32Array => {
        const out = new Float32Array(hiddenSize * cols);
        for (let row = 0; row < hiddenSize; row++)
          for (let c = 0; c < CHANNELS; c++)
            for (let i = 0; i < area; i++) {
              let sum = 0;
              for (let f = 0; f < frames; f++) sum += by(f) * values[row * cols * frames + at(c, f, i)]!;
              out[row * cols + c * area + i] = sum;
            }
        return out;
      };
    const part = this.part(name, hiddenSize, bias);
    const linear = (by: (frame: number) => number): NonNullable<MatrixPart['stored']> => [
      {
        shape: [hiddenSize, frames * cols],
        make: weighed((c, f, i) => (f * CHANNELS + c) * area + i, by),
      },
    ];
    const convolution = (by: (frame: number) => number): NonNullable<MatrixPart['stored']> => [
      {
        shape: [hiddenSize, CHANNELS, ...axis, p, p],
        make: weighed((c, f, i) => (c * frames + f) * area + i, by),
      },
      {
        shape: [hiddenSize, ...axis, p, p, CHANNELS],
        make: weighed((c, f, i) => (f * area + i) * CHANNELS + c, by),
      },
    ];
    const stored = kind === 'linear' ? linear : convolution;
    this.pixels(key, cols, { ...part, stored: stored(() => 1) });
    // Mean and half of the difference of two frames say as much as the frames, and of a still picture the second is zero.
    if (frames === FILM) {
      const moving = { ...part, bias: null, stored: stored((frame) => 1 - 2 * frame) };
      this.pixels(`${key}.motion`, cols, moving);
    }
    return part.name;
  }
}
