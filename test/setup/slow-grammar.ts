/** Reads a grammar byte by byte straight from its expressions, without automata: slow, and for that another way to the same answers. */
import type { CodePointRange } from '../../src/grammar/code-points.js';
import type { Expression, Grammar } from '../../src/grammar/expression.js';
import type { Words } from '../../src/grammar/words.js';

/** What is still to come, the next thing first. */
interface Rest {
  readonly serial: number;
  readonly item: Item;
  readonly next: Rest | null;
}

type Item =
  | Expression
  | { readonly kind: 'bytes'; readonly bytes: readonly number[] }
  | {
      readonly kind: 'character';
      readonly ranges: readonly CodePointRange[];
      readonly begun: readonly number[];
    }
  | {
      readonly kind: 'word-state';
      readonly words: Words;
      readonly json: boolean;
      readonly state: number;
      readonly any?: Expression & { readonly kind: 'string-rest' };
    }
  | {
      readonly kind: 'list-from';
      readonly list: Expression & { kind: 'list' };
      readonly at: number;
      readonly some: boolean;
    }
  | { readonly kind: 'times'; readonly item: Expression; readonly min: number; readonly max: number | null };

const QUOTE: Item = { kind: 'text', text: '"' };

export type SlowState = ReadonlySet<Rest | null>;

export class SlowGrammar {
  readonly #grammar: Grammar;
  readonly #rests = new Map<string, Rest>();
  readonly #items = new Map<unknown, number>();

  constructor(grammar: Grammar) {
    this.#grammar = grammar;
  }

  start(): SlowState {
    return this.#open([this.#rest({ kind: 'rule', rule: this.#grammar.root }, null)]);
  }

  /** Whether nothing more need come. */
  done(state: SlowState): boolean {
    return state.has(null);
  }

  step(state: SlowState, byte: number): SlowState {
    const to: (Rest | null)[] = [];
    for (const rest of state) {
      if (rest === null) continue;
      const { item, next } = rest;
      if (item.kind === 'bytes' && item.bytes[0] === byte)
        to.push(
          item.bytes.length === 1 ? next : this.#rest({ kind: 'bytes', bytes: item.bytes.slice(1) }, next),
        );
      else if (item.kind === 'byte' && item.low <= byte && byte <= item.high) to.push(next);
      else if (item.kind === 'character') {
        const begun = [...item.begun, byte];
        const found = matches(item.ranges, begun);
        if (found === 'whole') to.push(next);
        else if (found === 'part') to.push(this.#rest({ ...item, begun }, next));
      }
    }
    return this.#open(to);
  }

  read(bytes: Iterable<number>, from: SlowState = this.start()): SlowState {
    let state = from;
    for (const byte of bytes) state = this.step(state, byte);
    return state;
  }

  #rest(item: Item, next: Rest | null): Rest {
    // Expressions are known by themselves, what is made here by what it says.
    let key = this.#keyOf(item);
    key = `${key}>${next === null ? '' : next.serial}`;
    let rest = this.#rests.get(key);
    if (rest === undefined) {
      rest = { serial: this.#rests.size, item, next };
      this.#rests.set(key, rest);
    }
    return rest;
  }

  #keyOf(item: Item): string {
    switch (item.kind) {
      case 'bytes':
        return `b${item.bytes.join()}`;
      case 'character':
        return `c${this.#number(item.ranges)}:${item.begun.join()}`;
      case 'word-state':
        return `w${this.#number(item.words)}:${item.state}${item.any === undefined ? '' : '+'}`;
      case 'list-from':
        return `l${this.#number(item.list)}:${item.at}${item.some}`;
      case 'times':
        return `t${this.#number(item.item)}:${item.min}:${item.max}`;
      default:
        return `e${this.#number(item)}`;
    }
  }

  #number(of: unknown): number {
    let number = this.#items.get(of);
    if (number === undefined) {
      number = this.#items.size;
      this.#items.set(of, number);
    }
    return number;
  }

  /** Takes expressions apart until each begins with bytes or a character. */
  #open(from: Iterable<Rest | null>): SlowState {
    const seen = new Set<Rest | null>(from);
    const opened = new Set<Rest | null>();
    for (const rest of seen) {
      if (rest === null) {
        opened.add(null);
        continue;
      }
      const { item, next } = rest;
      const add = (...items: Item[]): void => {
        seen.add(items.reduceRight<Rest | null>((behind, one) => this.#rest(one, behind), next));
      };
      switch (item.kind) {
        case 'bytes':
        case 'byte':
        case 'character':
          opened.add(rest);
          break;
        case 'text': {
          const bytes = [...new TextEncoder().encode(item.text)];
          if (bytes.length === 0) add();
          else add({ kind: 'bytes', bytes });
          break;
        }
        case 'set':
          add({ kind: 'character', ranges: item.ranges, begun: [] });
          break;
        case 'sequence':
          add(...item.items);
          break;
        case 'choice':
          for (const one of item.items) add(one);
          break;
        case 'repeat':
          add({ ...item, kind: 'times' });
          break;
        case 'times': {
          const { item: inner, min, max } = item;
          if (min === 0) add();
          if (max !== 0)
            add(inner, {
              kind: 'times',
              item: inner,
              min: Math.max(0, min - 1),
              max: max === null ? null : max - 1,
            });
          break;
        }
        case 'counted':
          add(item.head, { kind: 'times', item: item.item, min: item.min, max: item.max }, item.tail);
          break;
        case 'list':
          add({ kind: 'list-from', list: item, at: 0, some: false });
          break;
        case 'list-from': {
          const { list, at, some } = item;
          const before = some ? [list.separator] : [];
          const entry = list.items[at];
          if (entry !== undefined) {
            add(...before, entry.item, { ...item, at: at + 1, some: true });
            if (entry.optional) add({ ...item, at: at + 1 });
          } else {
            add();
            if (list.more !== null) add(...before, list.more, { ...item, some: true });
          }
          break;
        }
        case 'rule':
          add(this.#grammar.rules.get(item.rule)!);
          break;
        case 'words':
          add({ kind: 'word-state', words: item.words, json: item.spelling === 'json', state: 0 });
          break;
        case 'string-rest':
          add({ kind: 'word-state', words: item.words, json: true, state: 0, any: item }, QUOTE);
          break;
        case 'word-state': {
          const { words, json, state, any } = item;
          if (any !== undefined && state === any.any) {
            // The rule has the closing quote, that of the word is not read.
            seen.add(this.#rest({ kind: 'rule', rule: any.rule }, next!.next));
            break;
          }
          if (words.final[state]!) add();
          for (const { low, high, to } of words.edges[state]!) {
            const behind: Item = { ...item, state: to };
            if (!json) add({ kind: 'character', ranges: rangeOf(low, high), begun: [] }, behind);
            else for (const one of spelled(low, high)) add(one, behind);
          }
          break;
        }
        case 'token':
          break;
      }
    }
    return opened;
  }
}

const ranges = new Map<string, readonly CodePointRange[]>();
function rangeOf(low: number, high: number): readonly CodePointRange[] {
  const key = `${low}-${high}`;
  let found = ranges.get(key);
  if (found === undefined) {
    found = [[low, high]];
    ranges.set(key, found);
  }
  return found;
}

/** Characters between quotes: those that must be escaped one by one, as JSON.stringify has them. */
function spelled(low: number, high: number): Item[] {
  const items: Item[] = [];
  let from = low;
  for (const code of [...Array.from({ length: 32 }, (_, i) => i), 0x22, 0x5c]) {
    if (code < low || code > high) continue;
    if (code > from) items.push({ kind: 'character', ranges: rangeOf(from, code - 1), begun: [] });
    items.push({
      kind: 'bytes',
      bytes: [...new TextEncoder().encode(JSON.stringify(String.fromCharCode(code)).slice(1, -1))],
    });
    from = code + 1;
  }
  if (from <= high) items.push({ kind: 'character', ranges: rangeOf(from, high), begun: [] });
  return items;
}

/** Whether bytes are a character of these, or may become one. */
function matches(of: readonly CodePointRange[], bytes: readonly number[]): 'whole' | 'part' | 'none' {
  const [first] = bytes as [number];
  const length =
    first < 0x80
      ? 1
      : first >= 0xc2 && first < 0xe0
        ? 2
        : first >= 0xe0 && first < 0xf0
          ? 3
          : first >= 0xf0 && first < 0xf5
            ? 4
            : 0;
  if (length === 0 || bytes.slice(1).some((byte) => byte < 0x80 || byte > 0xbf)) return 'none';
  const bits = bytes
    .slice(1)
    .reduce((sum, byte) => sum * 64 + (byte & 63), length === 1 ? first : first & (0xff >> (length + 1)));
  const missing = length - bytes.length;
  const low = bits * 64 ** missing;
  const high = low + 64 ** missing - 1;
  const least = [0, 0, 0x80, 0x800, 0x10000][length]!;
  const some = of.some(([from, to]) => {
    const parts: CodePointRange[] = [
      [from, Math.min(to, 0xd7ff)],
      [Math.max(from, 0xe000), to],
    ];
    return parts.some(([a, b]) => Math.max(a, low, least) <= Math.min(b, high, 0x10ffff));
  });
  if (!some) return 'none';
  return missing === 0 ? 'whole' : 'part';
}
