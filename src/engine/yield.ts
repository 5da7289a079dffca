/**
 * Lets the event loop turn once, so that messages (new requests, cancellations) come in between two steps even
 * when a device answers without ever waiting.
 */
export function yieldToEvents(): Promise<void> {
  if (typeof setImmediate === 'function') return new Promise((resolve) => setImmediate(resolve));
  // In a browser timers are clamped to 4 ms; a message is not.
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.addEventListener('message', () => {
      port1.close();
      resolve();
    });
    port1.start();
    port2.postMessage(null);
  });
}

/** Epoch milliseconds with a fraction: comparable between threads. */
export function epochNow(): number {
  return performance.timeOrigin + performance.now();
}
