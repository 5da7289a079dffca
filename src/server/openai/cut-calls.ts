/** Calls that a stop string cut: such an answer has not ended for its calls. */
import type { ToolCallDelta } from '../../engine/types.js';
import type { AnswerSetup } from '../protocol.js';
import type { OpenAiAsked } from './schemas.js';

/** Ids that end an answer of their own accord. */
export function endIdsOf({ engine, request }: AnswerSetup<OpenAiAsked>): ReadonlySet<number> {
  const eos = request?.ignoreEos === true ? [] : engine.info.model.eosTokenIds;
  return new Set([...eos, ...(request?.stopTokenIds ?? [])]);
}

/** How a choice that calls has ended, as far as it is known. */
export class CallsSoFar {
  #last = -1;
  #arguments = '';
  #lastId = -1;

  /** How many there are. */
  get count(): number {
    return this.#last + 1;
  }

  push(tokenIds: readonly number[], calls: readonly ToolCallDelta[]): void {
    this.#lastId = tokenIds.at(-1) ?? this.#lastId;
    for (const { index, function: fn } of calls) {
      if (index !== this.#last) this.#arguments = '';
      this.#last = index;
      this.#arguments += fn.arguments;
    }
  }

  /**
   * Whether it broke off within a call without a token that ends answers: a stop string stood there. A model that ends
   * its answer within a call has made a mistake, and meant to call.
   */
  isCut(endIds: ReadonlySet<number>): boolean {
    return this.count > 0 && !endIds.has(this.#lastId) && !isJson(this.#arguments);
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
