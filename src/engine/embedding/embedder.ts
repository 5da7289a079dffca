/** Embeddings of texts: each is a request for hidden states, which become a vector on this side. */

import { KvantError } from '../../errors.js';
import { POOLINGS, type Pooling } from '../pooling.js';
import type { Requests } from '../requests.js';
import { inputTooLong } from '../texts/prompt-task.js';
import type { EngineInfo } from '../types.js';
import { checkEmbedOptions, type EmbedInput, type EmbedOptions, inputsOf, takes } from './embed-request.js';
import { many } from './many.js';
import type { EmbeddingSettings } from './settings.js';
import { dense, unit } from './vectors.js';

export interface EmbedResult {
  /** One for each text, in their order: `[dimensions]`. */
  readonly embeddings: readonly Float32Array[];
  readonly usage: EmbedUsage;
}

export interface EmbedUsage {
  /** Tokens of all texts together, prompts and special tokens included. */
  readonly promptTokens: number;
  /** Of those, tokens that the prefix cache had. */
  readonly cachedTokens: number;
  readonly totalTokens: number;
}

export class Embedder {
  readonly #requests: Requests;
  readonly #info: EngineInfo;
  readonly #settings: EmbeddingSettings | null;

  /** `settings`: null for a model that says nothing of embeddings. */
  constructor(requests: Requests, info: EngineInfo, settings: EmbeddingSettings | null) {
    this.#requests = requests;
    this.#info = info;
    this.#settings = settings;
  }

  /** See `Engine.embed`. */
  async embed(input: EmbedInput | readonly EmbedInput[], options: EmbedOptions = {}): Promise<EmbedResult> {
    checkEmbedOptions(options);
    const { normalize, dimensions, truncate = false, pooling: asked, task, prompt, ...queue } = options;
    const pooling = this.#pooling(asked);
    const before = this.#before(task, prompt);
    this.#checkSize(dimensions);
    const texts = inputsOf(input);
    const { maxTokens } = this.#info.embedding!;
    const embeddings: Float32Array[] = [];
    let promptTokens = 0;
    let cachedTokens = 0;
    await many(
      texts,
      2 * this.#info.limits.maxRows,
      options.signal,
      (text, index) =>
        this.#requests.start(
          { prompt: '', ...queue, maxTokens: 1, temperature: 0 },
          HIDDEN_FIELDS,
          () => {
            if (typeof text === 'string') {
              if (before + text === '') throw empty(index);
              return { kind: 'input', text: before + text, most: maxTokens, truncate };
            }
            if (text.length === 0) throw empty(index);
            if (text.length > maxTokens && !truncate) throw inputTooLong(text.length, maxTokens);
            return { kind: 'ids', ids: Int32Array.from(text.slice(0, maxTokens)), chatEnd: null };
          },
          pooling,
        ),
      (result, stream, index) => {
        promptTokens += result.usage.promptTokens;
        cachedTokens += result.usage.cachedTokens;
        embeddings[index] = this.#vector(stream.hidden!, normalize, dimensions);
      },
    );
    return { embeddings, usage: { promptTokens, cachedTokens, totalTokens: promptTokens } };
  }

  #vector(
    hidden: Float32Array,
    normalize: boolean | undefined,
    dimensions: number | undefined,
  ): Float32Array {
    const settings = this.#settings;
    let x = hidden;
    for (const layer of settings?.dense ?? []) x = dense(x, layer);
    if (dimensions !== undefined) x = x.slice(0, dimensions);
    return (normalize ?? settings?.normalize ?? true) ? unit(x) : x;
  }

  /** Errors: `embeddings-off`, `pooling-unavailable`. */
  #pooling(asked: Pooling | undefined): Pooling {
    const { embedding } = this.#info;
    if (embedding === null)
      throw new KvantError(
        'embeddings-off',
        `${this.#info.name} says nothing of embeddings, and was loaded to write text.`,
        {
          kind: 'unsupported',
          where: 'embed',
          fix: 'Load it with `pooling: "last"` or "mean" (`--pooling`), or use a model made for embeddings.',
        },
      );
    const pooling = asked ?? embedding.pooling;
    if (pooling === null) throw takes('pooling', `${POOLINGS.join(', ')}: the checkpoint says none`);
    if (pooling !== 'last' && embedding.poolings.length === 1)
      throw new KvantError('pooling-unavailable', `Steps bring the hidden states of last tokens alone.`, {
        kind: 'invalid-request',
        where: 'pooling',
        fix: `Load the model with \`pooling: "${pooling}"\`.`,
      });
    return pooling;
  }

  /** What stands before each text. Errors: `invalid-parameter`. */
  #before(task: string | undefined, prompt: string | undefined): string {
    if (prompt !== undefined) return prompt;
    const { prompts = {}, defaultPrompt = null } = this.#settings ?? {};
    const name = task ?? defaultPrompt;
    if (name === null) return '';
    if (Object.hasOwn(prompts, name)) return prompts[name]!;
    const known = Object.keys(prompts);
    throw takes('task', known.length === 0 ? 'no name: the model has no prompts' : known.join(', '));
  }

  /** Errors: `invalid-parameter`. */
  #checkSize(dimensions: number | undefined): void {
    if (dimensions === undefined) return;
    const { size } = this.#info.embedding!;
    const known = this.#settings?.dimensions ?? null;
    if (dimensions > size) throw takes('dimensions', `at most ${size}, which embeddings have here`);
    if (known !== null && dimensions !== size && !known.includes(dimensions))
      throw takes('dimensions', `one of ${[...known].join(', ')}, which the model was trained for`);
  }
}

const HIDDEN_FIELDS = ['prompt', 'signal', 'requestId', 'priority', 'share', 'queueTimeoutMs', 'cacheSalt'];

function empty(index: number): KvantError {
  return new KvantError('prompt-empty', `Text ${index} is empty.`, {
    kind: 'invalid-request',
    where: `input[${index}]`,
    fix: 'Leave it out.',
  });
}
