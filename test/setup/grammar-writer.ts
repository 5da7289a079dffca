/** Random texts that a grammar allows. */
import type { Expression, Grammar } from '../../src/grammar/expression.js';
import type { Words } from '../../src/grammar/words.js';

/** Mulberry32. */
export function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A random text that a grammar allows. */
export class Writer {
  readonly #grammar: Grammar;
  readonly #random: () => number;
  readonly #tokenText: (id: number) => string;

  constructor(grammar: Grammar, random: () => number, tokenText: (id: number) => string) {
    this.#grammar = grammar;
    this.#random = random;
    this.#tokenText = tokenText;
  }

  write(): string {
    return this.#write({ kind: 'rule', rule: this.#grammar.root }, 0);
  }

  #below = (n: number): number => Math.floor(this.#random() * n);

  #write(expression: Expression, depth: number): string {
    switch (expression.kind) {
      case 'text':
        return expression.text;
      case 'token':
        return this.#tokenText(expression.id);
      case 'byte':
        return String.fromCharCode(expression.low);
      case 'set': {
        const [low, high] = expression.ranges[this.#below(expression.ranges.length)]!;
        return String.fromCodePoint(low + this.#below(Math.min(high - low + 1, 90)));
      }
      case 'sequence':
        return expression.items.map((item) => this.#write(item, depth)).join('');
      case 'choice':
        return this.#write(expression.items[this.#below(expression.items.length)]!, depth);
      case 'repeat':
        return this.#times(expression.item, expression.min, expression.max, depth);
      case 'counted':
        return (
          this.#write(expression.head, depth) +
          this.#times(expression.item, expression.min, expression.max, depth) +
          this.#write(expression.tail, depth)
        );
      case 'list': {
        const items = expression.items
          .filter(({ optional }) => !optional || this.#below(2) === 0)
          .map(({ item }) => this.#write(item, depth));
        if (expression.more !== null && depth < 12)
          for (let i = this.#below(3); i > 0; i--) items.push(this.#write(expression.more, depth));
        return items.reduce(
          (all, item, i) => all + (i > 0 ? this.#write(expression.separator, depth) : '') + item,
          '',
        );
      }
      case 'rule':
        return this.#write(this.#grammar.rules.get(expression.rule)!, depth + 1);
      case 'words':
        return this.#word(expression.words, expression.spelling === 'json');
      case 'string-rest':
        return `${this.#word(expression.words, true)}"`;
    }
  }

  #times(item: Expression, min: number, max: number | null, depth: number): string {
    let text = '';
    const most = Math.min(max ?? min + 3, min + 3);
    for (let i = min + this.#below(most - min + 1); i > 0; i--) text += this.#write(item, depth);
    return text;
  }

  #word({ edges, final }: Words, json: boolean): string {
    let text = '';
    for (let state = 0; ; ) {
      const from = edges[state]!;
      if (final[state]! && (from.length === 0 || this.#below(4) === 0)) break;
      const { low, high, to } = from[this.#below(from.length)]!;
      let point = low + this.#below(Math.min(high - low + 1, 90));
      if (low <= 0x61 && high >= 0x7a) point = 0x61 + this.#below(26);
      text += String.fromCodePoint(point);
      state = to;
    }
    return json ? JSON.stringify(text).slice(1, -1) : text;
  }
}
