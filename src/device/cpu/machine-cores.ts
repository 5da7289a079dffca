import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';

/**
 * Processors that the process can keep busy: those that it may run on, or as many as a container's share of their time makes up.
 * Node 20 does not look at such shares, and threads beyond them are stopped for the rest of each period.
 */
export function machineCores(): number {
  return Math.max(1, Math.min(availableParallelism(), Math.floor(processorShare())));
}

/**
 * Threads that compute where nobody says how many. Above eight cores one is left to the host's own thread: with
 * 16 for 16 decode was half as fast as with 15 (docs/lab/2026-11-21-cpu.md). Beside a GPU a quarter is left to those that speak with it.
 */
export function threadsFor(cores: number, besideGpu: boolean): number {
  if (besideGpu) return cores - (cores >> 2);
  return cores > 8 ? cores - 1 : cores;
}

/**
 * The least quota over period of the process's control group and those above it, as Linux states them; Infinity where none is set.
 * `root` stands for the root of the file system.
 */
export function processorShare(root = '/'): number {
  const groups = (text(join(root, 'proc/self/cgroup')) ?? '').split('\n').map((line) => line.split(':'));
  let least = Number.POSITIVE_INFINITY;
  for (const [, controllers = '', path = '/'] of groups) {
    const second = controllers === '';
    if (!second && !controllers.split(',').includes('cpu')) continue;
    const mounted = second ? [''] : [controllers, 'cpu'];
    for (const mount of mounted) {
      for (const group of withParents(path)) {
        const folder = join(root, 'sys/fs/cgroup', mount, group);
        least = Math.min(least, second ? shareOfMax(folder) : shareOfQuota(folder));
      }
    }
  }
  return least;
}

/** Version 2: `cpu.max` is "QUOTA PERIOD" in microseconds, or "max PERIOD". */
function shareOfMax(folder: string): number {
  const [quota, period] = (text(join(folder, 'cpu.max')) ?? '').trim().split(' ');
  return share(quota, period);
}

/** Version 1: a file each; a quota of -1 is none. */
function shareOfQuota(folder: string): number {
  return share(text(join(folder, 'cpu.cfs_quota_us')), text(join(folder, 'cpu.cfs_period_us')));
}

function share(quota: string | undefined, period: string | undefined): number {
  const [most, of] = [Number(quota), Number(period)];
  return most > 0 && of > 0 ? most / of : Number.POSITIVE_INFINITY;
}

/** "/a/b", "/a" and "/": a container sees its own group as the root, whatever the path says. */
function withParents(path: string): string[] {
  const parts = path.split('/').filter((part) => part !== '');
  return Array.from({ length: parts.length + 1 }, (_, i) => parts.slice(0, parts.length - i).join('/'));
}

function text(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
