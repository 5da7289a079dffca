/** From the pictures and videos of a conversation to patches: fetched, checked by their headers, decoded, resized, and given a digest. */

import { KvantError } from '../../errors.js';
import { checkImage } from '../../media/decode.js';
import type { ImageProcessor, TowerInput } from '../../media/processor.js';
import { readProcessor, VIDEO_FILE } from '../../media/read-processor.js';
import {
  type PatchGrid,
  type PromptPiece,
  pictureTokens,
  towerInput,
  type VisionDefinition,
} from '../../models/vision/tower.js';
import { isJsonObject, readJsonObject } from '../../text/json-file.js';
import type { DecodeVideo, EngineChatMessage, ImageProcessorOptions, SeenImage } from '../types.js';
import { type ProcessorConfig, withImageProcessor } from './image-processor.js';
import { type MadePicture, makePicture } from './make-picture.js';
import type { PictureAccess } from './picture-access.js';
import { pictureBytes } from './picture-bytes.js';
import { splitPictures } from './picture-parts.js';
import { PictureThread, type PictureWaiter } from './picture-thread.js';
import { type ChosenVideo, VideoReader } from './video-reader.js';

/** Pictures of one request at most. */
export const MOST_PICTURES = 16;

export interface ReadPicture {
  /** Of a picture one, of a video each two frames. */
  readonly made: readonly MadePicture[];
  /** Of each two frames of a video, on the axis of time; null where they turn by where they stand. Absent: a picture. */
  readonly times?: readonly number[] | null;
  readonly tokens: number;
  /** What stands for it in the prompt. */
  readonly pieces: readonly PromptPiece[];
}

export interface ReadMessages {
  readonly messages: readonly EngineChatMessage[];
  /** In their order, pictures and videos. */
  readonly pictures: readonly ReadPicture[];
  /** What the model sees of them. */
  readonly seen: readonly SeenImage[];
}

export interface PictureReaderOptions {
  readonly access: PictureAccess;
  /** Most tokens of all pictures of a request. */
  readonly mostTokens: number;
  /** Pictures are made on a thread of their own. */
  readonly thread: boolean;
  /** Reads files of videos that kvant does not decode. */
  readonly decodeVideo?: DecodeVideo | undefined;
}

/** What the file for all processors has of it, as newer transformers write it over older files; else preprocessor_config.json. */
async function readProcessorJson(
  folder: string,
  file: string,
  part: 'image_processor' | 'video_processor',
): Promise<ProcessorConfig | undefined> {
  const code = 'invalid-preprocessor';
  const all = await readJsonObject(folder, 'processor_config.json', code);
  const within = all?.[part];
  return isJsonObject(within) ? within : await readJsonObject(folder, file, code);
}

/** How the pictures of a request are made. */
interface Making {
  readonly config: ProcessorConfig;
  readonly processor: ImageProcessor;
}

export class PictureReader {
  readonly #vision: VisionDefinition;
  readonly #config: ProcessorConfig;
  readonly #tower: TowerInput;
  readonly #processor: ImageProcessor;
  readonly #access: PictureAccess;
  readonly #mostTokens: number;
  readonly #thread: PictureThread | null;
  /** Null where the model reads no videos. */
  readonly #videos: VideoReader | null;

  private constructor(
    vision: VisionDefinition,
    config: ProcessorConfig,
    videoConfig: ProcessorConfig,
    { access, mostTokens, thread, decodeVideo }: PictureReaderOptions,
  ) {
    this.#vision = vision;
    this.#config = config;
    this.#tower = towerInput(vision);
    this.#processor = readProcessor(config, this.#tower);
    this.#access = access;
    this.#mostTokens = mostTokens;
    const { video = null } = vision;
    this.#videos = video === null ? null : new VideoReader(video, videoConfig, this.#tower, decodeVideo);
    this.#thread = thread ? new PictureThread() : null;
  }

  /**
   * For the model in a folder; null where there is none, and `vision` has all.
   * Errors: `invalid-preprocessor`.
   */
  static async open(
    folder: string | null,
    vision: VisionDefinition,
    options: PictureReaderOptions,
  ): Promise<PictureReader> {
    const config =
      vision.processor ??
      (folder === null
        ? undefined
        : await readProcessorJson(folder, 'preprocessor_config.json', 'image_processor'));
    if (config === undefined)
      throw new KvantError('invalid-preprocessor', `${folder} has no preprocessor_config.json.`, {
        kind: 'model',
        where: 'preprocessor_config.json',
        fix: 'Fetch the model again: without the file nobody knows how its pictures are made.',
      });
    const videos =
      folder === null ? undefined : await readProcessorJson(folder, VIDEO_FILE, 'video_processor');
    return new PictureReader(vision, config, videos ?? {}, options);
  }

  /** Ends its thread; what is not made is refused. */
  async close(): Promise<void> {
    await this.#thread?.close();
  }

  /**
   * @throws KvantError those of `splitPictures`, `pictureBytes`, `decodeImage`, `VideoReader`; `too-many-images`, `image-too-large`,
   *   `unsupported-content`; those of `withImageProcessor`
   */
  async read(
    given: readonly EngineChatMessage[],
    waiter: PictureWaiter,
    options: ImageProcessorOptions = {},
  ): Promise<ReadMessages> {
    const { signal } = waiter;
    const { messages, found } = splitPictures(given);
    if (found.length > MOST_PICTURES)
      throw new KvantError(
        'too-many-images',
        `The request has ${found.length} pictures and videos; ${MOST_PICTURES} are the most.`,
        {
          kind: 'invalid-request',
          where: found[MOST_PICTURES]!.where,
          fix: 'Send fewer, or in several requests.',
        },
      );
    const stills = found.filter((one) => !('video' in one)).length;
    const making = this.#making(options, stills);
    const files: ({ readonly bytes: Uint8Array; readonly where: string } | ChosenVideo)[] = [];
    let tokens = 0;
    for (const one of found) {
      const { where } = one;
      if ('video' in one) {
        const chosen = await this.#readsVideo(where).choose(one, this.#access, signal);
        tokens += pictureTokens(chosen.pieces);
        files.push(chosen);
      } else {
        const bytes = await pictureBytes(one, this.#access, signal);
        const { width, height } = checkImage(bytes, {}, where);
        tokens += pictureTokens(this.#vision.pieces(gridOf(making.processor, width, height, where)));
        files.push({ bytes, where });
      }
      signal.throwIfAborted();
      if (tokens > this.#mostTokens)
        throw new KvantError(
          'image-too-large',
          `The pictures up to ${where} are ${tokens} tokens; the context has ${this.#mostTokens}.`,
          { kind: 'invalid-request', where, fix: 'Send fewer or smaller pictures.' },
        );
    }
    const pictures: ReadPicture[] = [];
    const seen: SeenImage[] = [];
    for (const file of files) {
      signal.throwIfAborted();
      const frames = 'bytes' in file ? undefined : file.frames;
      const picture =
        'bytes' in file
          ? await this.#picture(file.bytes, file.where, waiter, making)
          : await this.#video(file, waiter);
      pictures.push(picture);
      seen.push(this.#seen(picture, frames));
    }
    return { messages, pictures, seen };
  }

  /** Errors: `unsupported-content`. */
  #readsVideo(where: string): VideoReader {
    if (this.#videos !== null) return this.#videos;
    throw new KvantError(
      'unsupported-content',
      `${where} is a video: this model reads pictures and text only.`,
      {
        kind: 'unsupported',
        where,
        fix: 'Send frames of it as pictures, or take a model that reads videos.',
      },
    );
  }

  #making(options: ImageProcessorOptions, pictures: number): Making {
    const own = this.#vision.processorFor?.(this.#config, pictures) ?? this.#config;
    const bounded = options.minPixels !== undefined || options.maxPixels !== undefined;
    if (!bounded && own === this.#config) return { config: own, processor: this.#processor };
    const config = bounded ? withImageProcessor(own, this.#processor.settings, options) : own;
    return { config, processor: readProcessor(config, this.#tower) };
  }

  /** In pixels, tiles side by side. */
  #seen({ made, tokens }: ReadPicture, frames: number | undefined): SeenImage {
    const { patchSize } = this.#tower;
    const { rows, cols, tiles } = made[0]!.grid;
    return {
      ...(frames === undefined ? {} : { frames }),
      width: cols * patchSize * (tiles?.cols ?? 1),
      height: rows * patchSize * (tiles?.rows ?? 1),
      tokens,
    };
  }

  async #picture(
    bytes: Uint8Array,
    where: string,
    waiter: PictureWaiter,
    { config, processor }: Making,
  ): Promise<ReadPicture> {
    const asked = { bytes, where, config, tower: this.#tower };
    const picture =
      this.#thread === null
        ? await makePicture(processor, bytes, where)
        : (await this.#thread.make(asked, waiter))[0]!;
    const pieces = this.#vision.pieces(picture.grid);
    return { made: [picture], tokens: pictureTokens(pieces), pieces };
  }

  async #video(chosen: ChosenVideo, waiter: PictureWaiter): Promise<ReadPicture> {
    const made = await this.#videos!.make(chosen, waiter, this.#thread);
    const { pieces, times } = chosen;
    return { made, times, tokens: pictureTokens(pieces), pieces };
  }
}

function gridOf(processor: ImageProcessor, width: number, height: number, where: string): PatchGrid {
  try {
    return processor.grid(width, height);
  } catch (error) {
    if (!(error instanceof KvantError)) throw error;
    throw new KvantError(error.code, `${where}: ${error.message}`, {
      kind: error.kind,
      where,
      ...(error.fix === undefined ? {} : { fix: error.fix }),
    });
  }
}
