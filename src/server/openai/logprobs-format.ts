/** Log-probabilities in OpenAI's two shapes, as they come: what has no chunk to go with waits for the next one. */
import type { FinishReason, TokenLogprobs } from '../../engine/types.js';
import type { AnswerKind } from './answer-kind.js';
import { TextOffsets } from './text-offsets.js';

/** JSON has no −∞; OpenAI writes this for what could not be. */
const IMPOSSIBLE = -9999;

export interface LogprobsOptions {
  readonly kind: AnswerKind;
  /** Special tokens spelled out. */
  readonly bytesOf: (id: number) => Uint8Array;
  /** What an id adds to the answer's text: nothing for special tokens. */
  readonly textBytesOf: (id: number) => Uint8Array;
  /** Ids that end an answer: they are no part of it, and not listed. */
  readonly endIds: ReadonlySet<number>;
}

/** What is new about a choice, of a delta or of a whole result. */
interface Arrived {
  readonly logprobs?: readonly TokenLogprobs[];
  readonly finishReason: FinishReason | null;
}

/** One for each choice. */
export class LogprobsWriter {
  readonly #options: LogprobsOptions;
  #pending: TokenLogprobs[] = [];
  readonly #offsets = new TextOffsets();

  constructor(options: LogprobsOptions) {
    this.#options = options;
  }

  push({ logprobs = [], finishReason }: Arrived): this {
    const last = logprobs.at(-1);
    const ended = finishReason === 'stop' && last !== undefined && this.#options.endIds.has(last.id);
    this.#pending.push(...(ended ? logprobs.slice(0, -1) : logprobs));
    return this;
  }

  /** The `logprobs` of a choice or chunk; null if there is nothing new. */
  take(): object | null {
    const tokens = this.#pending;
    if (tokens.length === 0) return null;
    this.#pending = [];
    return this.#options.kind === 'chat' ? this.#chat(tokens) : this.#text(tokens);
  }

  #chat(tokens: readonly TokenLogprobs[]): object {
    const entry = ({ id, logprob }: { readonly id: number; readonly logprob: number }): object => {
      const bytes = this.#options.bytesOf(id);
      return { token: tokenText(bytes), logprob: finite(logprob), bytes: [...bytes] };
    };
    const content = tokens.map((token) => ({ ...entry(token), top_logprobs: token.top.map(entry) }));
    return { content, refusal: null };
  }

  #text(tokens: readonly TokenLogprobs[]): object {
    const { bytesOf, textBytesOf } = this.#options;
    const textOf = (id: number): string => tokenText(bytesOf(id));
    return {
      tokens: tokens.map(({ id }) => textOf(id)),
      token_logprobs: tokens.map(({ logprob }) => finite(logprob)),
      // The token itself is always among them, so that there may be one more than was asked for.
      top_logprobs: tokens.map((token) =>
        Object.fromEntries([...token.top, token].map(({ id, logprob }) => [textOf(id), finite(logprob)])),
      ),
      text_offset: tokens.map(({ id }) => this.#offsets.next(textBytesOf(id))),
    };
  }
}

function finite(logprob: number): number {
  return Math.max(IMPOSSIBLE, logprob);
}

/** Text of a token; one that is no whole characters is written as OpenAI does: `bytes:\xe2\x82`. */
function tokenText(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return `bytes:${Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')}`;
  }
}
