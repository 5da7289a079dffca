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

/** Epoch milliseconds with a fraction: comparable between threads. */
export function epochNow(): number {
  return performance.timeOrigin + performance.now();
}
