/** A process that outlives its terminal. */
import { closeSync, fstatSync, openSync } from 'node:fs';
import { isatty } from 'node:tty';

/**
 * Puts nothing in the place of a terminal that is gone, as `nohup` does it: Node gives the terminal its settings back when it ends, and
 * aborts where that fails. Does nothing while the terminal is there.
 */
export function leaveLostTerminal(): void {
  if (process.platform === 'win32') return;
  for (const fd of [0, 1, 2]) {
    try {
      if (!fstatSync(fd).isCharacterDevice() || isatty(fd)) continue;
      closeSync(fd);
      // The lowest free number is this one.
      openSync('/dev/null', 'r+');
    } catch {
      // Closed already.
    }
  }
}
