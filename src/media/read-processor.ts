/** preprocessor_config.json, read for the processors that kvant has. */

import { readLlavaNextProcessor, readOnevisionProcessor } from './anyres-processor.js';
import { readGemma4Processor, readGemma4UnifiedProcessor } from './gemma4-processor.js';
import { readGlm4vVideoProcessor, readGlm46vVideoProcessor } from './glm-video-processor.js';
import { readLfm2VlProcessor } from './lfm2-vl-processor.js';
import { readMuseGlimmerProcessor } from './muse-glimmer-processor.js';
import { readMuseGlimmerVideoProcessor } from './muse-glimmer-video-processor.js';
import { readPixtralProcessor } from './pixtral-processor.js';
import type { ImageProcessor, TowerInput, VideoProcessor } from './processor.js';
import { invalidProcessor, ProcessorFields, type ProcessorJson } from './processor-fields.js';
import { readGlm4vProcessor, readQwenProcessor } from './qwen-processor.js';
import { readQwen2VideoProcessor, readQwen3VideoProcessor } from './qwen-video-processor.js';
import { readClipProcessor, readGemma3Processor, readSiglipProcessor } from './square-processor.js';
import { readIdefics3Processor, readInternVlChatProcessor, readInternVlProcessor } from './tile-processor.js';

type ReadProcessor = (fields: ProcessorFields, tower: TowerInput) => ImageProcessor;

/** By the reference's classes. A processor is a page of its own, and a line here. */
const PROCESSORS: Readonly<Record<string, ReadProcessor>> = {
  Qwen2VLImageProcessor: readQwenProcessor,
  Glm4vImageProcessor: readGlm4vProcessor,
  Glm46VImageProcessor: readGlm4vProcessor,
  Idefics3ImageProcessor: readIdefics3Processor,
  SmolVLMImageProcessor: readIdefics3Processor,
  GotOcr2ImageProcessor: readInternVlProcessor,
  InternVLImageProcessor: readInternVlChatProcessor,
  CLIPImageProcessor: readClipProcessor,
  LlavaNextImageProcessor: readLlavaNextProcessor,
  LlavaOnevisionImageProcessor: readOnevisionProcessor,
  SiglipImageProcessor: readSiglipProcessor,
  Gemma3ImageProcessor: readGemma3Processor,
  Gemma4ImageProcessor: readGemma4Processor,
  Gemma4UnifiedImageProcessor: readGemma4UnifiedProcessor,
  PixtralImageProcessor: readPixtralProcessor,
  Lfm2VlImageProcessor: readLfm2VlProcessor,
  MuseGlimmerImageProcessor: readMuseGlimmerProcessor,
};

/**
 * The processor that a model's preprocessor_config.json describes.
 *
 * @throws KvantError `invalid-preprocessor` for a processor that kvant does not have, or values that it cannot have
 */
export function readProcessor(config: ProcessorJson, tower: TowerInput): ImageProcessor {
  const stated = String(config.image_processor_type ?? config.feature_extractor_type ?? '');
  const name = stated.replace(/(?:Fast|Pil)$/, '').replace(/FeatureExtractor$/, 'ImageProcessor');
  const read = PROCESSORS[name];
  if (read !== undefined) return read(new ProcessorFields(config), tower);
  throw invalidProcessor(
    'image_processor_type',
    `names "${name}", which kvant does not have`,
    `Take a model with one of: ${Object.keys(PROCESSORS).join(', ')}.`,
  );
}

type ReadVideoProcessor = (fields: ProcessorFields, tower: TowerInput) => VideoProcessor;

const VIDEO_PROCESSORS = {
  Qwen2VLVideoProcessor: readQwen2VideoProcessor,
  Qwen3VLVideoProcessor: readQwen3VideoProcessor,
  Glm4vVideoProcessor: readGlm4vVideoProcessor,
  Glm46VVideoProcessor: readGlm46vVideoProcessor,
  MuseGlimmerVideoProcessor: readMuseGlimmerVideoProcessor,
} as const satisfies Readonly<Record<string, ReadVideoProcessor>>;

/** Where processors of videos are described. */
export const VIDEO_FILE = 'video_preprocessor_config.json';

export type VideoProcessorName = keyof typeof VIDEO_PROCESSORS;

/**
 * Which processor a model's video_preprocessor_config.json names.
 *
 * @param known those that the model may have; the first is meant where the file names none
 * @throws KvantError `invalid-preprocessor` for another
 */
export function videoProcessorName(
  config: ProcessorJson,
  known: readonly [VideoProcessorName, ...VideoProcessorName[]],
): VideoProcessorName {
  const stated = config.video_processor_type ?? known[0];
  const found = known.find((name) => name === stated);
  if (found !== undefined) return found;
  throw invalidProcessor(
    'video_processor_type',
    `names ${JSON.stringify(stated)}; the model's config.json wants ${known.join(' or ')}`,
    'Fetch the model again: the two files are of different models.',
    VIDEO_FILE,
  );
}

/**
 * The processor of videos that a model's video_preprocessor_config.json describes.
 *
 * @throws KvantError `invalid-preprocessor`
 */
export function readVideoProcessor(
  config: ProcessorJson,
  name: VideoProcessorName,
  tower: TowerInput,
): VideoProcessor {
  return VIDEO_PROCESSORS[videoProcessorName(config, [name])](new ProcessorFields(config, VIDEO_FILE), tower);
}
