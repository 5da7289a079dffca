/** From the pictures of a conversation to patches: fetched, checked by their headers, decoded, resized, and given a digest. */

import { KvantError } from '../../errors.js';
import { checkImage } from '../../media/decode.js';
import type { ImageProcessor, TowerInput } from '../../media/processor.js';
import { readProcessor } from '../../media/read-processor.js';
import {
  type PatchGrid,
  type PromptPiece,
  pictureTokens,
  towerInput,
  type VisionDefinition,
} from '../../models/vision/tower.js';
import { isJsonObject, readJsonObject } from '../../text/json-file.js';
import type { EngineChatMessage, ImageProcessorOptions, SeenImage } from '../types.js';
import { type ProcessorConfig, withImageProcessor } from './image-processor.js';
import { type MadePicture, makePicture } from './make-picture.js';
import type { PictureAccess } from './picture-access.js';
import { pictureBytes } from './picture-bytes.js';
import { splitPictures } from './picture-parts.js';
import { PictureThread, type PictureWaiter } from './picture-thread.js';

/** Pictures of one request at most. */
export const MOST_PICTURES = 16;

export interface ReadPicture extends MadePicture {
  readonly tokens: number;
  /** What stands for it in the prompt. */
  readonly pieces: readonly PromptPiece[];
}

export interface ReadMessages {
  readonly messages: readonly EngineChatMessage[];
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
}

/** preprocessor_config.json; where there is none, what newer folders have of it in the file for all processors. */
async function readProcessorJson(folder: string): Promise<ProcessorConfig | undefined> {
  const code = 'invalid-preprocessor';
  const own = await readJsonObject(folder, 'preprocessor_config.json', code);
  if (own !== undefined) return own;
  const all = await readJsonObject(folder, 'processor_config.json', code);
  return isJsonObject(all?.image_processor) ? all.image_processor : undefined;
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

  private constructor(
    vision: VisionDefinition,
    config: ProcessorConfig,
    { access, mostTokens, thread }: PictureReaderOptions,
  ) {
    this.#vision = vision;
    this.#config = config;
    this.#tower = towerInput(vision);
    this.#processor = readProcessor(config, this.#tower);
    this.#access = access;
    this.#mostTokens = mostTokens;
    this.#thread = thread ? new PictureThread() : null;
  }

  /**
   * For the model in a folder.
   * Errors: `invalid-preprocessor`.
   */
  static async open(
    folder: string,
    vision: VisionDefinition,
    options: PictureReaderOptions,
  ): Promise<PictureReader> {
    const config = vision.processor ?? (await readProcessorJson(folder));
    if (config === undefined)
      throw new KvantError('invalid-preprocessor', `${folder} has no preprocessor_config.json.`, {
        kind: 'model',
        where: 'preprocessor_config.json',
        fix: 'Fetch the model again: without the file nobody knows how its pictures are made.',
      });
    return new PictureReader(vision, config, options);
  }

  /** Ends its thread; what is not made is refused. */
  async close(): Promise<void> {
    await this.#thread?.close();
  }

  /**
   * @throws KvantError those of `splitPictures`, `pictureBytes` and `decodeImage`; `too-many-images`, `image-too-large`; those of `withImageProcessor`
   */
  async read(
    given: readonly EngineChatMessage[],
    waiter: PictureWaiter,
    options: ImageProcessorOptions = {},
  ): Promise<ReadMessages> {
    const { signal } = waiter;
    const { messages, pictures: found } = splitPictures(given);
    if (found.length > MOST_PICTURES)
      throw new KvantError(
        'too-many-images',
        `The request has ${found.length} pictures; ${MOST_PICTURES} are the most.`,
        {
          kind: 'invalid-request',
          where: found[MOST_PICTURES]!.where,
          fix: 'Send fewer, or in several requests.',
        },
      );
    const making = this.#making(options, found.length);
    const files: { readonly bytes: Uint8Array; readonly where: string }[] = [];
    let tokens = 0;
    for (const picture of found) {
      const { where } = picture;
      const bytes = await pictureBytes(picture, this.#access, signal);
      signal.throwIfAborted();
      const { width, height } = checkImage(bytes, {}, where);
      tokens += pictureTokens(this.#vision.pieces(gridOf(making.processor, width, height, where)));
      if (tokens > this.#mostTokens)
        throw new KvantError(
          'image-too-large',
          `The pictures up to ${where} are ${tokens} tokens; the context has ${this.#mostTokens}.`,
          { kind: 'invalid-request', where, fix: 'Send fewer or smaller pictures.' },
        );
      files.push({ bytes, where });
    }
    const pictures: ReadPicture[] = [];
    for (const { bytes, where } of files) {
      signal.throwIfAborted();
      pictures.push(await this.#picture(bytes, where, waiter, making));
    }
    return { messages, pictures, seen: pictures.map((picture) => this.#seen(picture)) };
  }

  #making(options: ImageProcessorOptions, pictures: number): Making {
    const own = this.#vision.processorFor?.(this.#config, pictures) ?? this.#config;
    const bounded = options.minPixels !== undefined || options.maxPixels !== undefined;
    if (!bounded && own === this.#config) return { config: own, processor: this.#processor };
    const config = bounded ? withImageProcessor(own, this.#processor.settings, options) : own;
    return { config, processor: readProcessor(config, this.#tower) };
  }

  /** In pixels, tiles side by side. */
  #seen({ grid: { rows, cols, tiles }, tokens }: ReadPicture): SeenImage {
    const { patchSize } = this.#tower;
    return {
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
        : await this.#thread.make(asked, waiter);
    const pieces = this.#vision.pieces(picture.grid);
    return { ...picture, tokens: pictureTokens(pieces), pieces };
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
