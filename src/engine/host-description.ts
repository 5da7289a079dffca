/** What an engine's thread tells of itself once it has loaded: model, device, caches, and what they take of memory. */

import type { Device } from '../device/device.js';
import { kvBlockBytes } from '../device/kv.js';
import { groupLayers, type KvPlan } from '../kv/policy.js';
import type { KvCacheSizing } from '../kv/sizing.js';
import type { Model } from '../models/load.js';
import type { ChosenDevice } from './device-choice.js';
import { DEFAULT_BLOCK_TOKENS } from './host-options.js';
import { memoryUse } from './memory-use.js';
import type { HostConfig, HostInfo, HostText } from './messages.js';
import type { EngineLimits, MemoryUse, TuningInfo } from './types.js';

export function memoryTaken(
  model: Model,
  device: Device,
  kv: KvPlan,
  sizing: KvCacheSizing,
  blockTokens: number,
): MemoryUse {
  const caches = kv.groups.map(
    (of, group) => sizing.blocks[group]! * kvBlockBytes(groupLayers(kv, of), blockTokens),
  );
  const { bytes, hostBytes } = device.stats();
  return memoryUse({
    weights: model.parameterBytes,
    total: bytes,
    ...(hostBytes === undefined ? {} : { host: hostBytes }),
    caches,
    floatStart: sizing.bytes - caches.reduce((sum, bytes) => sum + bytes, 0),
    deviceBytes: device.info.memoryBytes,
  });
}

export function describeHost(
  config: HostConfig,
  eosIds: HostText['eosIds'],
  model: Model,
  chosen: ChosenDevice,
  kv: KvPlan,
  sizing: KvCacheSizing,
  limits: EngineLimits,
  tuning: TuningInfo | null,
  calibration: string | null,
): Omit<HostInfo, 'contextRaise' | 'memory' | 'hidden' | 'pooling' | 'writes'> {
  const { architecture, layers, hiddenSize, vocabSize, maxPositions, eosTokenIds } = model.facts;
  return {
    architecture,
    layers,
    hiddenSize,
    vocabSize,
    modelContext: maxPositions,
    weightBytes: model.parameterBytes,
    eosIds: eosIds ?? eosTokenIds,
    device: chosen.device.info,
    deviceReason: chosen.reason,
    tuning,
    kv: {
      layers: kv.info,
      calibration,
      blockTokens: config.blockTokens ?? DEFAULT_BLOCK_TOKENS,
      blocks: sizing.blocks.reduce((sum, blocks) => sum + blocks, 0),
      groups: kv.groups.map((of, group) => {
        const bytes = kvBlockBytes(groupLayers(kv, of), 1);
        return {
          window: of.window,
          layers: of.layers.map((place) => kv.info[place]!.layer),
          blocks: sizing.blocks[group]!,
          bytesPerToken: of.state ? 0 : bytes,
          stateBytes: of.state ? bytes : 0,
          ...(of.head === undefined ? {} : { head: of.head }),
          ...(of.tail ? { tail: true } : {}),
        };
      }),
      bytes: sizing.bytes,
      bytesPerToken: kvBlockBytes(
        kv.layers.filter(({ state }) => state === undefined),
        1,
      ),
      floatStart: kv.floatStart === null ? null : { ...kv.floatStart, blocks: sizing.floatStartBlocks },
    },
    limits,
    vision: model.vision === null ? null : { imageToken: model.vision.imageToken },
  };
}
