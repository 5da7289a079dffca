import { KvantError } from '../errors.js';

export interface StopMatch {
  /** Index of the matched string in the list the matcher was made with. */
  readonly index: number;
  readonly stop: string;
}

export interface StopMatcherOutput {
  /** Text that is certain not to belong to a stop string; may be empty. */
  readonly text: string;
  /** Set once, when a stop string is complete; `text` then ends where the stop string begins. */
  readonly match: StopMatch | undefined;
}

/** A state of the automaton: the text read ends with this prefix of a stop string, and with no longer one. */
interface State {
  /** Length of the prefix, in UTF-16 units: what has to be held back in this state. */
  readonly depth: number;
  readonly next: Map<number, State>;
  /** The state of the longest proper suffix of this prefix that is itself a prefix of a stop string. */
  fail: State | undefined;
  /** The longest stop string that ends here, or -1. */
  match: number;
}

/**
 * Finds stop strings in a text that arrives in pieces and holds back exactly what may still become one.
 *
 * The match that is complete first wins; of those complete at the same character, the one that begins first. So
 * the result does not depend on where the pieces were cut. Aho and Corasick's automaton (CACM 18(6), 1975):
 * amortised constant time per character, however many stop strings there are.
 */
export class StopMatcher {
  readonly #stops: readonly string[];
  readonly #root: State;
  #state: State;
  /** The text that is not yet given out: always the prefix that the state stands for. */
  #held = '';
  #match: StopMatch | undefined;

  /**
   * @param stops the strings, or a matcher whose strings to look for in another text: both share the automaton
   * @throws KvantError `invalid-stop`: an empty stop string, or one with half a surrogate pair
   */
  constructor(stops: readonly string[] | StopMatcher) {
    if (stops instanceof StopMatcher) {
      this.#stops = stops.#stops;
      this.#root = stops.#root;
      this.#state = this.#root;
      return;
    }
    stops.forEach((stop, i) => {
      if (typeof stop !== 'string' || stop.length === 0) {
        throw invalidStop(i, 'is empty', 'Leave the empty string out; it would match everywhere.');
      }
      // `isWellFormed` has no declaration in ES2023's library.
      if (/\p{Surrogate}/u.test(stop)) {
        throw invalidStop(
          i,
          'holds half a surrogate pair',
          'Send whole characters; half of one never occurs.',
        );
      }
    });
    this.#stops = [...stops];
    this.#root = buildAutomaton(stops);
    this.#state = this.#root;
  }

  /**
   * Takes the next piece of text.
   *
   * After a match everything further is swallowed: the output of later calls is empty.
   */
  push(piece: string): StopMatcherOutput {
    if (this.#match !== undefined) return { text: '', match: undefined };
    if (this.#stops.length === 0) return { text: piece, match: undefined };
    const root = this.#root;
    let state = this.#state;
    for (let i = 0; i < piece.length; i++) {
      const unit = piece.charCodeAt(i);
      let next = state.next.get(unit);
      while (next === undefined && state !== root) {
        state = state.fail ?? root;
        next = state.next.get(unit);
      }
      state = next ?? root;
      if (state.match >= 0) {
        const stop = this.#stops[state.match]!;
        const read = this.#held + piece.slice(0, i + 1);
        this.#match = { index: state.match, stop };
        this.#held = '';
        return { text: read.slice(0, read.length - stop.length), match: this.#match };
      }
    }
    this.#state = state;
    const read = this.#held + piece;
    const cut = read.length - state.depth;
    this.#held = read.slice(cut);
    return { text: read.slice(0, cut), match: undefined };
  }

  /** The text ends: gives out what was held back. The matcher then begins a new text. */
  flush(): string {
    const text = this.#held;
    this.#held = '';
    this.#state = this.#root;
    this.#match = undefined;
    return text;
  }

  /** The match, once there is one. */
  get match(): StopMatch | undefined {
    return this.#match;
  }

  /** UTF-16 units held back at the moment. */
  get heldLength(): number {
    return this.#held.length;
  }
}

function invalidStop(index: number, what: string, fix: string): KvantError {
  return new KvantError('invalid-stop', `Stop string ${index} ${what}`, {
    kind: 'invalid-request',
    where: `stop[${index}]`,
    fix,
  });
}

function newState(depth: number): State {
  return { depth, next: new Map(), fail: undefined, match: -1 };
}

function buildAutomaton(stops: readonly string[]): State {
  const root = newState(0);
  stops.forEach((stop, index) => {
    let state = root;
    for (let i = 0; i < stop.length; i++) {
      const unit = stop.charCodeAt(i);
      let next = state.next.get(unit);
      if (next === undefined) {
        next = newState(i + 1);
        state.next.set(unit, next);
      }
      state = next;
    }
    if (state.match < 0) state.match = index;
  });

  // Breadth first, so that the shorter prefixes a state falls back to are finished before it.
  const queue: State[] = [root];
  for (const state of queue) {
    for (const [unit, child] of state.next) {
      let fallback = state.fail;
      while (fallback !== undefined && !fallback.next.has(unit)) fallback = fallback.fail;
      child.fail = fallback?.next.get(unit) ?? root;
      if (child.match < 0) child.match = child.fail.match;
      queue.push(child);
    }
  }
  return root;
}
