/**
 * Which pattern a file cuts texts by that does not say it, or says `default`: files from before May 2024, and some of Ollama's. What it
 * holds tells the tokenizer: the architecture, and tokens that no other tokenizer has.
 */

import type { TokenizerMetadata } from './tokenizer-metadata.js';

const KEY = 'tokenizer.ggml.pre';

interface Rule {
  readonly pattern: string;
  readonly architecture: RegExp;
  /** Tokens that there have to be. */
  readonly tokens: readonly string[];
}

const RULES: readonly Rule[] = [
  { pattern: 'llama-bpe', architecture: /^llama$/, tokens: ['<|start_header_id|>', '<|eot_id|>'] },
  // Llama 3 as it was trained first.
  { pattern: 'llama-bpe', architecture: /^llama$/, tokens: ['<|begin_of_text|>', '<|end_of_text|>'] },
  { pattern: 'gpt-4o', architecture: /^gpt-?oss$/, tokens: ['<|start|>', '<|channel|>'] },
  { pattern: 'qwen35', architecture: /^qwen35(moe)?$/, tokens: ['<|im_start|>', '<|endoftext|>'] },
  {
    pattern: 'qwen2',
    architecture: /^qwen(2|2moe|2vl|25vl|3|3moe|3vl|3vlmoe|3next)$/,
    tokens: ['<|im_start|>', '<|endoftext|>'],
  },
  {
    pattern: 'tekken',
    architecture: /^(llama|mistral3)$/,
    tokens: ['[INST]', '[/INST]', '[AVAILABLE_TOOLS]'],
  },
  {
    pattern: 'command-r',
    architecture: /^(command-r|cohere2)$/,
    tokens: ['<|START_OF_TURN_TOKEN|>', '<|END_OF_TURN_TOKEN|>'],
  },
  { pattern: 'chatglm-bpe', architecture: /^(chatglm|glm4|glmocr)$/, tokens: ['[gMASK]', '<|user|>'] },
  { pattern: 'glm4', architecture: /^(glm4moelite|glm4moe|deepseek2)$/, tokens: ['[gMASK]', '<|user|>'] },
  { pattern: 'lfm2', architecture: /^lfm2(moe)?$/, tokens: ['<|im_start|>', '<|startoftext|>'] },
];

/** Patterns that Ollama's older files name wrongly, by architecture. */
const WRONG: Readonly<Record<string, string>> = {
  glmocr: 'chatglm-bpe',
  glm4moelite: 'glm4',
  gptoss: 'gpt-4o',
};

/** @returns undefined where nothing tells it */
export function splitNameOf(metadata: TokenizerMetadata, tokens: readonly string[]): string | undefined {
  const architecture = metadata.text('general.architecture') ?? '';
  const stated = metadata.text(KEY);
  if (Object.hasOwn(WRONG, architecture)) return WRONG[architecture];
  if (stated !== undefined && stated !== 'default') return stated;
  const found = RULES.find(
    (rule) => rule.architecture.test(architecture) && rule.tokens.every((token) => tokens.includes(token)),
  );
  return found?.pattern ?? stated;
}
