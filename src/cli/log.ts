/** The log of the command line: pino on stderr, JSON lines, or one readable line each on a terminal. */
import { type Logger, pino } from 'pino';
import type { CliLogLevel } from './flags.js';

export function createLogger(
  level: CliLogLevel,
  stream: NodeJS.WriteStream & { readonly fd: number } = process.stderr,
): Logger {
  if (!stream.isTTY) {
    const destination = pino.destination({ dest: stream.fd, sync: true });
    // Nobody reads the log any more: no reason to end.
    destination.on('error', () => {});
    return pino({ level, base: null }, destination);
  }
  return pino(
    { level, base: null },
    {
      write(line: string) {
        stream.write(`${readable(JSON.parse(line) as Record<string, unknown>)}\n`);
      },
    },
  );
}

function readable({ level, time, msg, ...fields }: Record<string, unknown>): string {
  const clock = new Date(Number(time)).toISOString().slice(11, 19);
  const name = pino.levels.labels[Number(level)] ?? String(level);
  const rest = Object.entries(fields).map(
    ([k, v]) => `${k}=${typeof v === 'string' ? v : JSON.stringify(v)}`,
  );
  return `${clock} ${name.padEnd(5)} ${String(msg)}${rest.length > 0 ? `  ${rest.join(' ')}` : ''}`;
}
