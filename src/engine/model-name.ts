import { basename, resolve } from 'node:path';

/** A snapshot in a Hugging Face cache: `…/models--org--name/snapshots/<commit>`. */
const SNAPSHOT = /[/\\]models--([^/\\]+)[/\\]snapshots[/\\][^/\\]+$/;
const GGUF = /(-\d{5}-of-\d{5})?\.gguf$/i;

/**
 * The name a model is served under where none is given: that of a hub model, or of the folder or file alone, for where it lies is
 * nobody's business.
 *
 * @param argument the model as it was asked for
 * @param folder where it was found
 * @example modelName('/srv/models/demo-text/', '/srv/models/demo-text/') // 'demo-text'
 * modelName('Qwen3-0.6B-Q8_0.gguf', '/srv/Qwen3-0.6B-Q8_0.gguf') // 'Qwen3-0.6B-Q8_0'
 * modelName('ollama:llama3.2:1b', '/home/…/blobs/sha256-…') // 'llama3.2:1b'
 * modelName('Qwen/Qwen3-0.6B@main', '/home/…/snapshots/…') // 'Qwen/Qwen3-0.6B'
 */
export function modelName(argument: string, folder: string): string {
  // Ollama's files have no names.
  const stored = /^ollama:(?:\/\/)?(.+)$/i.exec(argument)?.[1];
  if (stored !== undefined) return stored;
  const path = resolve(folder);
  const cached = SNAPSHOT.exec(path)?.[1];
  if (cached !== undefined) return cached.replaceAll('--', '/');
  return basename(path).replace(GGUF, '') || (argument.split('/').findLast((part) => part !== '') ?? 'model');
}
