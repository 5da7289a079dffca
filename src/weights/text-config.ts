/** Fields of a decoder's config that stand inside `text_config`, beside it, or both: models that also see or hear nest it. */

import type { JsonObject } from './folder-files.js';

/**
 * What the decoder's own config says goes before what stands beside it; `null` counts as absent.
 *
 * @example textField({ text_config: { tie_word_embeddings: true } }, 'tie_word_embeddings') // true
 */
export function textField(config: JsonObject, name: string): unknown {
  return textConfig(config)?.[name] ?? config[name];
}

/** The config with a field that says the same wherever it is looked for. */
export function withTextField(config: JsonObject, name: string, value: unknown): JsonObject {
  const text = textConfig(config);
  const inner = text === null ? {} : { text_config: { ...text, [name]: value } };
  return { ...config, ...inner, [name]: value };
}

function textConfig({ text_config: text }: JsonObject): JsonObject | null {
  return typeof text === 'object' && text !== null && !Array.isArray(text) ? (text as JsonObject) : null;
}
