/**
 * Weight formats that are not read, told apart by name and by first bytes, each refused with its own error.
 * A pickle is a program: it is never opened, whatever it is called.
 */

import { basename } from 'node:path';
import { KvantError } from '../errors.js';

const PICKLE_NAMES = /\.(bin|pt|pth|ckpt|pkl|pickle)$/i;
// Files with these endings that are no weights.
const NOT_WEIGHTS = /^(training_args|optimizer|scheduler|rng_state.*|scaler)\.(bin|pt|pth)$/i;

/** True for the names under which PyTorch pickles are published. */
export function isPickleName(name: string): boolean {
  return PICKLE_NAMES.test(name) && !NOT_WEIGHTS.test(name);
}

const OTHER_NAMES: readonly (readonly [ending: RegExp, format: string])[] = [
  [/\.onnx(_data)?$/i, 'ONNX'],
  [/\.h5$|\.ckpt\.(index|data-.*)$/i, 'TensorFlow'],
  [/\.msgpack$/i, 'Flax'],
  [/\.npz$/i, 'NumPy (npz)'],
  [/\.ot$/i, 'rust-bert'],
  [/\.(engine|plan)$/i, 'TensorRT'],
  [/\.(mlpackage|mlmodel|mlmodelc)$/i, 'Core ML'],
  [/\.(tflite|task|litertlm)$/i, 'LiteRT'],
];

/** The first file whose name says that it is in a format that is not read, with what that is. */
export function otherFormat(names: readonly string[]): { name: string; format: string } | undefined {
  for (const name of names) {
    const format = OTHER_NAMES.find(([ending]) => ending.test(name))?.[1];
    if (format !== undefined) return { name, format };
  }
  return undefined;
}

export function isGgufName(name: string): boolean {
  return /\.gguf$/i.test(name);
}

/**
 * Refuses a file whose first bytes belong to another format.
 * @throws KvantError `weights-pickle`, `weights-gguf`, `weights-gguf-version` or `weights-lfs-pointer`
 */
export function refuseForeignFormat(head: Uint8Array, path: string): void {
  // A safetensors header follows 8 bytes of length, and is an object: no other format has a brace there.
  if (head[8] === 0x7b) return;
  const ascii = Buffer.from(head.buffer, head.byteOffset, head.byteLength).toString('latin1');
  if (ascii.startsWith('GGUF')) throw ggufError(path);
  if (/^([lf]mgg|tjgg|algg)/.test(ascii)) throw beforeGguf(path);
  if (ascii.startsWith('PK\x03\x04')) throw pickleError(path);
  // PROTO opcode, protocols 2 to 5.
  if (head[0] === 0x80 && head[1]! >= 2 && head[1]! <= 5) throw pickleError(path);
  if (ascii.startsWith('version https://git-lfs')) {
    throw new KvantError('weights-lfs-pointer', `${path} is a Git LFS pointer, not the weights`, {
      kind: 'model',
      where: path,
      fix: 'Run `git lfs pull` in the folder of the model, or load it by its hub id.',
    });
  }
}

/** Of 2023: GGML, GGMF, GGJT, GGLA. */
function beforeGguf(path: string): KvantError {
  return new KvantError('weights-gguf-version', `${path} is a GGML file, from before GGUF`, {
    kind: 'unsupported',
    where: path,
    fix: 'Take the model as a GGUF file, or convert it with convert_llama_ggml_to_gguf.py of llama.cpp.',
  });
}

export function pickleError(path: string): KvantError {
  return new KvantError(
    'weights-pickle',
    `${path} is a pickle checkpoint: it can run any code when it is opened, so it is never loaded`,
    {
      kind: 'unsupported',
      where: path,
      fix: 'Use a safetensors version of the model (many repositories have one, or convert it with transformers: save_pretrained(..., safe_serialization=True)).',
    },
  );
}

/** A GGUF file where safetensors files are looked for. */
export function ggufError(path: string): KvantError {
  return new KvantError('weights-gguf', `${basename(path)} is a GGUF file, not a safetensors one`, {
    kind: 'invalid-request',
    where: path,
    fix: `Give the file itself: ${path}`,
  });
}
