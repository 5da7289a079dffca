/**
 * Server-sent events, pulled by the socket: the next event is made when the last one has been taken, so a slow
 * client holds up nothing but itself. While there is nothing to send a comment keeps the connection alive.
 */

export interface SseOptions {
  /** Milliseconds of silence after which a comment is sent. */
  readonly keepAliveMs: number;
  /** The client went away, or the stream is over. Called once. */
  readonly onEnd: () => void;
}

const encoder = new TextEncoder();

export const SSE_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
} as const;

/** A stream of `data:` events, one for each string of `events`. */
export function sseStream(events: AsyncIterator<string>, options: SseOptions): ReadableStream<Uint8Array> {
  let pending: Promise<IteratorResult<string>> | null = null;
  let ended = false;
  const end = (): void => {
    if (ended) return;
    ended = true;
    options.onEnd();
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        pending ??= events.next();
        const result = await orSilence(pending, options.keepAliveMs);
        if (ended) return;
        if (result === null) {
          controller.enqueue(encoder.encode(': keep-alive\n\n'));
          return;
        }
        pending = null;
        if (result.done === true) {
          end();
          controller.close();
          return;
        }
        controller.enqueue(encoder.encode(`data: ${result.value}\n\n`));
      },
      async cancel() {
        end();
        await events.return?.();
      },
    },
    { highWaterMark: 1 },
  );
}

/** The promise's value, or null after so many milliseconds. Leaves no timer behind. */
async function orSilence<T>(promise: Promise<T>, milliseconds: number): Promise<T | null> {
  let timer: NodeJS.Timeout | undefined;
  const silence = new Promise<null>((resolve) => {
    timer = setTimeout(resolve, milliseconds, null);
  });
  try {
    return await Promise.race([promise, silence]);
  } finally {
    clearTimeout(timer);
  }
}
