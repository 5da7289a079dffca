/** The video processors of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: which frames are taken, and how large they become. */
import { KvantError } from '../errors.js';
import type { RgbImage } from './image.js';
import {
  type ImageGrid,
  type PixelValues,
  type TowerInput,
  type VideoProcessor,
  videoTables,
} from './processor.js';
import { CLIP_MEAN, CLIP_STD, HALF, type ProcessorFields } from './processor-fields.js';
import { enlarged, mergedPatches, roundEven, smartResize, WIDEST } from './qwen-processor.js';

export interface QwenVideoSettings extends PixelValues {
  /** Bounds hold for each frame (Qwen2-VL, 2.5-VL), or for all of a video together (Qwen3-VL and later). */
  readonly bounds: 'frame' | 'video';
  readonly minPixels: number;
  readonly maxPixels: number;
  readonly patchSize: number;
  readonly mergeSize: number;
  /** Frames that are taken of a second, and of a video at least and at most. */
  readonly fps: number;
  readonly minFrames: number;
  readonly maxFrames: number;
  /** Tokens that bound the pixels of a frame further; null: nothing does. */
  readonly capTokens: number | null;
}

/** Frames whose patches are one in the tower. */
const TOGETHER = 2;

interface Defaults {
  readonly bounds: QwenVideoSettings['bounds'];
  readonly mean: readonly number[];
  readonly std: readonly number[];
  readonly minPixels: number;
  readonly maxPixels: number;
  readonly capTokens: number;
}

function reader(defaults: Defaults): (fields: ProcessorFields, tower: TowerInput) => VideoProcessor {
  return (fields, tower) => {
    fields.agree('patch_size', fields.count('patch_size'), tower.patchSize);
    fields.agree('merge_size', fields.count('merge_size'), tower.mergeSize);
    fields.agree('temporal_patch_size', fields.count('temporal_patch_size'), TOGETHER);
    fields.mustBe('do_resize', true);
    if (fields.value('num_frames') !== undefined)
      throw fields.odd('num_frames', 'Frames are taken by `fps`; leave it out.');
    // Pixels, not edges, in spite of the names.
    const size = fields.within('size');
    const settings: QwenVideoSettings = {
      ...fields.pixels('bicubic', defaults.mean, defaults.std),
      bounds: defaults.bounds,
      minPixels: fields.count('min_pixels') ?? size.count('shortest_edge') ?? defaults.minPixels,
      maxPixels: fields.count('max_pixels') ?? size.count('longest_edge') ?? defaults.maxPixels,
      patchSize: tower.patchSize,
      mergeSize: tower.mergeSize,
      fps: fields.number('fps') ?? 2,
      minFrames: fields.count('min_frames') ?? 4,
      maxFrames: fields.count('max_frames') ?? 768,
      capTokens: fields.flag('cap_pixels_per_frame', false)
        ? (fields.count('max_video_tokens') ?? defaults.capTokens)
        : null,
    };
    if (settings.minPixels > settings.maxPixels)
      throw fields.odd('size', 'The least number of pixels is above the most.');
    return new QwenVideoProcessor(settings);
  };
}

/** Qwen2VLVideoProcessor. Errors: `invalid-preprocessor`. */
export const readQwen2VideoProcessor = reader({
  bounds: 'frame',
  mean: CLIP_MEAN,
  std: CLIP_STD,
  minPixels: 128 * 28 ** 2,
  maxPixels: 768 * 28 ** 2,
  capTokens: 128_000,
});

/** Qwen3VLVideoProcessor. Errors: `invalid-preprocessor`. */
export const readQwen3VideoProcessor = reader({
  bounds: 'video',
  mean: HALF,
  std: HALF,
  minPixels: 128 * 32 ** 2,
  maxPixels: 768 * 32 ** 2,
  capTokens: 768,
});

export class QwenVideoProcessor implements VideoProcessor {
  readonly settings: QwenVideoSettings;
  readonly #tables: readonly Float32Array[];

  constructor(settings: QwenVideoSettings) {
    this.settings = settings;
    this.#tables = videoTables(settings);
  }

  sample(frames: number, fps: number): readonly number[] {
    const { bounds, fps: wanted, minFrames, maxFrames } = this.settings;
    if (frames === 1) return [0];
    const even = (n: number): number => Math.floor(n / TOGETHER) * TOGETHER;
    if (bounds === 'frame') {
      const most = even(Math.min(maxFrames, frames));
      const count = even(Math.min(Math.max((frames / fps) * wanted, minFrames), most, frames));
      // As torch.arange makes them: its last one may be one more than was asked for.
      const step = frames / Math.max(count, TOGETHER);
      return Array.from({ length: Math.ceil(frames / step) }, (_, i) => Math.trunc(Math.fround(i * step)));
    }
    const asked = Math.trunc((frames / fps) * wanted);
    const count = Math.min(Math.max(asked, minFrames), maxFrames, frames);
    if (count === 1) return [0];
    const step = (frames - 1) / (count - 1);
    return Array.from({ length: count }, (_, i) => (i === count - 1 ? frames - 1 : roundEven(i * step)));
  }

  grid(frames: number, width: number, height: number): ImageGrid {
    const { patchSize, bounds } = this.settings;
    const size =
      bounds === 'frame' ? this.#byFrame(frames, width, height) : this.#byVideo(frames, width, height);
    return { rows: size.height / patchSize, cols: size.width / patchSize };
  }

  patches(frame: RgbImage, { rows, cols }: ImageGrid): Float32Array<ArrayBuffer> {
    const { patchSize } = this.settings;
    return mergedPatches(frame, cols * patchSize, rows * patchSize, this.settings, this.#tables);
  }

  #byFrame(frames: number, width: number, height: number) {
    const { patchSize, mergeSize, minPixels, maxPixels, capTokens } = this.settings;
    const factor = patchSize * mergeSize;
    let most = maxPixels;
    if (capTokens !== null) {
      const all = Math.trunc(capTokens * factor * factor * 0.9);
      const each = Math.floor((all * TOGETHER) / frames);
      most = Math.max(Math.min(most, each), Math.trunc(minPixels * 1.05));
    }
    return smartResize(width, height, factor, minPixels, most);
  }

  #byVideo(given: number, w: number, h: number) {
    const { patchSize, mergeSize, minPixels, maxPixels, capTokens } = this.settings;
    const factor = patchSize * mergeSize;
    // One alone is shown twice.
    const frames = Math.max(given, TOGETHER);
    let most = maxPixels;
    if (capTokens !== null) {
      const each = Math.min(capTokens * factor * factor, Math.floor(maxPixels / frames));
      most = Math.max(each, Math.trunc(minPixels * 1.05)) * frames;
    }
    if (!(w > 0 && h > 0)) return smartResize(w, h, factor, minPixels, most);
    const [width, height] = enlarged(w, h, factor);
    if (Math.max(height, width) / Math.min(height, width) > WIDEST)
      throw new KvantError(
        'invalid-video',
        `Frames of ${w} × ${h} pixels: the longer side may be ${WIDEST} times the shorter at most.`,
        { kind: 'invalid-request', fix: 'Crop the video, or pad it.' },
      );
    const whole = (side: number): number => roundEven(side / factor) * factor;
    const all = roundEven(frames / TOGETHER) * TOGETHER * whole(height) * whole(width);
    if (all > most) {
      const beta = Math.sqrt((frames * height * width) / most);
      const down = (side: number): number => Math.max(factor, Math.floor(side / beta / factor) * factor);
      return { width: down(width), height: down(height) };
    }
    if (all < minPixels) {
      const beta = Math.sqrt(minPixels / (frames * height * width));
      const up = (side: number): number => Math.ceil((side * beta) / factor) * factor;
      return { width: up(width), height: up(height) };
    }
    return { width: whole(width), height: whole(height) };
  }
}
