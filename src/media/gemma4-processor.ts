/** The processor of Gemma 4: pictures keep their ratio and become as large as their tokens allow, in whole tokens. */
import { KvantError } from '../errors.js';
import type { RgbImage } from './image.js';
import {
  type ImageGrid,
  type ImageProcessor,
  type PixelValues,
  type TowerInput,
  valueTables,
} from './processor.js';
import type { ProcessorFields } from './processor-fields.js';
import { wholePatches } from './whole-patches.js';

export interface Gemma4Settings extends PixelValues {
  /** Tokens of a picture, at most. */
  readonly tokens: number;
  readonly patchSize: number;
  /** Patches a side of a token. */
  readonly pool: number;
}

/** What the reference takes. */
const TOKENS: readonly number[] = [70, 140, 280, 560, 1120];

/** Gemma4ImageProcessor. Errors: `invalid-preprocessor`. */
export function readGemma4Processor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  fields.agree('patch_size', fields.count('patch_size'), tower.patchSize);
  fields.agree('pooling_kernel_size', fields.count('pooling_kernel_size'), tower.mergeSize);
  return readGemma4(fields, tower, false);
}

/** Gemma4UnifiedImageProcessor: patches are put together before the model sees them. Errors: `invalid-preprocessor`. */
export function readGemma4UnifiedProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  const side = (fields.count('patch_size') ?? 16) * (fields.count('pooling_kernel_size') ?? 3);
  fields.agree('patch_size', side, tower.patchSize);
  return readGemma4(fields, tower, true);
}

/** @param single the reference rescales in f32, as its processors of tensors do */
function readGemma4(fields: ProcessorFields, tower: TowerInput, single: boolean): ImageProcessor {
  fields.mustBe('do_resize', true);
  const tokens = fields.count('max_soft_tokens') ?? 280;
  if (!TOKENS.includes(tokens)) throw fields.odd('max_soft_tokens', `It takes ${TOKENS.join(', ')}.`);
  const values = fields.pixels('bicubic', [0, 0, 0], [1, 1, 1]);
  const normalizes = fields.flag('do_normalize', false);
  const inSingle = normalizes ? { fused: true as const } : { scale: Math.fround(values.scale) };
  return new Gemma4Processor({
    ...values,
    ...(!normalizes && { mean: [0, 0, 0], std: [1, 1, 1] }),
    ...(single && inSingle),
    tokens,
    patchSize: tower.patchSize,
    pool: tower.mergeSize,
  });
}

class Gemma4Processor implements ImageProcessor {
  readonly settings: Gemma4Settings;
  readonly #tables: readonly Float32Array[];

  constructor(settings: Gemma4Settings) {
    this.settings = settings;
    this.#tables = valueTables(settings);
  }

  grid(width: number, height: number): ImageGrid {
    const { tokens, patchSize, pool } = this.settings;
    const side = patchSize * pool;
    const factor = Math.sqrt((tokens * side ** 2) / (height * width));
    let rows = Math.floor((factor * height) / side);
    let cols = Math.floor((factor * width) / side);
    const none = !(width > 0 && height > 0) || (rows === 0 && cols === 0);
    // A strip is a token wide.
    if (rows === 0) [rows, cols] = [1, Math.min(Math.floor(width / height), tokens)];
    else if (cols === 0) [rows, cols] = [Math.min(Math.floor(height / width), tokens), 1];
    if (!none && rows * cols <= tokens) return { rows: rows * pool, cols: cols * pool };
    throw new KvantError('invalid-image', `An image of ${width} × ${height} pixels makes no whole token.`, {
      kind: 'invalid-request',
      fix: 'Crop the image, or pad it.',
    });
  }

  patches(image: RgbImage): Float32Array<ArrayBuffer> {
    return wholePatches(image, this.grid(image.width, image.height), this.settings, this.#tables);
  }
}
