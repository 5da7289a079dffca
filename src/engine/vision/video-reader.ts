/** From a video of a conversation to pairs of frames: found out how many there are, some taken, decoded, resized, and given digests. */

import { KvantError } from '../../errors.js';
import { frameRate, readAnimation } from '../../media/animation.js';
import { checkImage } from '../../media/decode.js';
import { checkAnimation, MAX_VIDEO_FRAMES } from '../../media/decode-frames.js';
import { orientationOf } from '../../media/orientation.js';
import type { ImageGrid, TowerInput, VideoProcessor } from '../../media/processor.js';
import {
  readVideoProcessor,
  type VideoProcessorName,
  videoProcessorName,
} from '../../media/read-processor.js';
import type { PromptPiece, VideoDefinition } from '../../models/vision/tower.js';
import type { DecodeVideo, VideoFrames } from '../types.js';
import type { ProcessorConfig } from './image-processor.js';
import type { MadePicture } from './make-picture.js';
import { type FilmFrames, makeVideo, type NamedFrame } from './make-video.js';
import type { PictureAccess } from './picture-access.js';
import { pictureBytes } from './picture-bytes.js';
import type { FoundVideo, FrameSource } from './picture-parts.js';
import type { PictureThread, PictureWaiter } from './picture-thread.js';

/** A video whose frames have been chosen, and none decoded. */
export interface ChosenVideo {
  readonly where: string;
  readonly grid: ImageGrid;
  readonly pieces: readonly PromptPiece[];
  readonly frames: number;
  /** Of each two frames, on the axis of time; null where they turn by where they stand. */
  readonly times: readonly number[] | null;
  /** Frames of a file, pictures, or what a function of the caller decodes. */
  readonly source:
    | FilmFrames['source']
    | { readonly kind: 'own'; readonly read: () => AsyncIterable<NamedFrame> };
}

/** What is known of a video before its frames are taken. */
interface Film {
  readonly count: number;
  readonly fps: number;
  readonly width: number;
  readonly height: number;
  source(indexes: readonly number[]): ChosenVideo['source'];
}

export class VideoReader {
  readonly #video: VideoDefinition;
  readonly #config: ProcessorConfig;
  readonly #tower: TowerInput;
  readonly #name: VideoProcessorName;
  readonly #processor: VideoProcessor;
  readonly #decode: DecodeVideo | undefined;

  /** Errors: `invalid-preprocessor`. `decode`: the caller's function for files that kvant does not decode. */
  constructor(
    video: VideoDefinition,
    config: ProcessorConfig,
    tower: TowerInput,
    decode: DecodeVideo | undefined,
  ) {
    this.#video = video;
    this.#config = config;
    this.#tower = tower;
    this.#name = videoProcessorName(config, video.processors);
    this.#processor = readVideoProcessor(config, this.#name, tower);
    this.#decode = decode;
  }

  /**
   * Looks at headers alone.
   *
   * @throws KvantError those of `pictureBytes`, `checkAnimation` and `checkImage`; `invalid-video`, `video-decoder-failed`
   */
  async choose(found: FoundVideo, access: PictureAccess, signal: AbortSignal): Promise<ChosenVideo> {
    const { video, where } = found;
    const { count, fps, width, height, source } =
      video.kind === 'file'
        ? await this.#file(
            await pictureBytes({ source: video.source, where }, access, signal, 'video'),
            where,
            signal,
          )
        : await frames(video.frames, video.fps, where, access, signal);
    const indexes = this.#processor.sample(count, fps);
    const grid = gridOf(this.#processor, indexes.length, width, height, where);
    const pairs = Array.from({ length: Math.ceil(indexes.length / 2) }, (_, i) => [
      indexes[2 * i]!,
      indexes[2 * i + 1] ?? indexes[2 * i]!,
    ]);
    const { time, tells } = this.#video;
    const seconds = pairs.map(([first, second]) =>
      tells === 'first' ? first! / fps : (first! / fps + second! / fps) / 2,
    );
    const each = 2 / ((indexes.length / count) * fps);
    return {
      where,
      grid,
      frames: indexes.length,
      pieces: this.#video.pieces(grid, seconds, this.#name),
      times: time === null ? null : pairs.map((_, pair) => time(pair, each)),
      source: source(indexes),
    };
  }

  /** Decodes what was chosen. Errors: those of `makeVideo` and `PictureThread.make`. */
  async make(
    { source, grid, times, frames: count, where }: ChosenVideo,
    waiter: PictureWaiter,
    thread: PictureThread | null,
  ): Promise<readonly MadePicture[]> {
    const pairs = Math.ceil(count / 2);
    const places = Array.from({ length: pairs }, (_, i) => (times === null ? '' : `${times[i]} ${i > 0}`));
    const part = (film: FilmFrames): Promise<readonly MadePicture[]> => {
      const asked = {
        where,
        config: this.#config,
        tower: this.#tower,
        film,
        processor: this.#name,
      };
      return thread === null ? makeVideo(this.#processor, film, where) : thread.make(asked, waiter);
    };
    if (source.kind === 'file') return part({ source, grid, places });
    // Two at a time: no more of what a function decodes lies in memory.
    const made: MadePicture[] = [];
    let open: NamedFrame[] = [];
    const flush = async (): Promise<void> => {
      waiter.signal.throwIfAborted();
      made.push(
        ...(await part({ source: { kind: 'frames', frames: open }, grid, places: [places[made.length]!] })),
      );
      open = [];
    };
    for await (const frame of source.kind === 'own' ? source.read() : source.frames)
      if (open.push(frame) === 2) await flush();
    if (open.length > 0) await flush();
    return made;
  }

  async #file(bytes: Uint8Array, where: string, signal: AbortSignal): Promise<Film> {
    // What moves and is known is decoded here, whatever the caller's function can do.
    if (this.#decode !== undefined && readAnimation(bytes, 1) === null)
      return decoded(this.#decode, bytes, where, signal);
    const animation = checkAnimation(bytes, {}, where);
    const { width, height, delays } = animation;
    return {
      count: delays.length,
      fps: frameRate(animation),
      width,
      height,
      source: (indexes) => ({ kind: 'file', bytes, indexes }),
    };
  }
}

/** Frames that were given one by one, all of one size. */
async function frames(
  given: readonly FrameSource[],
  fps: number,
  where: string,
  access: PictureAccess,
  signal: AbortSignal,
): Promise<Film> {
  if (given.length > MAX_VIDEO_FRAMES)
    throw invalid(
      'video-too-large',
      where,
      `has ${given.length} frames; ${MAX_VIDEO_FRAMES} are the most`,
      'Leave some out.',
    );
  const read: NamedFrame[] = [];
  let size: { readonly width: number; readonly height: number } | null = null;
  for (const [i, frame] of given.entries()) {
    const at = `${where}[${i}]`;
    const one =
      frame.kind === 'pixels'
        ? frame.image
        : await pictureBytes({ source: frame, where: at }, access, signal);
    signal.throwIfAborted();
    const { width, height } = one instanceof Uint8Array ? sizeOf(one, at) : one;
    size ??= { width, height };
    if (width !== size.width || height !== size.height)
      throw invalid(
        'invalid-video',
        at,
        `has ${width} × ${height} pixels, the first frame ${size.width} × ${size.height}`,
        'Give frames of one size.',
      );
    read.push({ image: one, where: at });
  }
  return {
    count: read.length,
    fps,
    ...size!,
    source: (indexes) => ({ kind: 'frames', frames: indexes.map((index) => read[index]!) }),
  };
}

/** Once it stands upright. */
function sizeOf(bytes: Uint8Array, where: string): { readonly width: number; readonly height: number } {
  const { format, width, height } = checkImage(bytes, {}, where);
  const aside = orientationOf(bytes, format) > 4;
  return aside ? { width: height, height: width } : { width, height };
}

/** What the caller's function says of a file. */
async function decoded(
  decode: DecodeVideo,
  bytes: Uint8Array,
  where: string,
  signal: AbortSignal,
): Promise<Film> {
  const fail = (what: string, cause?: unknown): KvantError =>
    new KvantError('video-decoder-failed', `${where}: \`decodeVideo\` ${what}.`, {
      kind: 'invalid-request',
      where,
      fix: 'Send another video, or look at the function that was given for them.',
      ...(cause === undefined ? {} : { cause }),
    });
  let film: VideoFrames;
  try {
    film = await decode(bytes, { signal });
  } catch (cause) {
    signal.throwIfAborted();
    throw fail(`failed: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
  const { frames: count, fps, width, height } = film;
  const counts = [count, width, height].every((value) => Number.isSafeInteger(value) && value > 0);
  if (!counts || !(Number.isFinite(fps) && fps > 0))
    throw fail('gave no frames, fps, width and height that are numbers above 0');
  async function* read(indexes: readonly number[]): AsyncGenerator<NamedFrame> {
    let found = 0;
    try {
      for await (const frame of film.read(indexes)) {
        if (frame.width !== width || frame.height !== height || frame.pixels.length !== 3 * width * height)
          throw fail(`gave a frame that is not ${width} × ${height} pixels of three bytes`);
        if (found++ < indexes.length) yield { image: frame, where };
      }
    } catch (cause) {
      signal.throwIfAborted();
      if (cause instanceof KvantError) throw cause;
      throw fail(`failed: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
    }
    if (found !== indexes.length) throw fail(`gave ${found} frames of ${indexes.length}`);
  }
  return { count, fps, width, height, source: (indexes) => ({ kind: 'own', read: () => read(indexes) }) };
}

function gridOf(
  processor: VideoProcessor,
  frames: number,
  width: number,
  height: number,
  where: string,
): ImageGrid {
  try {
    return processor.grid(frames, width, height);
  } catch (error) {
    if (!(error instanceof KvantError)) throw error;
    throw new KvantError('invalid-video', `${where}: ${error.message}`, {
      kind: error.kind,
      where,
      ...(error.fix === undefined ? {} : { fix: error.fix }),
    });
  }
}

function invalid(code: string, where: string, what: string, fix: string): KvantError {
  return new KvantError(code, `${where} ${what}.`, { kind: 'invalid-request', where, fix });
}
