import type { DeviceInfo } from '../../device/device.js';
import { kvFormatName } from '../../device/kv.js';
import type { KvPlan } from '../../kv/policy.js';
import type { ModelFacts } from '../../models/facts.js';

/**
 * All that the bytes of a block depend on besides its tokens, as text: blocks of engines with other identities never meet.
 * `weights` tells one checkpoint from another of the same architecture.
 */
export function prefixIdentity(
  weights: string,
  model: ModelFacts,
  quantize: number | undefined,
  { kind, precision, deterministic }: DeviceInfo,
  kv: KvPlan,
  calibration: string | null,
  blockTokens: number,
): string {
  return JSON.stringify({
    weights,
    model: model.identity,
    adapter: null,
    quantize: quantize ?? null,
    device: { kind, precision, deterministic },
    layers: kv.layers.map(({ key, value, valueDim }) =>
      valueDim === undefined ? `${kvFormatName(key)}/${kvFormatName(value)}` : `latent ${kvFormatName(key)}`,
    ),
    floatStart: kv.floatStart,
    ...(kv.floatHead === null ? {} : { floatHead: kv.floatHead }),
    ...(kv.floatTail === null ? {} : { floatTail: kv.floatTail }),
    ...(calibration === null ? {} : { calibration }),
    // A block holds the layers of its group.
    ...(kv.groups.length > 1 ? { groups: kv.groups } : {}),
    blockTokens,
  });
}
