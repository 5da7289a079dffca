import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hasVulkanDriver } from './vulkan.js';

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'kvant-vulkan-'));
});
afterEach(() => rmSync(home, { recursive: true }));

function driver(folder: string): void {
  const path = join(home, folder, 'vulkan/icd.d');
  mkdirSync(path, { recursive: true });
  writeFileSync(join(path, 'nvidia_icd.json'), '{}');
}

describe.runIf(process.platform === 'linux')('hasVulkanDriver', () => {
  it.each([
    ['.config', {}],
    ['.local/share', {}],
    ['data', { XDG_DATA_DIRS: '/nowhere::$HOME/data' }],
    ['conf', { XDG_CONFIG_DIRS: '$HOME/conf' }],
    ['mine', { XDG_DATA_HOME: '$HOME/mine' }],
  ])('finds a driver under %s with %j', (folder, env) => {
    driver(folder);
    const given = Object.fromEntries(Object.entries(env).map(([k, v]) => [k, v.replace('$HOME', home)]));
    expect(hasVulkanDriver(given, home)).toBe(true);
  });

  it.each(['VK_DRIVER_FILES', 'VK_ICD_FILENAMES', 'VK_ADD_DRIVER_FILES'])('believes %s', (name) => {
    expect(hasVulkanDriver({ [name]: '/somewhere/icd.json' }, home)).toBe(true);
  });

  it('is not taken in by other files', () => {
    mkdirSync(join(home, '.config/vulkan/icd.d'), { recursive: true });
    writeFileSync(join(home, '.config/vulkan/icd.d/README'), '');
    const found = hasVulkanDriver({}, home);
    driver('.config');
    expect(hasVulkanDriver({}, home)).toBe(true);
    // A machine with a driver of its own has one either way.
    expect(found).toBe(hasVulkanDriver({}, join(home, 'nobody')));
  });
});
