/**
 * Where log lines go: a stream that is never waited for. A terminal that is stopped, or a pipe that nobody reads, takes
 * what it takes; what passes a bound is dropped and counted, and the count is told as soon as there is room again.
 */
import type { Writable } from 'node:stream';

/** What a sink needs of a stream. */
export type SinkStream = Pick<Writable, 'write' | 'writableLength' | 'on' | 'once'>;

/** Bytes that may wait for a reader. */
const MOST_WAITING = 2 ** 20;

export class LogSink {
  readonly #stream: SinkStream;
  readonly #dropNotice: (count: number) => string;
  readonly #bound: number;
  #dropped = 0;

  /** `dropNotice`: the line that tells how many lines are missing. */
  constructor(stream: SinkStream, dropNotice: (count: number) => string, bound: number = MOST_WAITING) {
    this.#stream = stream;
    this.#dropNotice = dropNotice;
    this.#bound = bound;
    stream.on('drain', () => this.#tellDropped());
  }

  /** Lines that are missing, and not told yet. */
  get dropped(): number {
    return this.#dropped;
  }

  write(line: string): void {
    if (this.#dropped > 0 && this.#stream.writableLength < this.#bound / 2) this.#tellDropped();
    if (this.#dropped > 0 || this.#stream.writableLength + line.length > this.#bound) this.#dropped++;
    else this.#stream.write(line);
  }

  #tellDropped(): void {
    if (this.#dropped === 0) return;
    const count = this.#dropped;
    this.#dropped = 0;
    this.#stream.write(this.#dropNotice(count));
  }
}

/**
 * Lets writing to a terminal return when it takes no more, as writing to a pipe does: Node makes that of terminals wait,
 * and with it everything else. Nothing happens where the stream is no terminal.
 */
export function neverBlock(stream: NodeJS.WriteStream): void {
  if (!stream.isTTY) return;
  const { _handle: handle } = stream as { readonly _handle?: { setBlocking?(on: boolean): number } };
  handle?.setBlocking?.(false);
}

/** Waits until all is written, or `ms` have passed. Returns whether it is. */
export async function written(streams: readonly SinkStream[], ms: number): Promise<boolean> {
  const waiting = streams.filter((stream) => stream.writableLength > 0);
  if (waiting.length === 0) return true;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  const all = Promise.all(
    waiting.map((stream) => new Promise<void>((resolve) => void stream.write('', () => resolve()))),
  );
  const done = await Promise.race([all.then(() => true as const), late]);
  clearTimeout(timer);
  return done;
}
