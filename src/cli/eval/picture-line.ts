/** Lines of question sets with pictures: `images`, each a PNG in base64, and a `question` about them. */
import { dataUrlBytes } from '../../engine/vision/picture-bytes.js';
import { KvantError } from '../../errors.js';
import { checkImage } from '../../media/decode.js';

type Line = Readonly<Record<string, unknown>>;

/** A line with `images` and a `question` is a conversation of one message; others are given back as they are. */
export function withPictures(line: Line): Line {
  if (!hasImages(line)) return line;
  const pictures = (line.images as readonly { readonly png_base64: string }[]).map((image) => ({
    type: 'image_url',
    image_url: { url: urlOf(image.png_base64) },
  }));
  const content = [...pictures, { type: 'text', text: line.question }];
  return { ...line, messages: [{ role: 'user', content }] };
}

/**
 * Looks at the headers of a line's pictures, before a model is loaded.
 *
 * @param place file and line, for errors: a picture is `set.jsonl:3 images[0].png_base64`
 * @throws KvantError `invalid-question-set`, and what the engine says of a picture
 */
export function checkPictures(line: Line, place: string): void {
  if (!hasImages(line)) return;
  const { images, question, answer, expected } = line;
  if (typeof question !== 'string') throw invalid(place, 'has images and no question');
  if (typeof answer !== 'string' && expected === undefined) throw invalid(place, 'has images and no answer');
  if (!Array.isArray(images) || images.length === 0)
    throw invalid(`${place} images`, 'is no list of pictures, or an empty one');
  images.forEach((image: unknown, i) => {
    const where = `${place} images[${i}].png_base64`;
    const base64 = (image as { readonly png_base64?: unknown } | null)?.png_base64;
    if (typeof base64 !== 'string' || base64 === '') throw invalid(where, 'is no PNG in base64');
    checkImage(bytesOf(base64, where), {}, where);
  });
}

/** What the engine says of a question, in the place that the question has in its file. */
export function atPlace(
  error: unknown,
  { place, pictures }: { readonly place: string; readonly pictures: boolean },
): unknown {
  if (!(error instanceof KvantError)) return error;
  const { code, message, kind, fix } = error;
  const image = pictures ? PART.exec(error.where ?? '')?.[1] : undefined;
  const where = image === undefined ? place : `${place} images[${image}].png_base64`;
  const named = image !== undefined && message.includes(error.where!);
  const text = named ? message.replace(error.where!, () => where) : `${place}: ${message}`;
  return new KvantError(code, text, { kind, where, ...(fix === undefined ? {} : { fix }), cause: error });
}

/** Errors: `invalid-image-url`. */
function bytesOf(base64: string, where: string): Uint8Array {
  try {
    return dataUrlBytes(urlOf(base64), where);
  } catch (error) {
    if (!(error instanceof KvantError)) throw error;
    const { code, message, kind } = error;
    const fix = 'Write the bytes of the file in base64: no line ends, and no “data:” before them.';
    throw new KvantError(code, message, { kind, where, fix, cause: error });
  }
}

const PART = /^messages\[0\]\.content\[(\d+)\](?:\.image_url(?:\.url)?)?$/;

/** Null says nothing. */
export const hasImages = (line: Line | null): line is Line =>
  typeof line === 'object' && line !== null && line.images !== undefined && line.images !== null;

const urlOf = (base64: string): string => `data:image/png;base64,${base64}`;

function invalid(where: string, what: string): KvantError {
  return new KvantError('invalid-question-set', `${where} ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: 'Write {"images": [{"png_base64": "…"}], "question": "…", "answer": "…"}; a line without pictures has no images.',
  });
}
