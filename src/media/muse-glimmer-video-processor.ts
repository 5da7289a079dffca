/** The video processor of Muse Glimmer: frames as its pictures are made, with fewer tokens each. */
import type { RgbImage } from './image.js';
import { type MuseGlimmerSettings, tokenGrid } from './muse-glimmer-processor.js';
import {
  checkPixels,
  type ImageGrid,
  type TowerInput,
  type VideoProcessor,
  valueTables,
} from './processor.js';
import { HALF, type ProcessorFields } from './processor-fields.js';
import { wholePatches } from './whole-patches.js';

export interface MuseGlimmerVideoSettings extends MuseGlimmerSettings {
  /** Frames that are taken of a second, and of a video at most. */
  readonly fps: number;
  readonly maxFrames: number;
}

/** Frames whose patches are one in the tower. */
const TOGETHER = 2;
const TIMES = 'Time: {timestamp:.1f}s';

/** MuseGlimmerVideoProcessor. Errors: `invalid-preprocessor`. */
export function readMuseGlimmerVideoProcessor(fields: ProcessorFields, tower: TowerInput): VideoProcessor {
  fields.mustBe('do_resize', true);
  fields.agree('patch_size', fields.count('patch_size'), tower.patchSize);
  fields.agree('merge_size', fields.count('merge_size'), tower.mergeSize);
  fields.agree('temporal_patch_size', fields.count('temporal_patch_size'), TOGETHER);
  const times = fields.value('frame_timestamp_format') ?? TIMES;
  if (times !== TIMES) throw fields.odd('frame_timestamp_format', `Only "${TIMES}" is known.`);
  return new MuseGlimmerVideoProcessor({
    ...fields.pixels('lanczos', HALF, HALF),
    ...(fields.flag('do_normalize', true) && { fused: true }),
    mostTokens: fields.count('max_video_frame_tokens') ?? 144,
    patchSize: tower.patchSize,
    mergeSize: tower.mergeSize,
    fps: fields.number('fps') ?? 2,
    maxFrames: fields.count('num_frames') ?? 96,
  });
}

class MuseGlimmerVideoProcessor implements VideoProcessor {
  readonly settings: MuseGlimmerVideoSettings;
  readonly #tables: readonly Float32Array[];

  constructor(settings: MuseGlimmerVideoSettings) {
    this.settings = settings;
    this.#tables = valueTables(settings);
  }

  sample(frames: number, fps: number): readonly number[] {
    const { fps: wanted, maxFrames } = this.settings;
    const asked = Math.min(Math.trunc((frames * wanted) / fps), maxFrames, frames);
    const count = Math.min(Math.max(TOGETHER, Math.floor(asked / TOGETHER) * TOGETHER), frames);
    const last = frames - 1;
    const step = count === 1 ? 0 : Math.fround(last / (count - 1));
    // In f32, and from both ends, as torch.linspace has it.
    const part = (i: number): number => Math.fround(step * i);
    return Array.from({ length: count }, (_, i) =>
      Math.trunc(i < Math.trunc(count / 2) ? part(i) : Math.fround(last - part(count - 1 - i))),
    );
  }

  grid(_frames: number, width: number, height: number): ImageGrid {
    checkPixels(width, height);
    const { patchSize, mergeSize, mostTokens } = this.settings;
    const [rows, cols] = tokenGrid(width, height, patchSize * mergeSize, mostTokens);
    return { rows: rows * mergeSize, cols: cols * mergeSize };
  }

  patches(frame: RgbImage, grid: ImageGrid): Float32Array<ArrayBuffer> {
    return wholePatches(frame, grid, this.settings, this.#tables);
  }
}
