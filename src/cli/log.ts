/** The log of the command line: pino on stderr, JSON lines, or one readable line each on a terminal. */
import { createRequire } from 'node:module';
import type { Logger } from 'pino';
import type { LogLevel } from '../engine/types.js';
import { printable, shown } from '../printable.js';
import { CLI_LOG_LEVELS, type CliLogLevel } from './flags.js';
import { LogSink, type SinkStream } from './log-sink.js';

/** What loading an engine asks of a log. */
export type LoadLog = Pick<Logger, LogLevel | 'isLevelEnabled'>;

export function createLogger(
  level: CliLogLevel,
  stream: SinkStream & { readonly isTTY?: boolean } = process.stderr,
  bound?: number,
): Logger {
  const pino = createRequire(import.meta.url)('pino') as typeof import('pino').pino;
  const labels = pino.levels.labels;
  // pino escapes what JSON must; a terminal that shows the lines asks for more.
  const asLine = (line: string): string => {
    const entry = line.length > LONGEST_LINE ? shorten(line) : line.trimEnd();
    return printable(stream.isTTY ? readable(JSON.parse(entry) as Record<string, unknown>, labels) : entry);
  };
  const sink = new LogSink(
    stream,
    (dropped) => `${asLine(JSON.stringify({ level: WARN, time: Date.now(), dropped, msg: DROPPED }))}\n`,
    bound,
  );
  return pino({ level, base: null }, { write: (line: string) => sink.write(`${asLine(line)}\n`) });
}

const WARN = 40;
const DROPPED = 'log lines were dropped: nobody read them';
const LONGEST_LINE = 32_768;
const LONGEST_STRING = 2000;

/** The same entry with long texts cut. What is long for another reason keeps its message alone. */
function shorten(line: string): string {
  const entry = JSON.stringify(JSON.parse(line), (_, value: unknown) =>
    typeof value === 'string' ? shown(value, LONGEST_STRING) : value,
  );
  if (entry.length <= LONGEST_LINE) return entry;
  const { level, time, msg } = JSON.parse(entry) as Record<string, unknown>;
  return JSON.stringify({ level, time, cut: `an entry of ${line.length} characters`, msg });
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
