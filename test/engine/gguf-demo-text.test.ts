/**
 * models/demo-text as GGUF: Q8_0, and the mixes that are called Q4_K_M and Q6_K. As llama-quantize does it, rows that are no whole
 * superblocks fall back to Q5_0 and Q8_0. It answers what it answers from its own weights.
 */

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { readPackedText } from '../fixtures/read-packed.js';
import { everyCase } from '../setup/every-case.js';
import { type BlockWriter, Q4_K, Q5_0, Q6_K, Q8_0, quantise } from '../setup/gguf-quantise.js';
import { f32, ggufBytes, string, u32, type WrittenTensor } from '../setup/gguf-writer.js';
import { GGUF_LAYER_NAMES, published } from '../setup/published-tensors.js';

const MODEL = fileURLToPath(new URL('../../models/demo-text', import.meta.url));
const QUESTIONS = new URL('../fixtures/eval/eval-facts.jsonl.br', import.meta.url);
/** Questions where not all are asked. */
const SOME = 30;

function ggufName(name: string): string {
  if (name === 'model.embed_tokens.weight') return 'token_embd.weight';
  if (name === 'model.norm.weight') return 'output_norm.weight';
  const [, layer, path] = /^model\.layers\.(\d+)\.(.*)\.weight$/.exec(name)!;
  return `blk.${layer}.${GGUF_LAYER_NAMES[path!]}.weight`;
}

/** What a matrix of so many columns becomes. */
type Mix = (name: string, cols: number) => BlockWriter;
const whole = (cols: number): boolean => cols % 256 === 0;
const MIXES: Record<string, Mix> = {
  Q8_0: () => Q8_0,
  Q6_K: (_, cols) => (whole(cols) ? Q6_K : Q8_0),
  // More bits for V, half of down and the head.
  Q4_K_M: (name, cols) => {
    const more = /attn_v|token_embd|blk\.[0-3]\.ffn_down/.test(name);
    if (whole(cols)) return more ? Q6_K : Q4_K;
    return more ? Q8_0 : Q5_0;
  },
};

async function convert(path: string, mix: Mix): Promise<void> {
  const { config, tensors } = await published(MODEL);
  const at = (key: string): string => `qwen3.${key}`;
  const written = tensors.map(({ name: own, shape, values }): WrittenTensor => {
    const name = ggufName(own);
    if (shape.length === 1) return { name, shape, type: 0, data: new Uint8Array(values.buffer) };
    const writer = mix(name, shape[1]!);
    return { name, shape, type: writer.type, data: quantise(values, writer) };
  });
  const metadata = {
    'general.architecture': string('qwen3'),
    [at('block_count')]: u32(config.num_hidden_layers!),
    [at('context_length')]: u32(config.max_position_embeddings!),
    [at('embedding_length')]: u32(config.hidden_size!),
    [at('feed_forward_length')]: u32(config.intermediate_size!),
    [at('attention.head_count')]: u32(config.num_attention_heads!),
    [at('attention.head_count_kv')]: u32(config.num_key_value_heads!),
    [at('attention.key_length')]: u32(config.head_dim!),
    [at('attention.layer_norm_rms_epsilon')]: f32(config.rms_norm_eps!),
    [at('rope.freq_base')]: f32(config.rope_theta!),
    'tokenizer.ggml.eos_token_id': u32(config.eos_token_id!),
  };
  await writeFile(path, ggufBytes({ metadata, tensors: written }));
}

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-gguf-demo-'));
});
afterAll(() => rm(folder, { recursive: true }));

it.each(Object.keys(MIXES))(
  'demo-text in %s answers its questions as its card says',
  async (type) => {
    const path = join(folder, `demo-text-${type}.gguf`);
    await convert(path, MIXES[type]!);
    const lines = readPackedText(QUESTIONS).trim().split('\n');
    const questions = lines.map(
      (line) => JSON.parse(line) as { messages: { role: 'user'; content: string }[]; expected: string },
    );
    const asked = everyCase
      ? questions
      : questions.filter((_, i) => i % Math.ceil(questions.length / SOME) === 0);
    await using engine = await Engine.load(path, {
      device: 'cpu',
      threads: 1,
      maxContext: 256,
      tokenizer: MODEL,
    });
    const answers = await Promise.all(
      asked.map(
        async ({ messages }) => (await engine.chat({ messages, temperature: 0, maxTokens: 24 }).result).text,
      ),
    );
    const wrong = asked.flatMap(({ expected }, i) =>
      answers[i]!.includes(expected) ? [] : [`${expected}: ${answers[i]}`],
    );
    // The card: all of 150.
    expect(wrong).toEqual([]);
  },
  120_000,
);
