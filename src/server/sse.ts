/**
 * Server-sent events, pulled by the socket: the next write happens when the socket has drained. So a slow client delays nobody but
 * itself, and gets more text in each event. While there is nothing to send, a comment keeps the connection alive.
 *
 * It is run through for every token of every client: no promise, timer or closure is made for one, beyond what a stream makes.
 *
 * Measured: docs/lab/2026-11-22-host.md.
 */

/** Where events come from. */
export interface EventSource {
  /** The events there are now, as they are sent; empty if there are none, null when there will be no more. */
  read(): string | null;
  /** Calls `wake` whenever there may be something to read. */
  watch(wake: () => void): void;
  /** Nobody reads any more. Called once. */
  close(): void;
}

export interface SseOptions {
  /** Milliseconds of silence after which a comment is sent. */
  readonly keepAliveMs: number;
  /** The client went away, or the stream is over. Called once. */
  readonly onEnd: () => void;
}

export const SSE_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
} as const;

/** One event, as it is sent. `data` holds no line break. */
export function dataEvent(data: string): string {
  return `data: ${data}\n\n`;
}

export function sseStream(
  source: EventSource,
  { keepAliveMs, onEnd }: SseOptions,
): ReadableStream<Uint8Array> {
  let controller!: ReadableStreamDefaultController<Uint8Array>;
  /** Somebody waits for more. */
  let wanted = false;
  let ended = false;
  let sentAt = performance.now();
  let timer: NodeJS.Timeout | undefined;
  const end = (): void => {
    if (ended) return;
    ended = true;
    clearTimeout(timer);
    source.close();
    onEnd();
  };
  const send = (text: string): void => {
    wanted = false;
    sentAt = performance.now();
    controller.enqueue(Buffer.from(text));
  };
  const flush = (): void => {
    if (!wanted || ended) return;
    let text: string | null;
    try {
      text = source.read();
    } catch (error) {
      end();
      controller.error(error);
      return;
    }
    if (text === null) {
      end();
      controller.close();
    } else if (text !== '') send(text);
  };
  const listen = (): void => {
    const left = keepAliveMs - (performance.now() - sentAt);
    if (left > 0 || !wanted) {
      timer = setTimeout(listen, left > 0 ? Math.ceil(left) : keepAliveMs);
      return;
    }
    send(': keep-alive\n\n');
    timer = setTimeout(listen, keepAliveMs);
  };
  return new ReadableStream<Uint8Array>(
    {
      start(given) {
        controller = given;
        source.watch(flush);
      },
      pull() {
        wanted = true;
        timer ??= setTimeout(listen, keepAliveMs);
        flush();
      },
      cancel: end,
    },
    // Nothing is taken from the source before it is asked for.
    { highWaterMark: 0 },
  );
}
