/** Decoders in WebAssembly, for where sharp is missing: `@jsquash/jpeg`, `/png`, `/webp`. */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { type FirstFrame, firstFrame } from './first-frame.js';
import { type ImageFormat, jpegEnds } from './image-header.js';

interface Decoder {
  init(module: WebAssembly.Module): Promise<unknown>;
  default(
    data: ArrayBuffer | Uint8Array,
  ): Promise<{ width: number; height: number; data: Uint8ClampedArray }>;
}

/** By format, the file of code. */
const CODE: Partial<Record<ImageFormat, string>> = {
  jpeg: '@jsquash/jpeg/codec/dec/mozjpeg_dec.wasm',
  png: '@jsquash/png/codec/pkg/squoosh_png_bg.wasm',
  webp: '@jsquash/webp/codec/dec/webp_dec.wasm',
};

async function importDecoder(format: ImageFormat): Promise<unknown> {
  try {
    if (format === 'jpeg')
      return await import(
        /* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ '@jsquash/jpeg/decode.js'
      );
    if (format === 'png')
      return await import(
        /* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ '@jsquash/png/decode.js'
      );
    return await import(
      /* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ '@jsquash/webp/decode.js'
    );
  } catch (error) {
    const { code } = (error ?? {}) as { readonly code?: unknown };
    if (code === 'MODULE_NOT_FOUND' || code === 'ERR_MODULE_NOT_FOUND') return null;
    throw error;
  }
}

/** The decoders make one of these; Node has none. */
class PlainImageData {
  readonly data: Uint8ClampedArray;
  readonly width: number;
  readonly height: number;
  constructor(data: Uint8ClampedArray, width: number, height: number) {
    this.data = data;
    this.width = width;
    this.height = height;
  }
}

const decoders = new Map<ImageFormat, Promise<Decoder | null>>();

interface Rgba {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** RGBA of the first frame; null where no package for the format is installed. */
export async function decodeByWasm(bytes: Uint8Array, format: ImageFormat): Promise<Rgba | null> {
  let decoder = decoders.get(format);
  if (decoder === undefined) {
    decoder = load(format);
    decoders.set(format, decoder);
  }
  const loaded = await decoder;
  if (loaded === null) return null;
  if (format === 'jpeg' && !jpegEnds(bytes)) throw new Error('the file is cut off');
  const first = format === 'webp' ? firstFrame(bytes) : null;
  if (first === null) return decode(loaded, bytes);
  return laid(await decode(loaded, first.file), first);
}

async function decode(decoder: Decoder, bytes: Uint8Array): Promise<Rgba> {
  // A copy: a Buffer may lie within a larger one.
  const whole = new Uint8Array(bytes).buffer;
  const { width, height, data } = await decoder.default(whole);
  return { width, height, data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) };
}

/** A frame in its place; around it the picture is transparent. */
function laid(frame: Rgba, { x, y, width, height }: FirstFrame): Rgba {
  if (x + frame.width > width || y + frame.height > height) throw new Error('the frame leaves the picture');
  if (frame.width === width && frame.height === height) return frame;
  const data = new Uint8Array(width * height * 4);
  for (let row = 0; row < frame.height; row++) {
    const from = row * frame.width * 4;
    data.set(frame.data.subarray(from, from + frame.width * 4), ((y + row) * width + x) * 4);
  }
  return { width, height, data };
}

async function load(format: ImageFormat): Promise<Decoder | null> {
  const code = CODE[format];
  if (code === undefined) return null;
  const decoder = (await importDecoder(format)) as Decoder | null;
  if (decoder === null) return null;
  const scope = globalThis as { ImageData?: unknown };
  scope.ImageData ??= PlainImageData;
  const file = resolveBy(createRequire(import.meta.url), code);
  await decoder.init(await WebAssembly.compile(await readFile(file)));
  return decoder;
}

/** In a function of its own: bundlers follow `createRequire(import.meta.url).resolve` and fail where the packages are missing. */
function resolveBy(require: NodeJS.Require, name: string): string {
  return require.resolve(name);
}
