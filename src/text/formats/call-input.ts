/** The text behind the mark of a call, as the readers of calls see it: one character after another, waiting for more between two. */
import { StopMatcher } from '../stop-matcher.js';

/** Work that stops where the text that has arrived ends, and goes on with more. */
export type Reading<T> = Generator<undefined, T, undefined>;

/** Longer names, of tools and arguments, are none. */
const LONGEST_NAME = 256;

/** So much that is no call is looked through for marks once more; of a longer one all is text, so that time stays linear. */
const LOOKED_THROUGH = 256;

export class CallInput {
  #piece = '';
  #at = 0;
  #ended = false;
  /** All that arrived, until a call has begun. */
  #all: string | null = '';
  #allRead = 0;
  #kept: string | null = null;

  push(text: string): void {
    this.#piece = text;
    this.#at = 0;
    if (this.#all !== null) this.#all += text;
  }

  /** The answer is over. */
  end(): void {
    this.#ended = true;
  }

  /** There is a character to read now. */
  get ready(): boolean {
    return this.#at < this.#piece.length;
  }

  /** What has arrived and is not read. */
  get unread(): string {
    return this.#piece.slice(this.#at);
  }

  /** Of what is no call: what is certainly text, and what is to be looked through for marks. */
  get refused(): { readonly text: string; readonly rest: string } {
    const all = this.#all ?? '';
    return this.#allRead <= LOOKED_THROUGH
      ? { text: '', rest: all }
      : { text: all.slice(0, this.#allRead), rest: all.slice(this.#allRead) };
  }

  /** A call has begun: what was read will not be text again. */
  begun(): void {
    this.#all = null;
    this.#kept = null;
  }

  /** From here on what is read is kept, until a call has begun. */
  keep(): void {
    this.#kept = '';
  }

  get kept(): string {
    return this.#kept ?? '';
  }

  /** The next character, which must be there. */
  take(): string {
    const char = this.#piece[this.#at]!;
    this.#took(1);
    return char;
  }

  /** Whether there is more: waits for it, and is false at the end of the answer. */
  *more(): Reading<boolean> {
    while (!this.ready && !this.#ended) yield;
    return this.ready;
  }

  /** The next character, not taken; empty at the end of the answer. */
  *peek(): Reading<string> {
    return (yield* this.more()) ? this.#piece[this.#at]! : '';
  }

  /** Takes white space, and returns it. */
  *gap(): Reading<string> {
    let gap = '';
    while ((yield* this.more()) && /\s/.test(this.#piece[this.#at]!)) gap += this.take();
    return gap;
  }

  /** Takes white space; returns the character behind it, which is not taken. */
  *next(): Reading<string> {
    yield* this.gap();
    return yield* this.peek();
  }

  /** Takes a text that must stand here; false at the first character that differs. */
  *literal(text: string): Reading<boolean> {
    for (const char of text) {
      if ((yield* this.peek()) !== char) return false;
      this.take();
    }
    return true;
  }

  /**
   * Takes all up to one of the marks, and that. `emit` is given what comes before it, as it comes.
   *
   * @returns the mark, null where the answer ends before one
   */
  *until(marks: readonly string[], emit: (text: string) => void): Reading<string | null> {
    const matcher = matcherOf(marks);
    for (;;) {
      if (!(yield* this.more())) {
        emit(matcher.flush());
        return null;
      }
      const held = matcher.heldLength;
      const { text, match } = matcher.push(this.unread);
      emit(text);
      if (match !== undefined) {
        this.#took(text.length + match.stop.length - held);
        return match.stop;
      }
      this.#took(this.#piece.length - this.#at);
    }
  }

  /** A name and the mark behind it; null where none can come, so that nothing is held for long. */
  *name(
    marks: readonly string[],
    accepts = isName,
  ): Reading<{ readonly name: string; readonly mark: string } | null> {
    const matcher = matcherOf(marks);
    let name = '';
    while ((yield* this.more()) && name.length <= LONGEST_NAME) {
      const { text, match } = matcher.push(this.take());
      name += text;
      if (match !== undefined) return accepts(name.trim()) ? { name: name.trim(), mark: match.stop } : null;
      if (!/^\s*\S*\s*$/.test(name)) return null;
    }
    return null;
  }

  #took(count: number): void {
    if (this.#kept !== null) this.#kept += this.#piece.slice(this.#at, this.#at + count);
    if (this.#all !== null) this.#allRead += count;
    this.#at += count;
  }
}

/** Lists of marks are the formats' own and stay: the automaton of each is made once. */
const matchers = new WeakMap<readonly string[], StopMatcher>();

function matcherOf(marks: readonly string[]): StopMatcher {
  let matcher = matchers.get(marks);
  if (matcher === undefined) {
    matcher = new StopMatcher(marks);
    matchers.set(marks, matcher);
  }
  return new StopMatcher(matcher);
}

/** A name of a tool: no white space, brackets or quotes in it. */
export const isName = (name: string): boolean =>
  name.length <= LONGEST_NAME && /^[^\s<>{}()[\]"'`|]+$/.test(name);

/** A name of an argument in tags: `filter[size]` is one too. */
export const isArgumentName = (name: string): boolean =>
  name.length <= LONGEST_NAME && /^[^\s<>{}"'`|]+$/.test(name);
