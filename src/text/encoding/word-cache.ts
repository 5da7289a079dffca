/** Words of up to this many UTF-16 units are kept. */
const LONGEST = 256;
const WORDS = 8192;

/** The ids of words seen lately. Two halves, of which the older is thrown away whole: nothing is moved on a hit. */
export class WordCache {
  #floatStart = new Map<string, readonly number[]>();
  #old: ReadonlyMap<string, readonly number[]> = new Map();

  get(word: string): readonly number[] | undefined {
    const found = this.#floatStart.get(word);
    if (found !== undefined) return found;
    const older = this.#old.get(word);
    if (older !== undefined) this.put(word, older);
    return older;
  }

  put(word: string, ids: readonly number[]): void {
    if (word.length > LONGEST) return;
    if (this.#floatStart.size >= WORDS) {
      this.#old = this.#floatStart;
      this.#floatStart = new Map();
    }
    this.#floatStart.set(word, ids);
  }
}
