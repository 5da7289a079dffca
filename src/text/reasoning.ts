/**
 * Splits an answer that begins with `<think>…</think>`, or what a family has for it, into what the model thought and what it says.
 *
 * Only a block at the very start counts; white space may stand before it. White space around the thoughts and
 * after the block is dropped. A block that is never closed is thought to the end, or to the call that interrupts it. An answer without a block passes
 * unchanged. The pieces in which the text arrives make no difference to the texts that come out.
 */
import { HeldSpace } from './held-space.js';
import { StopMatcher } from './stop-matcher.js';
import { THOUGHT_MARKS, type ThoughtMarks } from './thought-marks.js';

export interface ReasoningPiece {
  readonly reasoning: string;
  readonly content: string;
}

type State =
  /** Nothing but white space and a part of the opening tag so far. */
  | 'start'
  | 'thinking'
  /** Between the block and the first character of the content. */
  | 'after'
  | 'content';

export class ReasoningSplitter {
  readonly #opened: ThoughtMarks | null;
  readonly #interrupts: readonly string[];
  #close: StopMatcher | null = null;
  readonly #space = new HeldSpace();
  #state: State = 'start';
  #held = '';
  #thought = false;

  /**
   * `opened`: the marks of a block that the prompt has opened already, as some templates do. `interrupts`: what ends a block as its
   * closing mark does, and belongs to the content.
   */
  constructor({
    opened = null,
    interrupts = [],
  }: { readonly opened?: ThoughtMarks | null; readonly interrupts?: readonly string[] } = {}) {
    this.#opened = opened;
    this.#interrupts = interrupts;
  }

  /** What comes next is thought, as far as is known. */
  get thinking(): boolean {
    return this.#state === 'thinking' || (this.#state === 'start' && this.#opened !== null);
  }

  push(text: string): ReasoningPiece {
    switch (this.#state) {
      case 'start':
        return this.#start(text);
      case 'thinking':
        return this.#think(text);
      case 'after': {
        const content = text.trimStart();
        if (content !== '') this.#state = 'content';
        return { reasoning: '', content };
      }
      case 'content':
        return { reasoning: '', content: text };
    }
  }

  /** The answer is over: what was held back. */
  end(): ReasoningPiece {
    if (this.#state === 'start') {
      const held = this.#held;
      this.#held = '';
      if (this.#opened === null) return { reasoning: '', content: held };
      return { reasoning: held.trim(), content: '' };
    }
    if (this.#state !== 'thinking') return { reasoning: '', content: '' };
    return { reasoning: this.#thoughts(this.#close!.flush()), content: '' };
  }

  #start(text: string): ReasoningPiece {
    this.#held += text;
    const begun = this.#held.trimStart();
    const marks = THOUGHT_MARKS.find(({ open }) => begun.startsWith(open));
    if (marks === undefined && THOUGHT_MARKS.some(({ open }) => open.startsWith(begun)))
      return { reasoning: '', content: '' };
    const held = this.#held;
    this.#held = '';
    if (marks !== undefined) {
      this.#begin(marks);
      return this.#think(begun.slice(marks.open.length));
    }
    if (this.#opened !== null) {
      this.#begin(this.#opened);
      return this.#think(held);
    }
    this.#state = 'content';
    return { reasoning: '', content: held };
  }

  #begin({ close }: ThoughtMarks): void {
    this.#state = 'thinking';
    this.#close = new StopMatcher([close, ...this.#interrupts]);
  }

  #think(text: string): ReasoningPiece {
    const heldBefore = this.#close!.heldLength;
    const { text: certain, match } = this.#close!.push(text);
    const reasoning = this.#thoughts(certain);
    if (match === undefined) return { reasoning, content: '' };
    this.#space.take();
    this.#state = 'after';
    const rest = text.slice(certain.length + match.stop.length - heldBefore);
    const call = match.index > 0 ? match.stop : '';
    return { reasoning, content: this.push(call + rest).content };
  }

  #thoughts(text: string): string {
    const out = this.#space.push(text);
    if (this.#thought || out === '') return out;
    this.#thought = true;
    return out.trimStart();
  }
}
