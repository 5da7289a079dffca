type Channel = InstanceType<typeof MessageChannel>;

/** What those who wait are told by, where there is no setImmediate; made once. */
let channel: Channel | null = null;
const waiting: (() => void)[] = [];

/**
 * Lets the event loop turn once, so that messages (new requests, cancellations) come in between two steps even
 * when a device answers without ever waiting.
 */
export function yieldToEvents(): Promise<void> {
  if (typeof setImmediate === 'function') return new Promise((resolve) => setImmediate(resolve));
  // In a browser timers are clamped to 4 ms; a message is not.
  channel ??= openChannel();
  const { port2 } = channel;
  return new Promise((resolve) => {
    waiting.push(resolve);
    port2.postMessage(null);
  });
}

function openChannel(): Channel {
  const made = new MessageChannel();
  made.port1.addEventListener('message', () => waiting.shift()?.());
  made.port1.start();
  return made;
}

/**
 * Whether the event loop has turned since somebody began to wait. A device that is waited for lets it turn anyway (a GPU is polled from
 * it), and then messages have come in already: a turn more would be time in which nothing is submitted.
 */
export class EventTurn {
  #pending = false;
  readonly #pass = (): void => {
    this.#pending = false;
  };

  /** From here on. */
  begin(): void {
    if (this.#pending) return;
    this.#pending = true;
    if (typeof setImmediate === 'function') setImmediate(this.#pass);
  }

  /** It has turned. */
  get over(): boolean {
    return !this.#pending;
  }

  /** Resolves when it has. */
  wait(): Promise<void> {
    const turned = yieldToEvents();
    return typeof setImmediate === 'function' ? turned : turned.then(this.#pass);
  }
}

/** Epoch milliseconds with a fraction: comparable between threads. */
export function epochNow(): number {
  return performance.timeOrigin + performance.now();
}
