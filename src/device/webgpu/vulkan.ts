/**
 * Whether this machine has Vulkan, found without Dawn: it writes warnings to the terminal where it has not, and nothing can
 * keep native code from that.
 */

import { readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** Files of drivers, which go before all folders. */
const DRIVER_FILES = ['VK_DRIVER_FILES', 'VK_ICD_FILENAMES', 'VK_ADD_DRIVER_FILES'];

type Environment = Readonly<Record<string, string | undefined>>;

/** False where the system has no Vulkan loader. Other systems than Linux have one, or need none. */
export function hasVulkanLoader(): boolean {
  if (process.platform !== 'linux') return true;
  try {
    process.dlopen({ exports: {} }, 'libvulkan.so.1');
    return true;
  } catch (error) {
    // Found, it is no addon of Node, which is said in other words.
    return !String(error).includes('cannot open shared object file');
  }
}

/**
 * False where no driver is installed that the loader could find, in the folders it looks through
 * (LoaderDriverInterface.md of the Vulkan loader, "Linux Driver Discovery").
 */
export function hasVulkanDriver(env: Environment = process.env, home = homedir()): boolean {
  if (process.platform !== 'linux' || DRIVER_FILES.some((name) => (env[name] ?? '') !== '')) return true;
  return driverFolders(env, home).some((folder) => {
    try {
      return readdirSync(folder).some((name) => name.endsWith('.json'));
    } catch {
      return false;
    }
  });
}

function driverFolders(env: Environment, home: string): string[] {
  const list = (name: string, otherwise: string): string[] =>
    (env[name] || otherwise).split(':').filter((folder) => folder !== '');
  return [
    ...list('XDG_CONFIG_HOME', join(home, '.config')),
    ...list('XDG_CONFIG_DIRS', '/etc/xdg'),
    '/usr/local/etc',
    '/etc',
    ...list('XDG_DATA_HOME', join(home, '.local/share')),
    ...list('XDG_DATA_DIRS', '/usr/local/share:/usr/share'),
    // Whatever XDG says: distributions build the loader with them.
    '/usr/local/share',
    '/usr/share',
    '/run/opengl-driver/share',
  ].map((folder) => join(folder, 'vulkan/icd.d'));
}
