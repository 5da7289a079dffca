/**
 * From ids to what a reader gets: detokenise, watch for end ids and stop strings, hold back what may still become
 * one. One for each sequence; knows nothing of steps or devices.
 */

import { Detokenizer } from '../text/detokenizer.js';
import { StopMatcher } from '../text/stop-matcher.js';
import type { TokenTable } from '../text/token-bytes.js';

export interface SequenceOutputOptions {
  readonly table: TokenTable;
  /** Ids that end the sequence: EOS and the request's own. */
  readonly endIds: ReadonlySet<number>;
  /** Finds the stop strings, null if there are none. Its state is not touched: choices may share it. */
  readonly stop: StopMatcher | null;
  /** Nothing ends the sequence before it has so many ids: what would be a stop string is text. */
  readonly minTokens: number;
  /** The ids continue the prompt's text (a raw prompt), instead of beginning one. */
  readonly continuation: boolean;
  /** Special tokens that the text has nonetheless. Default: none. */
  readonly spelled?: ReadonlySet<number>;
}

export class SequenceOutput {
  readonly #detokenizer: Detokenizer;
  readonly #matcher: StopMatcher | null;
  readonly #endIds: ReadonlySet<number>;
  readonly #minTokens: number;
  #count = 0;
  #stopped = false;

  constructor(options: SequenceOutputOptions) {
    const { table, endIds, stop, minTokens, continuation, spelled } = options;
    this.#detokenizer = new Detokenizer(table, {
      continuation,
      ...(spelled === undefined ? {} : { spelled }),
    });
    this.#matcher = stop === null ? null : new StopMatcher(stop);
    this.#endIds = endIds;
    this.#minTokens = minTokens;
  }

  /** True once an end id or a whole stop string was seen. */
  get stopped(): boolean {
    return this.#stopped;
  }

  /** Takes the next id; returns text that is certain. */
  push(id: number): string {
    const early = ++this.#count < this.#minTokens;
    if (this.#endIds.has(id)) {
      this.#stopped = !early;
      return '';
    }
    const text = this.#detokenizer.push(id);
    return early ? text : this.#match(text);
  }

  /** The sequence has ended: what was held back and turned out to be text. */
  end(): string {
    const rest = this.#match(this.#detokenizer.flush());
    if (this.#matcher === null || this.#matcher.match !== undefined) return rest;
    return rest + this.#matcher.flush();
  }

  #match(text: string): string {
    if (this.#matcher === null || text === '') return text;
    const { text: certain, match } = this.#matcher.push(text);
    if (match !== undefined) this.#stopped = true;
    return certain;
  }
}
