/** The options that a model is loaded with whose tokens all see each other: a text is computed whole, in one step, and nothing of it is kept. */

import type { DeviceKind } from '../../device/device.js';
import { KvantError } from '../../errors.js';
import type { ModelFacts } from '../../models/facts.js';
import { engineLimits } from '../host-options.js';
import type { HostConfig } from '../messages.js';

/**
 * Steps have room for the longest text. Prefixes are not cached: what later tokens do to earlier ones is in them.
 * Errors: `invalid-option`, for a quantised cache.
 */
export function encoderConfig(
  config: HostConfig,
  { maxPositions }: ModelFacts,
  device: DeviceKind,
): HostConfig {
  const [option] = Object.keys(config.kv);
  if (option !== undefined)
    throw new KvantError(
      'invalid-option',
      `\`${option}\` is for models that keep a KV cache; an encoder keeps none.`,
      {
        kind: 'invalid-request',
        where: option,
        fix: 'Leave it out.',
      },
    );
  const stated = config.embedding?.maxTokens ?? Number.POSITIVE_INFINITY;
  const maxContext = config.maxContext ?? Math.min(maxPositions, stated);
  const { maxBatchTokens } = engineLimits(config, device, 0);
  return { ...config, maxContext, maxBatchTokens: Math.max(maxBatchTokens, maxContext), prefixCache: false };
}
