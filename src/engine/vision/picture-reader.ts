/** From the pictures of a conversation to patches: fetched, checked by their headers, decoded, resized, and given a digest. */

import { createHash } from 'node:crypto';
import { KvantError } from '../../errors.js';
import { checkImage, decodeImage } from '../../media/decode.js';
import type { QwenProcessor } from '../../media/qwen-processor.js';
import { readProcessor } from '../../media/read-processor.js';
import type { PatchGrid } from '../../models/vision/tower.js';
import { readJsonObject } from '../../text/json-file.js';
import type { EngineChatMessage } from '../types.js';
import type { PictureAccess } from './picture-access.js';
import { pictureBytes } from './picture-bytes.js';
import { splitPictures } from './picture-parts.js';

/** Pictures of one request at most. */
export const MOST_PICTURES = 16;
/** What a digest stands for changes with this. */
const DIGEST_VERSION = 1;

export interface ReadPicture {
  readonly digest: Uint32Array;
  readonly grid: PatchGrid;
  readonly patches: Float32Array;
  readonly tokens: number;
}

export interface ReadMessages {
  readonly messages: readonly EngineChatMessage[];
  readonly pictures: readonly ReadPicture[];
}

export class PictureReader {
  readonly #processor: QwenProcessor;
  readonly #access: PictureAccess;
  readonly #mostTokens: number;

  private constructor(processor: QwenProcessor, access: PictureAccess, mostTokens: number) {
    this.#processor = processor;
    this.#access = access;
    this.#mostTokens = mostTokens;
  }

  /**
   * For the model in a folder. `mostTokens`: of all pictures of a request.
   * Errors: `invalid-preprocessor`.
   */
  static async open(folder: string, access: PictureAccess, mostTokens: number): Promise<PictureReader> {
    const config = await readJsonObject(folder, 'preprocessor_config.json', 'invalid-preprocessor');
    if (config === undefined)
      throw new KvantError('invalid-preprocessor', `${folder} has no preprocessor_config.json.`, {
        kind: 'model',
        where: 'preprocessor_config.json',
        fix: 'Fetch the model again: without the file nobody knows how its pictures are made.',
      });
    return new PictureReader(readProcessor(config), access, mostTokens);
  }

  /**
   * @throws KvantError those of `splitPictures`, `pictureBytes` and `decodeImage`; `too-many-images`, `image-too-large`
   */
  async read(given: readonly EngineChatMessage[], signal: AbortSignal): Promise<ReadMessages> {
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
    const files: { readonly bytes: Uint8Array; readonly where: string }[] = [];
    let tokens = 0;
    for (const picture of found) {
      const { where } = picture;
      const bytes = await pictureBytes(picture, this.#access, signal);
      signal.throwIfAborted();
      const { width, height } = checkImage(bytes, {}, where);
      tokens += this.#processor.tokens(this.#grid(width, height, where));
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
      pictures.push(await this.#picture(bytes, where));
    }
    return { messages, pictures };
  }

  async #picture(bytes: Uint8Array, where: string): Promise<ReadPicture> {
    const image = await decodeImage(bytes, {}, where);
    const grid = this.#grid(image.width, image.height, where);
    const { settings } = this.#processor;
    const hash = createHash('sha256')
      .update(JSON.stringify([DIGEST_VERSION, image.width, image.height, settings]))
      .update('\0')
      .update(image.pixels)
      .digest();
    const digest = Uint32Array.from({ length: 8 }, (_, i) => hash.readUInt32BE(i * 4));
    const values = this.#processor.patches(image);
    // Posting shared memory copies nothing.
    const patches = new Float32Array(new SharedArrayBuffer(values.byteLength));
    patches.set(values);
    return { digest, grid, patches, tokens: this.#processor.tokens(grid) };
  }

  #grid(width: number, height: number, where: string): PatchGrid {
    try {
      return this.#processor.grid(width, height);
    } catch (error) {
      if (!(error instanceof KvantError)) throw error;
      throw new KvantError(error.code, `${where}: ${error.message}`, {
        kind: error.kind,
        where,
        ...(error.fix === undefined ? {} : { fix: error.fix }),
      });
    }
  }
}
