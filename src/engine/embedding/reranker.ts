/**
 * How well documents answer a query: by an encoder with a head for it, which reads query and document as a pair (ranking-head.ts), or by a model that
 * was trained to answer "yes" or "no" (Qwen3-Reranker). There the score of a document is the softmax over the logits of these two tokens
 * behind the prompt. Source of the prompt: the model's card.
 */

import { KvantError } from '../../errors.js';
import { checkOptionNames, type OptionNames } from '../../option-names.js';
import type { ModelText } from '../model-text.js';
import type { Requests } from '../requests.js';
import type { EngineInfo } from '../types.js';
import { checkSignal, QUEUE_OPTIONS, type QueueOptions, takes } from './embed-request.js';
import type { EmbedUsage } from './embedder.js';
import { many } from './many.js';
import { scoreOf } from './ranking-head.js';
import type { RankingHead } from './vectors.js';

export interface RerankOptions extends QueueOptions {
  /** What the documents are wanted for. Default: passages that answer a web search. */
  readonly instruction?: string | undefined;
  /** `yes-no`: the model judges in words, as Qwen3-Reranker does. Default for models that are called rerankers. */
  readonly method?: 'yes-no' | undefined;
  /** What it says of a document that answers and of one that does not, each a token. Default `yes` and `no`. */
  readonly words?: readonly [answers: string, other: string] | undefined;
  /** Encoders: cut documents that are too long beside the query, at their end. Default false: they are refused. */
  readonly truncate?: boolean | undefined;
}

export interface RerankResult {
  /** One for each document, in their order: 0 to 1. */
  readonly scores: readonly number[];
  readonly usage: EmbedUsage;
}

const RERANK_OPTIONS: OptionNames<RerankOptions> = {
  ...QUEUE_OPTIONS,
  instruction: true,
  method: true,
  words: true,
  truncate: true,
};

const FIELDS = ['prompt', ...Object.keys(QUEUE_OPTIONS)];

const INSTRUCTION = 'Given a web search query, retrieve relevant passages that answer the query';
const SYSTEM =
  'Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".';

/** The prompt for one document. */
export function rerankPrompt(instruction: string, query: string, document: string): string {
  const asked = `<Instruct>: ${instruction}\n<Query>: ${query}\n<Document>: ${document}`;
  return `<|im_start|>system\n${SYSTEM}<|im_end|>\n<|im_start|>user\n${asked}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n`;
}

export class Reranker {
  readonly #requests: Requests;
  readonly #info: EngineInfo;
  readonly #text: ModelText;
  readonly #head: RankingHead | null;

  /** `head`: null for a model that has none. */
  constructor(requests: Requests, info: EngineInfo, text: ModelText, head: RankingHead | null) {
    this.#requests = requests;
    this.#info = info;
    this.#text = text;
    this.#head = head;
  }

  /** See `Engine.rerank`. */
  async rerank(
    query: string,
    documents: readonly string[],
    options: RerankOptions = {},
  ): Promise<RerankResult> {
    checkOptionNames(options, RERANK_OPTIONS, 'rerank');
    checkSignal(options);
    const { instruction = INSTRUCTION, method, words = ['yes', 'no'], truncate, ...queue } = options;
    if (typeof query !== 'string' || query === '') throw takes('query', 'a text');
    if (truncate !== undefined && typeof truncate !== 'boolean') throw takes('truncate', 'true or false');
    if (this.#head !== null) return this.#byHead(this.#head, query, documents, options);
    if (truncate !== undefined) throw takes('truncate', 'nothing: this model does not read pairs of texts');
    if (typeof instruction !== 'string') throw takes('instruction', 'a text');
    if (method !== undefined && method !== 'yes-no') throw takes('method', 'yes-no');
    checkDocuments(documents);
    if (!isPair(words)) throw takes('words', 'two different texts');
    const [yes, no] = words.map((word) => this.#token(word, method)) as [number, number];
    const scores: number[] = [];
    let promptTokens = 0;
    let cachedTokens = 0;
    await many(
      documents as readonly string[],
      2 * this.#info.limits.maxRows,
      options.signal,
      (document) =>
        this.#requests.start({ prompt: '', ...queue, ...likelihoods(yes, no) }, FIELDS, () => ({
          kind: 'text',
          text: rerankPrompt(instruction, query, document),
          addSpecialTokens: false,
        })),
      ({ choices, usage }, _, index) => {
        const top = choices[0]!.logprobs![0]!.top;
        const logprob = (id: number): number => top.find((one) => one.id === id)?.logprob ?? Number.NaN;
        scores[index] = 1 / (1 + Math.exp(logprob(no) - logprob(yes)));
        promptTokens += usage.promptTokens;
        cachedTokens += usage.cachedTokens;
      },
    );
    return { scores, usage: { promptTokens, cachedTokens, totalTokens: promptTokens } };
  }

  async #byHead(
    head: RankingHead,
    query: string,
    documents: readonly string[],
    { instruction, method, words, truncate = false, ...queue }: RerankOptions,
  ): Promise<RerankResult> {
    for (const [name, value] of Object.entries({ instruction, method, words }))
      if (value !== undefined) throw takes(name, 'nothing: this model ranks by a head of its own');
    checkDocuments(documents);
    const most = this.#info.limits.maxContext;
    const scores: number[] = [];
    let promptTokens = 0;
    await many(
      documents,
      2 * this.#info.limits.maxRows,
      queue.signal,
      (second) =>
        this.#requests.start(
          { prompt: '', ...queue, maxTokens: 1, temperature: 0 },
          FIELDS,
          () => ({ kind: 'pair', text: query, second, most, truncate }),
          head.pooling,
        ),
      ({ usage }, stream, index) => {
        scores[index] = scoreOf(stream.hidden!, head);
        promptTokens += usage.promptTokens;
      },
    );
    return { scores, usage: { promptTokens, cachedTokens: 0, totalTokens: promptTokens } };
  }

  /** Errors: `rerank-unsupported`. */
  #token(word: string, method: RerankOptions['method']): number {
    const ids = this.#text.encode(word, false);
    const named = method !== undefined || /rerank/i.test(this.#info.name);
    if (named && ids.length === 1) return ids[0]!;
    throw new KvantError(
      'rerank-unsupported',
      named
        ? `${this.#info.name} has no token for ${JSON.stringify(word)}.`
        : `${this.#info.name} does not say that it ranks documents.`,
      {
        kind: 'unsupported',
        where: 'method',
        fix: named
          ? 'Use a model such as Qwen3-Reranker.'
          : 'Use a model such as Qwen3-Reranker or bge-reranker-v2-m3, or say `method: "yes-no"`.',
      },
    );
  }
}

/** Errors: `invalid-parameter`. */
function checkDocuments(documents: readonly string[]): void {
  if (!Array.isArray(documents) || documents.some((one) => typeof one !== 'string'))
    throw takes('documents', 'a list of texts');
}

function isPair(words: unknown): boolean {
  if (!Array.isArray(words) || words.length !== 2 || words[0] === words[1]) return false;
  return words.every((word) => typeof word === 'string');
}

/** Moved up by as much, the two are the likeliest tokens, and the difference of their logits stays. */
const LIFT = 100;

function likelihoods(yes: number, no: number) {
  return {
    maxTokens: 1,
    temperature: 0,
    logprobs: true,
    topLogprobs: 2,
    logprobsMode: 'processed',
    logitBias: { [yes]: LIFT, [no]: LIFT },
  } as const;
}
