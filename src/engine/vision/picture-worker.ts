/** The script of the thread that makes pictures: one after the other. */

import { setPriority } from 'node:os';
import { parentPort } from 'node:worker_threads';
import { type SerializedError, serializeError } from '../../errors.js';
import type { TowerInput } from '../../media/processor.js';
import { readProcessor, readVideoProcessor, type VideoProcessorName } from '../../media/read-processor.js';
import { asKvantError } from '../core-errors.js';
import { type MadePicture, makePicture } from './make-picture.js';
import { type FilmFrames, makeVideo } from './make-video.js';
import { givenAway } from './patched-image.js';

interface Asked {
  readonly where: string;
  /** preprocessor_config.json, or that of videos, with what the request changes of it. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly tower: TowerInput;
}

export type ToPictureWorker =
  | (Asked & { readonly bytes: Uint8Array })
  | (Asked & { readonly film: FilmFrames; readonly processor: VideoProcessorName });

export type FromPictureWorker =
  | { readonly type: 'begun' }
  /** Of a video each two frames. */
  | { readonly type: 'made'; readonly pictures: readonly MadePicture[] }
  | { readonly type: 'failed'; readonly error: SerializedError };

/** On Linux a thread has a priority of its own; elsewhere it would be the process's. */
const NICE = 10;

const port = parentPort;
if (port === null) throw new Error('picture-worker.js runs as a worker thread only');
if (process.platform === 'linux') {
  try {
    setPriority(0, NICE);
  } catch {
    // It then takes its time like any other thread.
  }
}

async function make(asked: ToPictureWorker): Promise<readonly MadePicture[]> {
  const { where, config, tower } = asked;
  if ('film' in asked)
    return makeVideo(readVideoProcessor(config, asked.processor, tower), asked.film, where);
  return [await makePicture(readProcessor(config, tower), asked.bytes, where)];
}

port.on('message', async (asked: ToPictureWorker) => {
  const post = (message: FromPictureWorker, given: ArrayBuffer[] = []): void =>
    port.postMessage(message, given);
  post({ type: 'begun' });
  try {
    const pictures = await make(asked);
    post({ type: 'made', pictures }, givenAway(pictures));
  } catch (error) {
    post({ type: 'failed', error: serializeError(asKvantError(error)) });
  }
});
