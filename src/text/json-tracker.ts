/** What may come next. */
type State =
  | 'value'
  /** A value, or the end of the list that has just begun. */
  | 'first'
  | 'key'
  /** A key, or the end of the object that has just begun. */
  | 'first key'
  | 'colon'
  /** A value is whole: a comma, or the end of what it is in. */
  | 'after'
  | 'string'
  | 'escape'
  | 'hex'
  | 'word'
  | 'number'
  | 'broken';

/** Of a number's text: which parts may follow. */
type NumberPart = 'minus' | 'zero' | 'digits' | 'point' | 'fraction' | 'e' | 'sign' | 'exponent';

const WORDS = ['true', 'false', 'null'];
const isSpace = (char: string): boolean => char === ' ' || char === '\n' || char === '\t' || char === '\r';
const isDigit = (char: string): boolean => char >= '0' && char <= '9';

/**
 * Follows a JSON text character by character: whether it can still become JSON, and where in it the reader is. Keeps nothing of
 * the text but the brackets that are open.
 *
 * @example
 * const tracker = new JsonTracker();
 * for (const char of '{"a": tr') tracker.push(char); // tracker.depth is 1, tracker.broken is false
 */
export class JsonTracker {
  #state: State = 'value';
  readonly #open: ('{' | '[')[] = [];
  #isKey = false;
  #number: NumberPart = 'minus';
  #word = '';
  /** Characters of the word, or of an escape's digits, so far. */
  #length = 0;

  /** Objects and lists that are open. */
  get depth(): number {
    return this.#open.length;
  }

  /** It can not become JSON any more. */
  get broken(): boolean {
    return this.#state === 'broken';
  }

  get inString(): boolean {
    return this.#state === 'string' || this.#state === 'escape' || this.#state === 'hex';
  }

  /** The string at hand, or the one that has just ended, is a key. */
  get isKey(): boolean {
    return this.#isKey;
  }

  /** A value comes next, and nothing of it is there yet. */
  get beforeValue(): boolean {
    return this.#state === 'value' || this.#state === 'first';
  }

  /** @param char one UTF-16 code unit */
  push(char: string): void {
    this.#state = this.#next(char);
  }

  #next(char: string): State {
    switch (this.#state) {
      case 'broken':
        return 'broken';
      case 'string':
        if (char === '"') return this.#isKey ? 'colon' : 'after';
        return char === '\\' ? 'escape' : char < ' ' ? 'broken' : 'string';
      case 'escape':
        this.#length = 0;
        return char === 'u' ? 'hex' : '"\\/bfnrt'.includes(char) ? 'string' : 'broken';
      case 'hex':
        if (!/[0-9a-fA-F]/.test(char)) return 'broken';
        return ++this.#length === 4 ? 'string' : 'hex';
      case 'word':
        if (char !== this.#word[this.#length]) return 'broken';
        return ++this.#length === this.#word.length ? 'after' : 'word';
      case 'number':
        return this.#inNumber(char) ? 'number' : this.#numberEnds() ? this.#after(char) : 'broken';
      case 'first':
        return char === ']' ? this.#close('[') : this.#value(char);
      case 'value':
        return this.#value(char);
      case 'first key':
        return char === '}' ? this.#close('{') : this.#key(char);
      case 'key':
        return this.#key(char);
      case 'colon':
        return isSpace(char) ? 'colon' : char === ':' ? 'value' : 'broken';
      case 'after':
        return this.#after(char);
    }
  }

  #key(char: string): State {
    if (isSpace(char)) return this.#state;
    this.#isKey = true;
    return char === '"' ? 'string' : 'broken';
  }

  #value(char: string): State {
    if (isSpace(char)) return this.#state;
    this.#isKey = false;
    if (char === '"') return 'string';
    if (char === '{' || char === '[') {
      this.#open.push(char);
      return char === '{' ? 'first key' : 'first';
    }
    if (char === '-' || isDigit(char)) {
      this.#number = char === '-' ? 'minus' : char === '0' ? 'zero' : 'digits';
      return 'number';
    }
    this.#word = WORDS.find((word) => word[0] === char) ?? '';
    this.#length = 1;
    return this.#word === '' ? 'broken' : 'word';
  }

  #after(char: string): State {
    if (isSpace(char)) return 'after';
    const within = this.#open.at(-1);
    if (char === ',' && within !== undefined) return within === '{' ? 'key' : 'value';
    return char === '}' ? this.#close('{') : char === ']' ? this.#close('[') : 'broken';
  }

  #close(bracket: '{' | '['): State {
    return this.#open.pop() === bracket ? 'after' : 'broken';
  }

  #inNumber(char: string): boolean {
    const part = this.#numberPart(char);
    if (part === undefined) return false;
    this.#number = part;
    return true;
  }

  #numberPart(char: string): NumberPart | undefined {
    const part = this.#number;
    if (isDigit(char)) {
      switch (part) {
        case 'minus':
          return char === '0' ? 'zero' : 'digits';
        case 'zero':
          return undefined;
        case 'digits':
          return 'digits';
        case 'point':
        case 'fraction':
          return 'fraction';
        default:
          return 'exponent';
      }
    }
    const whole = part === 'zero' || part === 'digits';
    if (char === '.' && whole) return 'point';
    if ((char === 'e' || char === 'E') && (whole || part === 'fraction')) return 'e';
    return (char === '+' || char === '-') && part === 'e' ? 'sign' : undefined;
  }

  #numberEnds(): boolean {
    return ['zero', 'digits', 'fraction', 'exponent'].includes(this.#number);
  }
}
