/** The bytes of a picture, from wherever a request says that it is, as far as the engine allows that. */

import { open, realpath, stat } from 'node:fs/promises';
import { isAbsolute, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KvantError } from '../../errors.js';
import { MAX_IMAGE_BYTES } from '../../media/decode.js';
import { readImageHeader } from '../../media/image-header.js';
import { shown } from '../../printable.js';
import type { MediaKind, PictureAccess } from './picture-access.js';
import type { FoundPicture } from './picture-parts.js';

/** What labels of data URLs say that the bytes are; undefined where they leave it open. */
const LABELS: Readonly<Record<string, string | undefined>> = {
  'image/jpeg': 'jpeg',
  'image/jpg': 'jpeg',
  'image/pjpeg': 'jpeg',
  'image/png': 'png',
  'image/x-png': 'png',
  'image/webp': 'webp',
  'image/gif': 'gif',
  'image/*': undefined,
  'application/octet-stream': undefined,
  '': undefined,
};

/** What always helps. */
const DATA: Readonly<Record<MediaKind, string>> = {
  picture: 'Send the picture as data:image/png;base64,… with the file’s bytes.',
  video: 'Send the video as data:image/gif;base64,… with the file’s bytes.',
};

/**
 * @throws KvantError `invalid-image-url`, `invalid-image`, `unsupported-image`, `image-too-large`, `image-url-not-allowed`, `image-unreadable`; those of `fetch`
 */
export async function pictureBytes(
  { source, where }: FoundPicture,
  access: PictureAccess,
  signal: AbortSignal,
  what: MediaKind = 'picture',
): Promise<Uint8Array> {
  switch (source.kind) {
    case 'bytes':
      if (source.bytes.byteLength > 0) return source.bytes;
      throw new KvantError('invalid-image', `${where} holds no bytes.`, {
        kind: 'invalid-request',
        where,
        fix: 'Give the bytes of a file. An ArrayBuffer that was transferred has none left.',
      });
    case 'path':
      return readOwn(source.path, where);
    case 'url': {
      const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(source.url.trim())?.[1]?.toLowerCase();
      if (scheme === 'data') return dataUrlBytes(source.url.trim(), where, what);
      if (scheme === 'file') return readAllowed(source.url, where, access.localPath, what);
      if (scheme === 'http' || scheme === 'https') {
        if (access.fetch !== undefined) return access.fetch(source.url.trim(), where, signal);
        throw notAllowed(where, `is on the network, from which this server fetches no ${what}s`, DATA[what]);
      }
      throw new KvantError(
        'invalid-image-url',
        `${where} is no URL of a ${what}${scheme === undefined ? '' : ` (${scheme}: is not taken)`}.`,
        { kind: 'invalid-request', where, fix: DATA[what] },
      );
    }
  }
}

/**
 * Strict base64, in one piece, of the format that its label names. The label and the size are looked at before anything is decoded.
 *
 * @throws KvantError `invalid-image-url` (400), `unsupported-image` for a label of no picture that is read (415), `image-too-large` (413)
 */
export function dataUrlBytes(url: string, where: string, what: MediaKind = 'picture'): Uint8Array {
  const comma = url.indexOf(',');
  const head = url.slice(0, comma === -1 ? undefined : comma);
  const type = what === 'video' ? 'image/gif' : 'image/png';
  const send = `Send data:${type};base64, and behind it the file’s bytes in base64.`;
  const refuse = (why: string, fix = send): never => {
    throw new KvantError('invalid-image-url', `${where} ${why}.`, { kind: 'invalid-request', where, fix });
  };
  if (comma === -1 || !/;\s*base64\s*$/i.test(head)) refuse('is a data URL without base64');
  const label = head.slice('data:'.length).replace(/;.*/s, '').trim().toLowerCase();
  if (!Object.hasOwn(LABELS, label) && !(what === 'video' && label.startsWith('video/')))
    throw new KvantError('unsupported-image', `${where} is labelled ${shown(label)}.`, {
      kind: 'unsupported',
      where,
      fix:
        what === 'video'
          ? 'Send an animated GIF or WebP, labelled image/gif or image/webp.'
          : 'Send JPEG, PNG, WebP or GIF, labelled image/jpeg, image/png, image/webp or image/gif.',
    });
  const length = url.length - comma - 1;
  if (length * 0.75 > MAX_IMAGE_BYTES + 3)
    throw new KvantError(
      'image-too-large',
      `${where} has some ${Math.floor(length * 0.75)} bytes; ${MAX_IMAGE_BYTES} are the most.`,
      { kind: 'invalid-request', where, fix: 'Send a smaller file.' },
    );
  const text = url.slice(comma + 1);
  if (text === '') refuse('holds no bytes');
  if (!isBase64(text)) {
    const [, why, fix] = ALMOST.find(([pattern]) => pattern.test(text.slice(0, LOOKED_AT))) ?? [];
    refuse(why ?? 'is not base64: it holds characters that base64 has not, or is cut off', fix);
  }
  const bytes = Buffer.from(text, 'base64');
  checkLabel(label, bytes, where);
  return bytes;
}

/** Characters that show what a text is: a pattern of many would take a deep stack. */
const LOOKED_AT = 4096;
/** What tools write in place of base64 in one piece. */
const ALMOST: readonly (readonly [pattern: RegExp, why: string, fix: string])[] = [
  [
    /^(?=.*\s)[A-Za-z0-9+/=\s]*$/s,
    'is base64 with spaces or line ends in it',
    'Leave them out: base64 -w0 FILE.',
  ],
  [/^(?=.*[_-])[A-Za-z0-9_=-]*$/, 'is base64url', 'Write + in place of - and / in place of _.'],
  [/^(?=.*%)(?:[A-Za-z0-9+/=]|%[0-9A-Fa-f]{2})*$/, 'is percent-encoded', 'Leave +, / and = as they are.'],
];

/** With as many signs of padding as fill its last four characters up, or with none. */
function isBase64(text: string): boolean {
  const length = text.indexOf('=') === -1 ? text.length : text.indexOf('=');
  const padded = text.length === length || text.length % 4 === 0;
  return padded && length % 4 !== 1 && /^[A-Za-z0-9+/]+={0,2}$/.test(text);
}

/** What is no picture at all is told as that, by whoever reads it. */
function checkLabel(label: string, bytes: Uint8Array, where: string): void {
  const said = LABELS[label];
  const header = readImageHeader(bytes);
  if (said === undefined || header === null || header === 'broken' || header.format === said) return;
  throw new KvantError(
    'invalid-image-url',
    `${where} is labelled ${label}; its bytes are ${header.format.toUpperCase()}.`,
    {
      kind: 'invalid-request',
      where,
      fix: `Begin the URL with data:image/${header.format};base64, or with data:;base64, where the format is not known.`,
    },
  );
}

async function readOwn(path: string, where: string): Promise<Uint8Array> {
  try {
    return await readLimited(path.startsWith('file:') ? fileURLToPath(path) : path, where);
  } catch (cause) {
    throw unreadable(where, cause);
  }
}

async function readAllowed(
  url: string,
  where: string,
  allowed: string | undefined,
  what: MediaKind,
): Promise<Uint8Array> {
  const outside = (): KvantError => notAllowed(where, 'is a file that this server does not read', DATA[what]);
  if (allowed === undefined) throw outside();
  let real: string;
  try {
    const root = await realpath(allowed);
    // Links are followed first: what counts is where the file lies.
    real = await realpath(fileURLToPath(url));
    const below = relative(root, real);
    // A name may begin with two dots; a way out of the folder is the two dots alone.
    const [first] = below.split(sep);
    if (first === '' || first === '..' || isAbsolute(below)) throw outside();
  } catch (cause) {
    // Whether something outside exists is nobody's business.
    throw cause instanceof KvantError ? cause : outside();
  }
  try {
    return await readLimited(real, where);
  } catch (cause) {
    throw unreadable(where, cause);
  }
}

/** Of a plain file: a pipe or a device might never end. */
async function readLimited(path: string, where: string): Promise<Uint8Array> {
  const found = await stat(path);
  if (!found.isFile())
    throw new KvantError('image-unreadable', `${where} is no plain file.`, {
      kind: 'invalid-request',
      where,
      fix: 'Give the path of a picture.',
    });
  if (found.size > MAX_IMAGE_BYTES)
    throw new KvantError(
      'image-too-large',
      `${where} has ${found.size} bytes; ${MAX_IMAGE_BYTES} are the most.`,
      { kind: 'invalid-request', where, fix: 'Take a smaller file.' },
    );
  // So many and no more: files that the system makes up, as those of /proc, are larger than they say, or never end.
  const bytes = Buffer.alloc(found.size);
  const file = await open(path);
  try {
    let at = 0;
    for (;;) {
      const { bytesRead } = await file.read(bytes, at, bytes.length - at, at);
      if (bytesRead === 0) return bytes.subarray(0, at);
      at += bytesRead;
    }
  } finally {
    await file.close();
  }
}

function unreadable(where: string, cause: unknown): KvantError {
  if (cause instanceof KvantError) return cause;
  const { code = 'unknown' } = cause as { code?: string };
  return new KvantError('image-unreadable', `${where} cannot be read (${code}).`, {
    kind: 'invalid-request',
    where,
    fix: 'Give the path of a file that is there.',
    cause,
  });
}

function notAllowed(where: string, what: string, fix: string): KvantError {
  return new KvantError('image-url-not-allowed', `${where} ${what}.`, {
    kind: 'invalid-request',
    where,
    fix,
  });
}
