/** The engine's host on this thread, with a tiny checkpoint and a device of the caller's; prompts are ids. */
import type { Device } from '../../src/device/device.js';
import { type LoadedHost, loadHost } from '../../src/engine/host-load.js';
import type { HostConfig } from '../../src/engine/messages.js';
import type { ChoiceEvent } from '../../src/engine/sequence.js';

const MODEL = new URL('../fixtures/models/qwen3-tied', import.meta.url).pathname;

export function loadTiny(
  device: Device,
  options: Partial<HostConfig>,
  onEvents: (events: readonly ChoiceEvent[]) => void,
): Promise<LoadedHost> {
  return loadHost(
    {
      weights: { kind: 'folder', path: MODEL },
      device: 'auto',
      precision: undefined,
      deterministic: undefined,
      threads: undefined,
      cpuExperts: undefined,
      allowSoftwareGpu: undefined,
      autotune: undefined,
      autotuneMs: undefined,
      quantize: undefined,
      hfOverrides: undefined,
      embedding: null,
      kv: {},
      kvMemory: undefined,
      kvCalibration: undefined,
      prefixCache: false,
      prefixCacheBytes: undefined,
      prefixSnapshotBytes: undefined,
      prefixCacheDir: undefined,
      prefixCacheDiskBytes: undefined,
      imageCacheBytes: undefined,
      maxContext: 128,
      maxRows: 4,
      maxBatchTokens: 24,
      maxQueue: undefined,
      targetItlMs: undefined,
      blockTokens: undefined,
      resourceDebug: false,
      ...options,
    },
    Promise.resolve({ tokenTable: null, eosIds: null }),
    {
      onEvents,
      onFault: (error) => {
        throw error;
      },
      onProgress: () => {},
      onLog: () => {},
      makeDevice: async () => ({ device, reason: 'a test' }),
    },
  );
}
