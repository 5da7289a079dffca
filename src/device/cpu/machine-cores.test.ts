import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { machineCores, processorShare, threadsFor } from './machine-cores.js';

const roots: string[] = [];
afterEach(() => {
  for (const root of roots.splice(0)) rmSync(root, { recursive: true });
});

/** A root of a file system with these files. */
function machine(files: Record<string, string>): string {
  const root = mkdtempSync(join(tmpdir(), 'kvant-cores-'));
  roots.push(root);
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  }
  return root;
}

describe('the share of processors that a container has', () => {
  it.each<[string, Record<string, string>, number]>([
    ['nothing set at all', {}, Infinity],
    [
      'version 2, in a container',
      { 'proc/self/cgroup': '0::/\n', 'sys/fs/cgroup/cpu.max': '250000 100000\n' },
      2.5,
    ],
    [
      'version 2, no limit',
      { 'proc/self/cgroup': '0::/\n', 'sys/fs/cgroup/cpu.max': 'max 100000\n' },
      Infinity,
    ],
    [
      'version 2, a service below a slice with less',
      {
        'proc/self/cgroup': '0::/system.slice/chat.service\n',
        'sys/fs/cgroup/system.slice/cpu.max': '150000 50000\n',
        'sys/fs/cgroup/system.slice/chat.service/cpu.max': '400000 100000\n',
      },
      3,
    ],
    [
      'version 1, a container whose path is the host’s',
      {
        'proc/self/cgroup': '9:name=systemd:/docker/1f\n4:cpu,cpuacct:/docker/1f\n3:cpuset:/docker/1f\n',
        'sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us': '200000\n',
        'sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us': '100000\n',
      },
      2,
    ],
    [
      'version 1, no limit',
      {
        'proc/self/cgroup': '1:cpu:/\n',
        'sys/fs/cgroup/cpu/cpu.cfs_quota_us': '-1\n',
        'sys/fs/cgroup/cpu/cpu.cfs_period_us': '100000\n',
      },
      Infinity,
    ],
    [
      'a file that says something else',
      { 'proc/self/cgroup': '0::/\n', 'sys/fs/cgroup/cpu.max': '?\n' },
      Infinity,
    ],
  ])('%s', (_, files, expected) => {
    expect(processorShare(machine(files))).toBe(expected);
  });

  it('leaves at least one core, and whole ones', () => {
    expect(machineCores()).toBeGreaterThanOrEqual(1);
    expect(Number.isInteger(machineCores())).toBe(true);
  });
});

describe('threads where nobody says how many', () => {
  it.each([
    [1, 1, 1],
    [2, 2, 2],
    [4, 4, 3],
    [8, 8, 6],
    [9, 8, 7],
    [16, 15, 12],
    [64, 63, 48],
  ])('%d cores: %d threads, %d beside a GPU', (cores, alone, beside) => {
    expect(threadsFor(cores, false)).toBe(alone);
    expect(threadsFor(cores, true)).toBe(beside);
  });
});
