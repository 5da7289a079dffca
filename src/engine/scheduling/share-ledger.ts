/**
 * Who has had how much: one account for each share (an API key) in tokens served, so that the share that has had least goes
 * first. The rule is that of virtual token counters (Sheng et al., Fairness in Serving Large Language Models, 2024): a prompt
 * is charged when it comes in, a drawn token twice as much as one of a prompt, and a share that comes back after it was idle
 * starts level with the least served of those that are there, so that nobody saves up turns.
 */

/** Accounts kept of shares that are idle: whoever comes back later than that many others starts anew. */
const IDLE_KEPT = 256;
/** What a drawn token is charged, in tokens of a prompt. */
export const DRAWN_CHARGE = 2;

interface Account {
  readonly index: number;
  /** Sequences that wait or run. */
  open: number;
}

export class ShareLedger {
  /** Tokens charged to each share, by index: what the scheduler reads. */
  served = new Float64Array(8);
  readonly #accounts = new Map<string, Account>();
  readonly #free: number[] = [];
  #next = 0;

  /** Shares with sequences that wait or run. */
  get active(): number {
    let count = 0;
    for (const { open } of this.#accounts.values()) if (open > 0) count++;
    return count;
  }

  /** The same, if `name` had some. */
  activeWith(name: string): number {
    return this.active + (this.opened(name) > 0 ? 0 : 1);
  }

  /** Sequences of a share that wait or run. */
  opened(name: string): number {
    return this.#accounts.get(name)?.open ?? 0;
  }

  /** So many more sequences of a share wait; answers its index. */
  open(name: string, sequences: number): number {
    let account = this.#accounts.get(name);
    if (account === undefined) {
      account = { index: this.#take(), open: 0 };
      this.#accounts.set(name, account);
    } else if (account.open === 0) {
      // As the last one that was here, for the order in which idle ones are forgotten.
      this.#accounts.delete(name);
      this.#accounts.set(name, account);
    }
    if (account.open === 0) this.#level(account);
    account.open += sequences;
    return account.index;
  }

  /** A sequence of the share has ended. */
  close(name: string): void {
    const account = this.#accounts.get(name)!;
    if (--account.open === 0) this.#forget();
  }

  charge(index: number, tokens: number): void {
    this.served[index] = this.served[index]! + tokens;
  }

  #level(account: Account): void {
    let least = Number.POSITIVE_INFINITY;
    for (const { index, open } of this.#accounts.values())
      if (open > 0) least = Math.min(least, this.served[index]!);
    if (least !== Number.POSITIVE_INFINITY)
      this.served[account.index] = Math.max(this.served[account.index]!, least);
  }

  #take(): number {
    const index = this.#free.pop() ?? this.#next++;
    if (index >= this.served.length) {
      const wider = new Float64Array(2 * this.served.length);
      wider.set(this.served);
      this.served = wider;
    }
    this.served[index] = 0;
    return index;
  }

  #forget(): void {
    let idle = this.#accounts.size - this.active;
    for (const [name, { index, open }] of this.#accounts) {
      if (idle <= IDLE_KEPT) return;
      if (open > 0) continue;
      this.#accounts.delete(name);
      this.#free.push(index);
      idle--;
    }
  }
}
