/**
 * Reads bytes and tokens by a grammar's tables. A grammar may be at several places at once; a ParserState is all of them: small,
 * immutable, and one object for the same places, so that what is found out about it (where a byte leads, which tokens may come) is
 * found out once.
 */

import { KvantError } from '../errors.js';
import { type GrammarTables, NO_END, STATE } from './tables.js';

/** Where to go on when a rule is over. Null is the end of the answer. */
export interface Frame {
  readonly serial: number;
  readonly to: number;
  /** The count of the run that called. */
  readonly count: number;
  readonly parent: Frame | null;
}

export interface Place {
  readonly state: number;
  readonly count: number;
  readonly frame: Frame | null;
}

export interface ParserState {
  /** Where it is in {@link Matcher.states}; 0 for one that is not there any more. */
  index: number;
  readonly places: readonly Place[];
  /** The answer may end here. */
  readonly done: boolean;
  /** The rule that it was watched in may be over here: see {@link Matcher.within}. */
  readonly left: boolean;
}

/** A frame below which nothing is known. */
const BOTTOM: Frame = { serial: -1, to: -1, count: 0, parent: null };

/** Index of the state that nothing leads out of. */
export const NOWHERE = 1;
/** What a walk has to know of a state at each node: {@link Matcher.marks}. */
export const MARK = {
  /** See {@link ParserState.left}. */
  LEFT: 1,
  /** No byte may come. */
  STUCK: 2,
  /** A fact that masks ask for once a state: whether they have, and what it was. */
  ANY_ASKED: 4,
  ANY: 8,
} as const;
/** States there is room for at first; it doubles. */
const FIRST_STATES = 32;
/** What is known is forgotten when it is more than this. */
const MAX_KNOWN_STATES = 2048;
const MAX_KNOWN_FRAMES = 16_384;
/** Places at once: more has only a grammar that means the same in very many ways. */
const MAX_PLACES = 4096;
/**
 * Places that may be looked at for one mask, and what a new state counts as: only a grammar that means the same in very many ways, or
 * is somewhere else after each text, takes more than some thousand.
 */
const MAX_WORK = 100_000;
const STATE_WORK = 16;
/** States at one place are told apart by a number, with this many counts. */
const COUNTS = 1024;
/** Rules within rules. Recursion may go on for ever. */
const MAX_FRAMES = 10_000;

export class Matcher {
  readonly tables: GrammarTables;
  /** States by their index. */
  readonly states: ParserState[] = [];
  /**
   * `[states][256]`: the index of the state that a byte leads to; 0 is not known yet, 1 is nowhere. It is another array once there are
   * more states than fit.
   */
  table = new Int32Array(FIRST_STATES * 256);
  /** By index: bits of {@link MARK}. Another array when `table` is. */
  marks = new Uint8Array(FIRST_STATES);
  /** By index: kinds of characters that lead from a state to itself (byte-classes.ts); −1: not known yet. Another array when `table` is. */
  rounds = new Int16Array(FIRST_STATES).fill(-1);
  /** By index: how many plain characters a state takes, whatever they are (trie-walk.ts); −1: not known yet. Another array when `table` is. */
  plain = new Int16Array(FIRST_STATES).fill(-1);
  #known = new Map<string, ParserState>();
  /** Those at one place without a count, by the place. */
  #single = new Map<number, ParserState>();
  /** What is reached from one place, by the place. */
  #unsettled = new Map<number, ParserState>();
  #frames = new Map<string, Frame>();
  #serial = 0;
  #work = 0;
  readonly #depths = new WeakMap<Frame, number>();
  readonly #hasTokens: boolean;
  readonly #nowhere: ParserState;
  readonly start: ParserState;

  constructor(tables: GrammarTables) {
    this.tables = tables;
    this.#hasTokens = tables.tokenId.length > 0;
    this.#nowhere = { index: NOWHERE, places: [], done: false, left: false };
    this.#reset();
    this.start = this.#settle([{ state: tables.start[0]!, count: 0, frame: null }]);
  }

  /** Where a byte leads; null if it may not come. */
  step(state: ParserState, byte: number): ParserState | null {
    if (this.states[state.index] !== state) return this.#found(this.#leads(state, byte));
    const known = this.table[(state.index << 8) | byte]!;
    const index = known === 0 ? this.stepIndex(state.index, byte) : known;
    return index === NOWHERE ? null : this.states[index]!;
  }

  /** The same by index, for walks: the number stands until {@link makeRoom} is called. */
  stepIndex(index: number, byte: number): number {
    const next = this.#leads(this.states[index]!, byte).index;
    this.table[(index << 8) | byte] = next;
    return next;
  }

  /** Where a token leads, by its id and by its bytes; null if it may not come. `bytes`: null for one that bytes do not spell. */
  advance(state: ParserState, id: number, bytes: Uint8Array | null): ParserState | null {
    const named = this.#hasTokens ? this.stepToken(state, id) : null;
    if (bytes === null) return named;
    let read: ParserState | null = state;
    for (const byte of bytes) {
      read = this.step(read, byte);
      if (read === null) return named;
    }
    return named === null ? read : this.#union(named, read);
  }

  /** Where a token leads by its id alone; null if it may not come. */
  stepToken(state: ParserState, id: number): ParserState | null {
    const { tokenAt, tokenId, tokenTo } = this.tables;
    const to: Place[] = [];
    for (const place of state.places)
      for (let e = tokenAt[place.state]!; e < tokenAt[place.state + 1]!; e++)
        if (tokenId[e] === id) to.push({ ...place, state: tokenTo[e]! });
    return this.#found(this.#settle(to));
  }

  #union(a: ParserState, b: ParserState): ParserState {
    const key = ({ state, count, frame }: Place): string =>
      `${state},${count},${frame === null ? '' : frame.serial}`;
    const kept = new Map([...a.places, ...b.places].map((place) => [key(place), place]));
    return this.#stateOf(
      [...kept].map(([one, place]) => ({ key: one, place })),
      a.done || b.done,
      a.left || b.left,
    );
  }

  /** A rule's place by itself: what is above it is not known, and `left` says when it may be over. */
  within({ state, count }: Place): ParserState {
    return this.#settle([{ state, count, frame: BOTTOM }]);
  }

  /** Where to go on when the rule of a place is over; null if nothing may come. */
  after({ frame }: Place): ParserState | null {
    if (frame === null) return null;
    return this.#found(this.#settle([{ state: frame.to, count: frame.count, frame: frame.parent }]));
  }

  /** Before each mask: forgets what is known where that is much. Indices do not stand any more. */
  makeRoom(): void {
    this.#work = 0;
    if (this.states.length > MAX_KNOWN_STATES || this.#frames.size > MAX_KNOWN_FRAMES) this.#reset();
  }

  #reset(): void {
    for (const state of this.states) if (state !== undefined && state !== this.#nowhere) state.index = 0;
    this.states.length = 0;
    // Index 0 means that a state is not known.
    this.states.push(this.#nowhere, this.#nowhere);
    this.table = new Int32Array(FIRST_STATES * 256).fill(NOWHERE, NOWHERE << 8, (NOWHERE + 1) << 8);
    this.marks = new Uint8Array(FIRST_STATES);
    this.rounds = new Int16Array(FIRST_STATES).fill(-1);
    this.plain = new Int16Array(FIRST_STATES).fill(-1);
    this.#known = new Map();
    this.#single = new Map();
    this.#unsettled = new Map();
    this.#frames = new Map();
  }

  #found(state: ParserState): ParserState | null {
    return state === this.#nowhere ? null : state;
  }

  #leads({ places }: ParserState, byte: number): ParserState {
    const { byteAt, byteLow, byteHigh, byteTo } = this.tables;
    const to: Place[] = [];
    for (const place of places) {
      const end = byteAt[place.state + 1]!;
      for (let e = byteAt[place.state]!; e < end; e++) {
        if (byte > byteHigh[e]!) continue;
        if (byte >= byteLow[e]!) to.push({ state: byteTo[e]!, count: place.count, frame: place.frame });
        break;
      }
    }
    return this.#settle(to);
  }

  /** All places that are reached from these without reading anything. */
  #settle(from: readonly Place[]): ParserState {
    if (from.length === 0) return this.#nowhere;
    const [first] = from;
    if (from.length > 1) return this.#settleAll(from);
    if (this.#isSettled(first!)) return this.#at(first!) ?? this.#settleAll(from);
    // The same place leads to the same ones: many bytes lead to one.
    const key = this.#numberOf(first!);
    let known = key === null ? undefined : this.#unsettled.get(key);
    if (known === undefined) {
      known = this.#settleAll(from);
      if (key !== null) this.#unsettled.set(key, known);
    }
    return known;
  }

  /** Whether nothing is reached from a place without reading. */
  #isSettled({ state }: Place): boolean {
    const { flags, callAt, byteAt } = this.tables;
    return flags[state] === 0 && callAt[state] === callAt[state + 1] && byteAt[state] !== byteAt[state + 1];
  }

  /** Null where there is no number to tell it by. */
  #numberOf({ state, count, frame }: Place): number | null {
    const above = frame === null ? 0 : frame.serial + 2;
    const key = (above * COUNTS + count) * this.tables.ruleOf.length + state;
    // Far numbers are not told apart any more.
    return count >= COUNTS || key > Number.MAX_SAFE_INTEGER ? null : key;
  }

  /** Null where there is no number to tell it by. */
  #at(place: Place): ParserState | null {
    const key = this.#numberOf(place);
    if (key === null) return null;
    let known = this.#single.get(key);
    if (known === undefined) {
      known = this.#add([place], false, false);
      this.#single.set(key, known);
    }
    return known;
  }

  #settleAll(from: readonly Place[]): ParserState {
    const { flags, ruleOf, start, min, max, item, tail, byteAt, callAt, callRule, callTo, tokenAt } =
      this.tables;
    const seen = new Set<string>();
    const kept: { readonly key: string; readonly place: Place }[] = [];
    let done = false;
    let left = false;
    const todo: Place[] = [];
    const visit = (state: number, count: number, frame: Frame | null): void => {
      const key = `${state},${count},${frame === null ? '' : frame.serial}`;
      if (seen.has(key)) return;
      seen.add(key);
      const place = { state, count, frame };
      todo.push(place);
      if (byteAt[state] === byteAt[state + 1] && tokenAt[state] === tokenAt[state + 1]) return;
      kept.push({ key, place });
      if (kept.length > MAX_PLACES) throw ambiguous();
    };
    for (const { state, count, frame } of from) visit(state, count, frame);
    for (let place = todo.pop(); place !== undefined; place = todo.pop()) {
      if (++this.#work > MAX_WORK) throw ambiguous();
      const { state, count, frame } = place;
      const flag = flags[state]!;
      if (flag !== 0) {
        const rule = ruleOf[state]!;
        if ((flag & STATE.FINAL) !== 0) {
          if (frame === null) done = true;
          else if (frame === BOTTOM) left = true;
          else visit(frame.to, frame.count, frame.parent);
        }
        if ((flag & (STATE.HEAD_END | STATE.ITEM_END)) !== 0) {
          const most = max[rule]!;
          const least = min[rule]!;
          let items = (flag & STATE.ITEM_END) !== 0 ? count + 1 : count;
          // Without an end it does not matter how many more than enough there are.
          if (most === NO_END) items = Math.min(items, least);
          if (items < most) visit(item[rule]!, items, frame);
          if (items >= least) visit(tail[rule]!, 0, frame);
        }
      }
      for (let e = callAt[state]!; e < callAt[state + 1]!; e++) {
        const to = callTo[e]!;
        // What is over with the rule it calls need not be come back to.
        const after = (flags[to]! & STATE.LAST) !== 0 ? frame : this.#frame(to, count, frame);
        visit(start[callRule[e]!]!, 0, after);
      }
    }
    return this.#stateOf(kept, done, left);
  }

  #stateOf(
    kept: { readonly key: string; readonly place: Place }[],
    done: boolean,
    left: boolean,
  ): ParserState {
    if (kept.length === 0 && !done && !left) return this.#nowhere;
    const [only] = kept;
    // What is reached by a call may be where a byte leads as well.
    if (kept.length === 1 && !done && !left && this.#isSettled(only!.place)) {
      const known = this.#at(only!.place);
      if (known !== null) return known;
    }
    kept.sort((a, b) => (a.key < b.key ? -1 : 1));
    const key = `${done ? 'd' : ''}${left ? 'l' : ''};${kept.map((one) => one.key).join(';')}`;
    let state = this.#known.get(key);
    if (state === undefined) {
      const places = kept.map(({ place }) => place);
      state = this.#add(places, done, left);
      this.#known.set(key, state);
    }
    return state;
  }

  #add(places: readonly Place[], done: boolean, left: boolean): ParserState {
    this.#work += STATE_WORK;
    if (this.#work > MAX_WORK) throw ambiguous();
    const index = this.states.length;
    if (index === this.marks.length) {
      const [table, marks] = [new Int32Array(2 * this.table.length), new Uint8Array(2 * index)];
      const [rounds, plain] = [new Int16Array(2 * index).fill(-1), new Int16Array(2 * index).fill(-1)];
      table.set(this.table);
      marks.set(this.marks);
      rounds.set(this.rounds);
      plain.set(this.plain);
      [this.table, this.marks, this.rounds, this.plain] = [table, marks, rounds, plain];
    }
    const state = { index, places, done, left };
    // Most bytes lead nowhere: a walk need not find out one by one.
    const { byteAt, byteLow, byteHigh } = this.tables;
    const row = index << 8;
    this.table.fill(NOWHERE, row, row + 256);
    for (const place of places)
      for (let e = byteAt[place.state]!; e < byteAt[place.state + 1]!; e++)
        this.table.fill(0, row | byteLow[e]!, (row | byteHigh[e]!) + 1);
    this.marks[index] = (left ? MARK.LEFT : 0) | (places.length === 0 ? MARK.STUCK : 0);
    this.states.push(state);
    return state;
  }

  #frame(to: number, count: number, parent: Frame | null): Frame {
    const key = `${to},${count},${parent === null ? '' : parent.serial}`;
    let frame = this.#frames.get(key);
    if (frame === undefined) {
      const depth = parent === null ? 1 : (this.#depths.get(parent) ?? 0) + 1;
      if (depth > MAX_FRAMES) throw tooDeep();
      frame = { serial: this.#serial++, to, count, parent };
      this.#depths.set(frame, depth);
      this.#frames.set(key, frame);
    }
    return frame;
  }
}

function ambiguous(): KvantError {
  return new KvantError('grammar-ambiguous', 'The grammar has too many ways to read what has been written.', {
    kind: 'invalid-request',
    fix: 'Write it so that each text can be read in one way, or a few.',
  });
}

function tooDeep(): KvantError {
  return new KvantError('answer-too-deep', `The answer nests more than ${MAX_FRAMES} rules.`, {
    kind: 'invalid-request',
    fix: 'Bound the recursion of the grammar.',
  });
}
