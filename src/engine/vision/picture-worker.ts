/** The script of the thread that makes pictures: one after the other. */

import { setPriority } from 'node:os';
import { parentPort } from 'node:worker_threads';
import { type SerializedError, serializeError } from '../../errors.js';
import type { TowerInput } from '../../media/processor.js';
import { readProcessor } from '../../media/read-processor.js';
import { asKvantError } from '../core-errors.js';
import { type MadePicture, makePicture } from './make-picture.js';

export interface ToPictureWorker {
  readonly bytes: Uint8Array;
  readonly where: string;
  /** preprocessor_config.json, with what the request changes of it. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly tower: TowerInput;
}

export type FromPictureWorker =
  | { readonly type: 'begun' }
  | { readonly type: 'made'; readonly picture: MadePicture }
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

port.on('message', async ({ bytes, where, config, tower }: ToPictureWorker) => {
  const post = (message: FromPictureWorker): void => port.postMessage(message);
  post({ type: 'begun' });
  try {
    post({ type: 'made', picture: await makePicture(readProcessor(config, tower), bytes, where) });
  } catch (error) {
    post({ type: 'failed', error: serializeError(asKvantError(error)) });
  }
});
