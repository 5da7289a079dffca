/** What a model needs whose tokens of a picture see each other: a step has room for a whole picture. */

import type { ModelDefinition } from '../../models/family.js';
import { engineLimits } from '../host-options.js';
import type { HostConfig } from '../messages.js';
import { slides } from '../scheduling/blocks.js';
import type { SchedulerConfig } from '../scheduling/step-plan.js';
import type { DeviceKind, LogEntry } from '../types.js';

/**
 * The model without what sees, where sequences start as floats: they are converted at one token, whose neighbours may be of one
 * picture.
 */
export function withoutCutPictures(
  definition: ModelDefinition,
  floatStart: boolean,
  onLog: (entry: LogEntry) => void,
): ModelDefinition {
  if (!floatStart || !definition.vision?.ahead) return definition;
  onLog({
    level: 'warn',
    message:
      'pictures are refused: tokens of a picture see each other, and sequences that start as floats are cut',
    fields: { option: 'quantizedKvStart', fix: 'Leave the option out to send pictures.' },
  });
  return definition.withoutVision();
}

/** The options with steps in which two pictures fit beside all rows: newcomers have no more than half of a step. */
export function withRoomForPictures(
  config: HostConfig,
  { vision }: Pick<ModelDefinition, 'vision'>,
  device: DeviceKind,
  onLog: (entry: LogEntry) => void,
): HostConfig {
  if (!vision?.ahead) return config;
  const { maxBatchTokens: tokens, maxRows } = engineLimits(config, device, 0);
  const least = 2 * vision.ahead.most + maxRows;
  if (tokens >= least) return config;
  if (config.maxBatchTokens !== undefined)
    onLog({
      level: 'info',
      message: 'steps are larger than asked for: all tokens of a picture are computed in one',
      fields: { maxBatchTokens: least, asked: tokens },
    });
  return { ...config, maxBatchTokens: least };
}

/**
 * Tokens of one picture that a step has room for: what the model has of one at most, or fewer where a row may not hold so many
 * beside the window of a group that slides. Null where tokens do not see what comes behind them.
 */
export function roomForPicture(
  { vision }: Pick<ModelDefinition, 'vision'>,
  { groups, blockTokens }: Pick<SchedulerConfig, 'groups' | 'blockTokens'>,
): number | null {
  if (!vision?.ahead) return null;
  // The window may begin with the last token of a block.
  const beside = groups
    .filter(slides)
    .map(({ window, rowBlocks }) => (rowBlocks - 1) * blockTokens - window + 2);
  return Math.min(vision.ahead.most, ...beside);
}
