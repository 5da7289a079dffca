/** Pictures that a command line or a chat names by their files. */
import { readFileSync, statSync } from 'node:fs';
import { dataUrlBytes } from '../engine/vision/picture-bytes.js';
import { KvantError } from '../errors.js';
import { checkImage, checkImageBytes } from '../media/decode.js';

export interface NamedPicture {
  /** As it was named. */
  readonly name: string;
  /** The bytes of a file; a URL as it is. */
  readonly image: Uint8Array | string;
}

/**
 * A picture as far as its header tells, before a model is loaded or asked. A URL with `http:`, `https:` or `file:` is for the engine to judge.
 *
 * @throws KvantError `image-unreadable`, those of {@link checkImage} and {@link dataUrlBytes}; `where` is the name
 */
export function readPicture(name: string): NamedPicture {
  if (/^data:/i.test(name)) {
    checkImage(dataUrlBytes(name, 'The data URL'), {}, 'The data URL');
    return { name: 'The data URL', image: name };
  }
  if (/^[a-z][a-z0-9+.-]+:/i.test(name)) return { name, image: name };
  const found = statSync(name, { throwIfNoEntry: false });
  if (found?.isFile() !== true)
    throw unreadable(name, found === undefined ? `There is no file ${name}.` : `${name} is no plain file.`);
  checkImageBytes(found.size, name);
  let image: Uint8Array;
  try {
    image = readFileSync(name);
  } catch (cause) {
    throw unreadable(name, `${name} cannot be read (${(cause as NodeJS.ErrnoException).code}).`, cause);
  }
  checkImage(image, {}, name);
  return { name, image };
}

function unreadable(name: string, message: string, cause?: unknown): KvantError {
  const fix = 'Give the path of a picture.';
  return new KvantError('image-unreadable', message, { kind: 'invalid-request', where: name, fix, cause });
}

/** The content of a question: a text, and pictures before it. */
export function withPictures(pictures: readonly NamedPicture[], text: string): unknown {
  if (pictures.length === 0) return text;
  return [...pictures.map(({ image }) => ({ type: 'image', image })), { type: 'text', text }];
}

/** An error about a picture of {@link withPictures}, as the engine tells it, in the name of the picture's file; other errors as they are. */
export function inFileNames(error: unknown, pictures: readonly NamedPicture[]): unknown {
  if (!(error instanceof KvantError) || error.where === undefined) return error;
  const at = /^messages\[\d+\]\.content\[(\d+)\](?:\.image)?$/.exec(error.where)?.[1];
  const name = at === undefined ? undefined : pictures[Number(at)]?.name;
  if (name === undefined) return error;
  const { code, message, kind, fix, where } = error;
  return new KvantError(
    code,
    message.replace(where!, () => name),
    {
      kind,
      where: name,
      ...(fix === undefined ? {} : { fix }),
      cause: error,
    },
  );
}
