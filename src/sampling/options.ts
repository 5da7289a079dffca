/**
 * Sampling parameters: what a request may say, and what it means with every default filled in. Plain data; what is
 * accepted is in schema.ts, what each does in docs/sampling.md.
 */

export const LOGPROBS_MODES = ['raw', 'processed'] as const;
/** `raw`: of the model's own logits. `processed`: of the logits after mask, bias and penalties. */
export type LogprobsMode = (typeof LOGPROBS_MODES)[number];

/** What a request may say. Null and undefined mean: take the default. */
export interface SamplingOptions {
  /** 0 (greedy) to 100. Below 1e-5 counts as 0. */
  readonly temperature?: number | null | undefined;
  /** Keep the smallest set of most likely tokens whose mass reaches it; 1 is off. */
  readonly topP?: number | null | undefined;
  /** Keep the k most likely tokens; 0 and −1 are off. */
  readonly topK?: number | null | undefined;
  /** Drop tokens less likely than so much of the most likely one; 0 is off. */
  readonly minP?: number | null | undefined;
  /** Keep the tokens of most typical surprise that hold so much mass; 1 is off. */
  readonly typicalP?: number | null | undefined;
  /** Keep logits within so many standard deviations of the largest; 0 and −1 are off. */
  readonly topNSigma?: number | null | undefined;
  /** Chance that the top choices are left out of a draw; 0 is off. */
  readonly xtcProbability?: number | null | undefined;
  /** What counts as a top choice. Default 0.1. */
  readonly xtcThreshold?: number | null | undefined;
  /** 2: mirostat 2 in place of the filters; 0 is off. */
  readonly mirostat?: number | null | undefined;
  /** Surprise aimed at, in bits. Default 5. */
  readonly mirostatTau?: number | null | undefined;
  /** How fast it adapts. Default 0.1. */
  readonly mirostatEta?: number | null | undefined;
  /** Divides positive and multiplies negative logits of tokens seen; 1 is off. */
  readonly repetitionPenalty?: number | null | undefined;
  /** So many last tokens, prompt included, count for it; 0 and −1 (the default): all. */
  readonly repetitionContextSize?: number | null | undefined;
  /** Taken off a token's logit for each time it was generated: −2 to 2. */
  readonly frequencyPenalty?: number | null | undefined;
  /** Taken off once a token was generated: −2 to 2. */
  readonly presencePenalty?: number | null | undefined;
  /** Strength of DRY, which keeps the text from repeating sequences; 0 is off. */
  readonly dryMultiplier?: number | null | undefined;
  /** Growth of DRY with the length of a repetition. Default 1.75. */
  readonly dryBase?: number | null | undefined;
  /** Repetitions shorter than this are free. Default 2. */
  readonly dryAllowedLength?: number | null | undefined;
  /** Tokens that DRY looks back on; −1 (the default): all, 0: DRY is off. */
  readonly dryPenaltyLastN?: number | null | undefined;
  /** Texts that end a repetition. Default newline, colon, double quote, asterisk. */
  readonly drySequenceBreakers?: readonly string[] | null | undefined;
  /** Added to the logits of ids: −100 to 100. */
  readonly logitBias?: Readonly<Record<string, number>> | null | undefined;
  /** Texts that are not to be generated, as the tokenizer spells them. */
  readonly badWords?: readonly string[] | null | undefined;
  /** Ids that are not to be generated. */
  readonly suppressTokens?: readonly number[] | null | undefined;
  /** No end before so many tokens. */
  readonly minTokens?: number | null | undefined;
  /** Ids that end an answer beside the model's own. */
  readonly stopTokenIds?: readonly number[] | null | undefined;
  /** Any safe integer. Without one a seed is drawn and reported. */
  readonly seed?: number | null | undefined;
  /** Most tokens of a choice. Default: what the context leaves. */
  readonly maxTokens?: number | null | undefined;
  /** Up to 16 strings that end the text and are not part of it. */
  readonly stop?: string | readonly string[] | null | undefined;
  /** Independent answers to the same prompt. */
  readonly n?: number | null | undefined;
  /** Draw so many answers and give the `n` with the highest mean log-probability. */
  readonly bestOf?: number | null | undefined;
  /** Go on after an EOS token (benchmarks). */
  readonly ignoreEos?: boolean | null | undefined;
  /** The log-probability of every token, and its rank. */
  readonly logprobs?: boolean | null | undefined;
  /** With `logprobs`: so many alternatives each, 0 to 20. */
  readonly topLogprobs?: number | null | undefined;
  /** Default `raw`. */
  readonly logprobsMode?: LogprobsMode | null | undefined;
}

/** Parameters with every default filled in. */
export interface SamplingParams {
  /** 0: greedy. */
  readonly temperature: number;
  /** 0: off. */
  readonly topK: number;
  /** 1: off. */
  readonly topP: number;
  /** 0: off. */
  readonly minP: number;
  /** 1: off. */
  readonly typicalP: number;
  /** 0: off. */
  readonly topNSigma: number;
  readonly xtc: { readonly probability: number; readonly threshold: number } | null;
  /** Then the filters are off. */
  readonly mirostat: { readonly tau: number; readonly eta: number } | null;
  /** 1: off. */
  readonly repetitionPenalty: number;
  /** 0: all. */
  readonly repetitionContextSize: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  readonly dry: DryParams | null;
  /** Ascending ids, no id twice. */
  readonly logitBias: readonly (readonly [id: number, bias: number])[];
  readonly badWords: readonly string[];
  readonly suppressTokens: readonly number[];
  readonly minTokens: number;
  readonly stopTokenIds: readonly number[];
  readonly seed: number;
  /** Null: as far as the context goes. */
  readonly maxTokens: number | null;
  readonly stop: readonly string[];
  readonly n: number;
  /** At least `n`. */
  readonly bestOf: number;
  readonly ignoreEos: boolean;
  /** Alternatives beside each token's own; null: no log-probabilities. */
  readonly logprobs: number | null;
  readonly logprobsMode: LogprobsMode;
}

export interface DryParams {
  readonly multiplier: number;
  readonly base: number;
  readonly allowedLength: number;
  /** 0: all. */
  readonly window: number;
  readonly breakers: readonly string[];
}
