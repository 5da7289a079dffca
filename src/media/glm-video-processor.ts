/**
 * The video processors of GLM-4.1V and 4.5V, and of GLM-4.6V: sizes as Qwen3-VL has them, and which frames are taken.
 *
 * Source: transformers (models/glm4v, models/glm46v). Frames are even in number there, the last one twice.
 */
import type { RgbImage } from './image.js';
import type { ImageGrid, TowerInput, VideoProcessor } from './processor.js';
import { CLIP_MEAN, CLIP_STD, type ProcessorFields } from './processor-fields.js';
import { QwenVideoProcessor, type QwenVideoSettings } from './qwen-video-processor.js';

type Sample = (frames: number, fps: number, settings: GlmVideoSettings) => readonly number[];

export interface GlmVideoSettings extends QwenVideoSettings {
  readonly sampling: 'glm4v' | 'glm46v';
  /** Seconds, beyond which a longer video has no more frames (GLM-4.1V). */
  readonly maxDuration: number;
}

/** `count` numbers from `first` to `last`, evenly apart. */
function evenly(first: number, last: number, count: number): number[] {
  const step = (last - first) / (count - 1);
  return Array.from({ length: count }, (_, i) =>
    i > 0 && i === count - 1 ? last : i === 0 ? first : first + i * step,
  );
}

const rising = (indexes: readonly number[]): number[] => [...new Set(indexes)];

const sampleGlm4v: Sample = (frames, fps, { fps: wanted, maxDuration }) => {
  const duration = frames / fps;
  const upTo = (index: number): number => Math.min(frames - 1, Math.ceil(index));
  if (duration <= maxDuration) {
    const count = Math.max(Math.floor(duration * wanted), 1);
    return rising(Array.from({ length: count }, (_, i) => upTo((i * fps) / wanted)));
  }
  const count = Math.trunc(maxDuration * wanted);
  if (count >= frames) return Array.from({ length: frames }, (_, i) => i);
  return rising(evenly(0, duration, count).map((second) => upTo(second * fps)));
};

/** The longest video of which more frames are taken the longer it is, in seconds, and frames at most. */
const [LONGEST, MOST_FRAMES] = [2400, 640];

const sampleGlm46v: Sample = (frames, fps) => {
  const duration = frames / fps;
  const seen = Math.min(duration, LONGEST);
  const rate = 2 * (seen <= 30 ? 3 : seen <= 300 ? 1 : 0.5);
  const count = Math.max(1, Math.min(Math.trunc(seen * rate), MOST_FRAMES));
  const cut = (first: number, last: number): number[] => rising(evenly(first, last, count).map(Math.trunc));
  if (frames < count) return cut(0, frames - 1);
  const taken: number[] = [];
  const each = 1 / fps;
  let next = 0;
  for (let frame = 0; frame < frames; frame++)
    if (frame * each >= next) {
      next += 1 / rate;
      taken.push(frame);
      if (next >= Math.trunc(duration)) break;
    }
  if (taken.length === count) return taken;
  return taken.length < count ? cut(taken[0]!, taken.at(-1)!) : cut(0, frames - 1);
};

const SAMPLES = { glm4v: sampleGlm4v, glm46v: sampleGlm46v } as const;

function reader(sampling: GlmVideoSettings['sampling']) {
  return (fields: ProcessorFields, tower: TowerInput): VideoProcessor => {
    fields.agree('patch_size', fields.count('patch_size'), tower.patchSize);
    fields.agree('merge_size', fields.count('merge_size'), tower.mergeSize);
    fields.agree('temporal_patch_size', fields.count('temporal_patch_size'), 2);
    fields.mustBe('do_resize', true);
    const size = fields.within('size');
    const settings: GlmVideoSettings = {
      ...fields.pixels('bicubic', CLIP_MEAN, CLIP_STD),
      bounds: 'video',
      minPixels: size.count('shortest_edge') ?? 112 ** 2,
      maxPixels: size.count('longest_edge') ?? 2 * 28 ** 2 * 30_000,
      patchSize: tower.patchSize,
      mergeSize: tower.mergeSize,
      fps: fields.number('fps') ?? 2,
      minFrames: 1,
      maxFrames: MOST_FRAMES,
      capTokens: null,
      sampling,
      maxDuration: fields.number('max_duration') ?? 300,
    };
    if (settings.minPixels > settings.maxPixels)
      throw fields.odd('size', 'The least number of pixels is above the most.');
    return new GlmVideoProcessor(settings);
  };
}

/** Glm4vVideoProcessor. Errors: `invalid-preprocessor`. */
export const readGlm4vVideoProcessor = reader('glm4v');
/** Glm46VVideoProcessor. Errors: `invalid-preprocessor`. */
export const readGlm46vVideoProcessor = reader('glm46v');

class GlmVideoProcessor implements VideoProcessor {
  readonly settings: GlmVideoSettings;
  readonly #sizes: QwenVideoProcessor;

  constructor(settings: GlmVideoSettings) {
    this.settings = settings;
    this.#sizes = new QwenVideoProcessor(settings);
  }

  sample(frames: number, fps: number): readonly number[] {
    return SAMPLES[this.settings.sampling](frames, fps, this.settings);
  }

  grid(frames: number, width: number, height: number): ImageGrid {
    return this.#sizes.grid(frames + (frames % 2), width, height);
  }

  patches(frame: RgbImage, grid: ImageGrid): Float32Array<ArrayBuffer> {
    return this.#sizes.patches(frame, grid);
  }
}
