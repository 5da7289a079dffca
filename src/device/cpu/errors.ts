/** Errors of the CPU device. */
import { KvantError } from '../../errors.js';

export function outOfMemory(message: string, cause?: unknown): KvantError {
  return new KvantError('device-out-of-memory', message, {
    kind: 'device',
    fix: 'Take a smaller model, more quantised weights, a shorter context or fewer KV blocks, or a machine with more memory.',
    ...(cause === undefined ? {} : { cause }),
  });
}

export function deviceLost(message: string, cause?: unknown): KvantError {
  return new KvantError('device-lost', message, {
    kind: 'device',
    fix: 'Load the model anew; if it happens again, please report it with the message.',
    ...(cause === undefined ? {} : { cause }),
  });
}

export function invalidStep(message: string): KvantError {
  return new KvantError('invalid-step', message, {
    fix: 'Keep the step within the limits that the program was compiled with.',
  });
}
