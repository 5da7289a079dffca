import { KvantError } from '../errors.js';
import { READ_TYPES } from './gguf-blocks.js';
import type { GgufTypeName } from './gguf-types.js';

export function headerError(path: string, what: string): KvantError {
  return new KvantError('weights-header', `${path} is not a valid GGUF file: ${what}`, {
    kind: 'model',
    where: path,
    fix: 'Download the file again, or have it written again by the tool that made it.',
  });
}

/** A type of tensors that is known, and not read. */
export function unreadType(name: string, type: GgufTypeName): KvantError {
  return new KvantError(
    'weights-gguf-type',
    `${JSON.stringify(name)} is of type ${type}, which is not supported yet`,
    {
      kind: 'unsupported',
      where: name,
      fix: `Take another file of the same model: Q4_K_M, Q8_0, or one whose tensors are all of ${READ_TYPES.join(', ')}; \`llama-quantize\` makes one from an F16 file. Or load the safetensors model with --quantize 4.`,
    },
  );
}
