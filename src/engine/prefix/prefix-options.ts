/** What the core is told of the prefix cache: whose blocks these are, how many may stay, and where else they are kept. */

import { readFile } from 'node:fs/promises';
import type { Device } from '../../device/device.js';
import type { KvCaches, KvPool } from '../../device/kv.js';
import type { DiskFault } from '../../kv/disk/disk-tier.js';
import { groupPools } from '../../kv/head-pool.js';
import type { KvPlan } from '../../kv/policy.js';
import { prefixBlockBytes, prefixLimits } from '../../kv/prefix/prefix-limits.js';
import type { ModelFacts } from '../../models/facts.js';
import { DEFAULT_DISK_BYTES } from '../host-options.js';
import type { HostConfig } from '../messages.js';
import type { LogEntry } from '../types.js';
import { prefixIdentity } from './prefix-identity.js';
import type { PrefixOptions } from './prefixes.js';

/** Errors: `prefix-cache-dir-unusable`. */
export async function openPrefixes(
  config: HostConfig,
  model: ModelFacts,
  device: Device,
  kv: KvPlan,
  caches: KvCaches,
  calibration: string | null,
  onLog: (entry: LogEntry) => void,
): Promise<PrefixOptions> {
  const { weights, quantize, prefixCacheDir } = config;
  const pools = groupPools(caches);
  const { blockTokens } = pools[0]!.spec;
  const identify = (of: string): string =>
    prefixIdentity(of, model, quantize, device.info, kv, calibration, blockTokens);
  // Parts of blocks of the first group are copied, and states.
  await Promise.all(
    pools.map((pool, group) => (group === 0 || kv.groups[group]!.state ? pool.prepare('copy') : null)),
  );
  const limits = limitsOf(config, kv, pools);
  if (prefixCacheDir === undefined)
    return { identity: identify(weights.kind === 'folder' ? weights.path : weights.name), ...limits };

  // Most engines keep nothing on disk: its modules come when one does.
  const [{ DiskTier }, { othersWrite }, { weightsFingerprint }] = await Promise.all([
    import('../../kv/disk/disk-tier.js'),
    import('../../kv/disk/disk-folder.js'),
    import('../../weights/fingerprint.js'),
  ]);
  for (const pool of pools) await pool.prepare('transfer');
  // A folder may hold other weights tomorrow.
  const identity = identify(
    weights.kind === 'folder'
      ? await weightsFingerprint(weights.path, weights.mmproj)
      : `${weights.name} ${weights.vocab ?? ''}`,
  );
  const disk = await DiskTier.open({
    folder: prefixCacheDir,
    maxBytes: config.prefixCacheDiskBytes ?? DEFAULT_DISK_BYTES,
    signature: await signature(identity, device, pools[0]!),
    onFault: (fault) => onLog(faultEntry(fault, prefixCacheDir)),
  });
  if (await othersWrite(prefixCacheDir)) onLog(openFolderEntry(prefixCacheDir));
  const { files, bytes, foreign } = disk.stats();
  onLog({
    level: 'info',
    message: 'the prefix cache goes on from disk',
    fields: { folder: prefixCacheDir, files, bytes, foreign },
  });
  return { identity, ...limits, disk };
}

/** What may be kept of each group, where something is said. */
function limitsOf(
  { prefixCacheBytes, prefixSnapshotBytes }: HostConfig,
  { groups }: KvPlan,
  pools: readonly KvPool[],
): Pick<PrefixOptions, 'limits'> {
  if (prefixCacheBytes === undefined && prefixSnapshotBytes === undefined) return {};
  const specs = pools.map(({ spec }) => spec);
  const limits = prefixLimits(specs, prefixCacheBytes ?? Number.POSITIVE_INFINITY).map((limit, group) => {
    if (!groups[group]!.state || prefixSnapshotBytes === undefined) return limit;
    const most = Math.floor(prefixSnapshotBytes / prefixBlockBytes(specs[group]!).blocks);
    return { ...limit, blocks: Math.min(limit.blocks, most) };
  });
  return { limits };
}

/**
 * What blocks from another process must agree in. Beyond what tells blocks apart in one process: how vectors lie in a
 * block, and what decides the last bits of the numbers.
 */
async function signature(identity: string, { info }: Device, { storage }: KvPool): Promise<string> {
  const text = await readFile(new URL('../../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(text) as { version: string };
  const { kind, name, features, attentionSplit } = info;
  // A CPU's name says how many threads there are, which does not matter.
  const device = { name: kind === 'cpu' ? null : name, features, attentionSplit };
  return JSON.stringify({ kvant: version, storage, device, blocks: JSON.parse(identity) as unknown });
}

function openFolderEntry(folder: string): LogEntry {
  return {
    level: 'warn',
    message:
      'other users may write to the folder of the prefix cache, and what is in it is trusted: chmod go-w',
    fields: { folder },
  };
}

function faultEntry({ what, code }: DiskFault, folder: string): LogEntry {
  if (code === null)
    return {
      level: 'info',
      message: `the prefix cache on disk can be ${what === 'read' ? 'read' : 'written'} again`,
      fields: { folder },
    };
  const message =
    what === 'read'
      ? 'the prefix cache on disk cannot be read for now; prompts are computed'
      : 'the prefix cache on disk cannot be written for now; nothing is kept there';
  return { level: 'warn', message, fields: { folder, code } };
}
