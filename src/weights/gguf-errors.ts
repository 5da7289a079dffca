import { KvantError } from '../errors.js';

export function headerError(path: string, what: string): KvantError {
  return new KvantError('weights-header', `${path} is not a valid GGUF file: ${what}`, {
    kind: 'model',
    where: path,
    fix: 'Download the file again, or have it written again by the tool that made it.',
  });
}
