/** The log of the command line: pino on stderr, JSON lines, or one readable line each on a terminal. */
import { createRequire } from 'node:module';
import type { Logger } from 'pino';
import type { LogLevel } from '../engine/types.js';
import { CLI_LOG_LEVELS, type CliLogLevel } from './flags.js';

/** What loading an engine asks of a log. */
export type LoadLog = Pick<Logger, LogLevel | 'isLevelEnabled'>;

export function createLogger(
  level: CliLogLevel,
  stream: NodeJS.WriteStream & { readonly fd: number } = process.stderr,
): Logger {
  const pino = createRequire(import.meta.url)('pino') as typeof import('pino').pino;
  if (!stream.isTTY) {
    const destination = pino.destination({ dest: stream.fd, sync: true });
    // Nobody reads the log any more: no reason to end.
    destination.on('error', () => {});
    return pino({ level, base: null }, destination);
  }
  const labels = pino.levels.labels;
  return pino(
    { level, base: null },
    {
      write(line: string) {
        stream.write(`${readable(JSON.parse(line) as Record<string, unknown>, labels)}\n`);
      },
    },
  );
}

/** A log for commands that mostly have nothing to say: pino is loaded for the first entry that is written. */
export function quietLog(
  level: CliLogLevel,
  create: (level: CliLogLevel) => LoadLog = createLogger,
): LoadLog {
  let made: LoadLog | undefined;
  const rank = (name: string): number => (CLI_LOG_LEVELS as readonly string[]).indexOf(name);
  const isLevelEnabled = (name: string): boolean => rank(name) > 0 && rank(name) <= rank(level);
  const write =
    (name: LogLevel) =>
    (...entry: readonly unknown[]): void => {
      if (!isLevelEnabled(name)) return;
      made ??= create(level);
      (made[name] as (...entry: readonly unknown[]) => void)(...entry);
    };
  return {
    isLevelEnabled,
    trace: write('trace'),
    debug: write('debug'),
    info: write('info'),
    warn: write('warn'),
    error: write('error'),
  };
}

function readable(
  { level, time, msg, ...fields }: Record<string, unknown>,
  labels: Readonly<Record<number, string>>,
): string {
  const clock = new Date(Number(time)).toISOString().slice(11, 19);
  const name = labels[Number(level)] ?? String(level);
  const rest = Object.entries(fields).map(
    ([k, v]) => `${k}=${typeof v === 'string' ? v : JSON.stringify(v)}`,
  );
  return `${clock} ${name.padEnd(5)} ${String(msg)}${rest.length > 0 ? `  ${rest.join(' ')}` : ''}`;
}
