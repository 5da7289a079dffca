/** How the CLI ends: what went wrong on stderr, with what to do about it, and an exit code a script can rely on. */

import { styleText } from 'node:util';
import { isOn } from '../env-flag.js';
import { KvantError } from '../errors.js';

/** 0: done. 1: it failed. 2: it was asked wrongly. 130: interrupted. */
export const EXIT = { ok: 0, failed: 1, usage: 2, interrupted: 130 } as const;

const USAGE_KINDS: readonly KvantError['kind'][] = ['invalid-request', 'unsupported', 'not-found'];

/** Ctrl-C: nothing has gone wrong. */
export function isInterrupt(error: unknown): boolean {
  if (error instanceof KvantError) return error.code === 'cancelled';
  return error instanceof Error && error.name === 'AbortError';
}

export function exitCodeOf(error: unknown): number {
  if (isInterrupt(error)) return EXIT.interrupted;
  if (error instanceof KvantError) return USAGE_KINDS.includes(error.kind) ? EXIT.usage : EXIT.failed;
  return EXIT.failed;
}

/** Prints an error for a person, or as JSON for a script. */
export function reportError(error: unknown, json: boolean): void {
  if (json) {
    const known = error instanceof KvantError;
    const body = {
      code: isInterrupt(error) ? 'interrupted' : known ? error.code : 'internal',
      message: error instanceof Error ? error.message : String(error),
      fix: known ? (error.fix ?? null) : null,
      where: known ? (error.where ?? null) : null,
    };
    process.stdout.write(`${JSON.stringify({ error: body })}\n`);
    return;
  }
  if (isInterrupt(error)) {
    process.stderr.write('interrupted\n');
    return;
  }
  if (error instanceof KvantError) {
    process.stderr.write(
      `${styleText('red', 'error')} ${error.message} ${styleText('dim', `[${error.code}]`)}\n`,
    );
    if (error.fix !== undefined) process.stderr.write(`${styleText('green', 'fix')}   ${error.fix}\n`);
    if (isOn(process.env.KVANT_DEBUG)) process.stderr.write(`${error.stack ?? ''}\n`);
    return;
  }
  const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.stderr.write(
    `${styleText('red', 'error')} This is a fault in kvant; please report it with the lines below.\n${stack}\n`,
  );
}
