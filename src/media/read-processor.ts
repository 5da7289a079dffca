/** preprocessor_config.json, read for the processors that kvant has. */
import { KvantError } from '../errors.js';
import { QwenProcessor, type QwenProcessorSettings } from './qwen-processor.js';
import type { ResizeFilter } from './resize-weights.js';

type Json = Readonly<Record<string, unknown>>;

/** PIL's numbers of filters. */
const FILTERS: Readonly<Record<number, ResizeFilter>> = { 1: 'lanczos', 2: 'bilinear', 3: 'bicubic' };

const CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073];
const CLIP_STD = [0.26862954, 0.26130258, 0.27577711];

/** Values of the reference's classes, for what a file leaves out. */
const CLASSES: Readonly<
  Record<string, Pick<QwenProcessorSettings, 'minPixels' | 'maxPixels' | 'patchSize' | 'mean' | 'std'>>
> = {
  Qwen2VLImageProcessor: {
    minPixels: 3136,
    maxPixels: 1_003_520,
    patchSize: 14,
    mean: CLIP_MEAN,
    std: CLIP_STD,
  },
};

/**
 * The processor that a model's preprocessor_config.json describes.
 *
 * @throws KvantError `invalid-preprocessor` for a processor that kvant does not have, or values that it cannot have
 */
export function readProcessor(config: Json): QwenProcessor {
  const name = String(config.image_processor_type ?? config.feature_extractor_type ?? '').replace(
    /(?:Fast|Pil)$/,
    '',
  );
  const base = CLASSES[name];
  if (base === undefined)
    throw invalid(
      'image_processor_type',
      `names "${name}", which kvant does not have`,
      `Take a model with ${Object.keys(CLASSES).join(' or ')}.`,
    );
  // Pixels, not edges, in spite of the names.
  const size = (typeof config.size === 'object' && config.size !== null ? config.size : {}) as Json;
  const minPixels = count(config, 'min_pixels') ?? count(size, 'shortest_edge') ?? count(size, 'min_pixels');
  const maxPixels = count(config, 'max_pixels') ?? count(size, 'longest_edge') ?? count(size, 'max_pixels');
  const normalise = config.do_normalize !== false;
  const filter = FILTERS[(count(config, 'resample') ?? 3) as number];
  if (filter === undefined)
    throw invalid(
      'resample',
      `is ${config.resample}`,
      'bilinear (2), bicubic (3) and lanczos (1) are known.',
    );
  return new QwenProcessor({
    minPixels: minPixels ?? base.minPixels,
    maxPixels: maxPixels ?? base.maxPixels,
    patchSize: count(config, 'patch_size') ?? base.patchSize,
    mergeSize: count(config, 'merge_size') ?? 2,
    filter,
    resize: config.do_resize !== false,
    scale: config.do_rescale === false ? 1 : (number(config, 'rescale_factor') ?? 1 / 255),
    mean: normalise ? (three(config, 'image_mean') ?? base.mean) : [0, 0, 0],
    std: normalise ? (three(config, 'image_std') ?? base.std) : [1, 1, 1],
  });
}

function number(config: Json, name: string): number | undefined {
  const value = config[name];
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0)
    throw invalid(name, `is ${JSON.stringify(value)}`, 'It takes a number above 0.');
  return value;
}

function count(config: Json, name: string): number | undefined {
  const value = number(config, name);
  if (value !== undefined && !Number.isSafeInteger(value))
    throw invalid(name, `is ${value}`, 'It takes a whole number.');
  return value;
}

function three(config: Json, name: string): readonly number[] | undefined {
  const value = config[name];
  if (value === undefined || value === null) return undefined;
  if (Array.isArray(value) && value.length === 3 && value.every((v) => Number.isFinite(v)))
    return value as number[];
  throw invalid(name, `is ${JSON.stringify(value)}`, 'It takes three numbers.');
}

function invalid(where: string, what: string, fix: string): KvantError {
  return new KvantError('invalid-preprocessor', `preprocessor_config.json: ${where} ${what}.`, {
    kind: 'model',
    where,
    fix,
  });
}
