/** The errors of the WebGPU device, and what becomes of errors that the GPU reports on its own time. */

import { KvantError } from '../../errors.js';

export function outOfMemory(what: string, bytes: number, cause?: unknown): KvantError {
  const mib = (bytes / 1048576).toFixed(bytes < 10485760 ? 1 : 0);
  return new KvantError('device-out-of-memory', `The GPU has no room for ${what} (${mib} MiB).`, {
    kind: 'device',
    where: what,
    fix: 'Use a smaller or quantised model, fewer KV blocks or a shorter context, or close other programs on the GPU.',
    cause,
  });
}

export function deviceLost(reason: string, message: string): KvantError {
  const detail = message === '' ? '' : `: ${message}`;
  return new KvantError('device-lost', `The GPU device was lost (${reason})${detail}.`, {
    kind: 'device',
    fix: 'Load the model again. If it happens again, look at the system log for driver errors.',
  });
}

export function internalFault(message: string, where?: string, cause?: unknown): KvantError {
  return new KvantError('internal', message, {
    kind: 'internal',
    fix: 'This is a fault in kvant: please report it with this message and the name of the GPU.',
    ...(where === undefined ? {} : { where }),
    cause,
  });
}

/** An error event of the device, as ours. `isOutOfMemory` by name: the class is not a global in Node. */
export function fromGpuError(error: GPUError, where: string): KvantError {
  if (error.constructor.name === 'GPUOutOfMemoryError') {
    return new KvantError('device-out-of-memory', `The GPU ran out of memory (${where}): ${error.message}`, {
      kind: 'device',
      where,
      fix: 'Use a smaller model, fewer KV blocks or a shorter context.',
    });
  }
  return internalFault(`The GPU refused a command (${where}): ${error.message}`, where);
}

/** Something under way that an error of the device must reach. */
export interface FaultSink {
  fail(error: KvantError): void;
}

/**
 * Errors that no error scope caught go to everything under way; with nothing under way, to the next caller.
 * A lost device stays lost.
 */
export class Faults {
  readonly #sinks = new Set<FaultSink>();
  #pending: KvantError | null = null;
  #lost: KvantError | null = null;

  add(sink: FaultSink): void {
    this.#sinks.add(sink);
  }

  remove(sink: FaultSink): void {
    this.#sinks.delete(sink);
  }

  report(error: KvantError): void {
    if (this.#lost !== null) return;
    if (error.code === 'device-lost') this.#lost = error;
    else if (this.#sinks.size === 0) this.#pending ??= error;
    for (const sink of [...this.#sinks]) sink.fail(error);
  }

  get lost(): KvantError | null {
    return this.#lost;
  }

  /** Throws what has been reported and reached nobody. */
  check(): void {
    if (this.#lost !== null) throw this.#lost;
    const error = this.#pending;
    this.#pending = null;
    if (error !== null) throw error;
  }
}
