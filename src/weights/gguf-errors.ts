import { KvantError } from '../errors.js';

export function headerError(path: string, what: string): KvantError {
  return new KvantError('weights-header', `${path} is not a valid GGUF file: ${what}`, {
    kind: 'model',
    where: path,
    fix: 'Download the file again, or have it written again by the tool that made it.',
  });
}

export function truncated(path: string, what: string): KvantError {
  return new KvantError('weights-truncated', `${path} is cut short: ${what}`, {
    kind: 'model',
    where: path,
    fix: 'The download or copy was not finished: fetch the file again.',
  });
}
