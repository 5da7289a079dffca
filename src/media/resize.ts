/** PIL's resize in WebAssembly: the pixels that reference processors see, to the byte. */
import { readFileSync } from 'node:fs';
import { workerUrl } from '../worker-url.js';
import type { RgbImage } from './image.js';
import { type ResizeFilter, type ResizeWeights, resizeWeights } from './resize-weights.js';

interface Passes {
  readonly memory: WebAssembly.Memory;
  horizontal(...numbers: number[]): void;
  vertical(...numbers: number[]): void;
}

const PAGE = 65_536;
/** What kernels may read or write behind a buffer. */
const SPARE = 16;
let module: WebAssembly.Module | undefined;

/**
 * The image in `width` × `height` pixels: bytes equal to those of PIL's `Image.resize` with the same filter.
 * Synchronous: half a millisecond to 200 ms, by the number of source pixels.
 */
export function resizeImage(image: RgbImage, width: number, height: number, filter: ResizeFilter): RgbImage {
  if (image.width === width && image.height === height) return image;
  const across = image.width === width ? null : resizeWeights(image.width, width, filter);
  const down = image.height === height ? null : resizeWeights(image.height, height, filter);
  // Rows that the vertical pass looks at.
  const first = down === null ? 0 : down.bounds[0]!;
  const last = down === null ? image.height : down.bounds[2 * height - 2]! + down.bounds[2 * height - 1]!;
  const rows = last - first;
  const source = image.pixels.subarray(first * image.width * 3, last * image.width * 3);
  // PIL's rule since 13.0. Bytes are rounded between the passes, so their order shows.
  const downFirst = height < image.height && image.height - height > 2 * (image.width - width);

  const places = new Places();
  const src = places.take(source.length);
  const between =
    across === null || down === null
      ? src
      : places.take(downFirst ? height * image.width * 3 : rows * width * 3);
  const dst = places.take(height * width * 3);
  const acrossAt = across === null ? null : places.weights(across);
  const downAt = down === null ? null : places.weights(down);

  // An instance of its own: what a large picture took is free again afterwards.
  const passes = instantiate();
  passes.memory.grow(Math.ceil(places.end / PAGE));
  const bytes = new Uint8Array(passes.memory.buffer);
  bytes.set(source, src);
  const horizontal = (from: number, count: number, to: number): void => {
    if (across === null || acrossAt === null) return;
    acrossAt.write(bytes.buffer);
    const { bounds, weights } = acrossAt;
    passes.horizontal(from, image.width, count, to, width, bounds, weights, across.taps);
  };
  const vertical = (from: number, pixels: number, to: number): void => {
    if (down === null || downAt === null) return;
    downAt.write(bytes.buffer);
    passes.vertical(from, first, pixels * 3, to, height, downAt.bounds, downAt.weights, down.taps);
  };
  if (down === null) horizontal(src, rows, dst);
  else if (across === null) vertical(src, width, dst);
  else if (downFirst) {
    vertical(src, image.width, between);
    horizontal(between, height, dst);
  } else {
    horizontal(src, rows, between);
    vertical(between, width, dst);
  }
  return { width, height, pixels: bytes.slice(dst, dst + width * height * 3) };
}

function instantiate(): Passes {
  module ??= new WebAssembly.Module(readFileSync(workerUrl('./wasm/resize.wasm', import.meta.url)));
  return new WebAssembly.Instance(module, {}).exports as unknown as Passes;
}

/** Places in memory, one behind the other. */
class Places {
  end = PAGE;

  take(bytes: number): number {
    const at = this.end;
    this.end += Math.ceil((bytes + SPARE) / SPARE) * SPARE;
    return at;
  }

  weights({ bounds, weights }: ResizeWeights): PlacedWeights {
    const placed = { bounds: this.take(bounds.byteLength), weights: this.take(weights.byteLength) };
    return {
      ...placed,
      write: (buffer) => {
        new Int32Array(buffer, placed.bounds, bounds.length).set(bounds);
        new Int32Array(buffer, placed.weights, weights.length).set(weights);
      },
    };
  }
}

interface PlacedWeights {
  readonly bounds: number;
  readonly weights: number;
  write(buffer: ArrayBufferLike): void;
}
