/**
 * Snapshots of recurrent state: copies of a row's slot at borders of blocks, kept by the prefix cache like blocks.
 *
 * They are sparse: where a prompt ends, where requests diverge, and every so many tokens. A copy is asked for right behind the
 * step that reaches the border, and the device makes it before the next one: so no later token is in it, whatever the row does
 * then. It is entered when the step has retired, if the host knows all its tokens. Until then it is held, and soon free.
 *
 * None is needed to go on: a row keeps its own slot, and a snapshot gives way to whoever comes in.
 */

import type { KvantError } from '../../errors.js';
import { type PrefixCache, ROOT } from '../../kv/prefix/prefix-cache.js';
import type { GroupMemory } from '../group-memory.js';
import type { Sequence } from '../sequence.js';
import type { StepInFlight } from '../step-filler.js';
import { BlockCopies } from './block-copies.js';

interface Pending {
  readonly sequence: Sequence;
  readonly step: number;
  readonly tokens: number;
  readonly block: number;
  /** The device could not make it. */
  failed: boolean;
}

export class StateSnapshots {
  readonly #group: GroupMemory;
  readonly #cache: PrefixCache;
  readonly #onCopied: (sequence: Sequence, error: KvantError | null) => void;
  readonly #copies: BlockCopies;
  #pending: Pending[] = [];

  /** `onCopied`: as of Prefixes. */
  constructor(
    group: GroupMemory,
    cache: PrefixCache,
    onCopied: (sequence: Sequence, error: KvantError | null) => void,
  ) {
    this.#group = group;
    this.#copies = new BlockCopies(group.pool);
    this.#cache = cache;
    this.#onCopied = onCopied;
  }

  /** Copies under way. */
  get copying(): number {
    return this.#copies.count;
  }

  /** Snapshots that are held until their step has retired. */
  get pending(): number {
    return this.#pending.length;
  }

  /** A step has been launched: copies the state of those that it brings to a border where that is wanted. */
  take({ members, reached, rows, step }: StepInFlight, group: number): void {
    const { blocks } = this.#group;
    const { blockTokens, limit } = this.#cache;
    for (let row = 0; row < rows; row++) {
      const sequence = members[row]!;
      const tokens = reached[row]!;
      const prefix = sequence.prefix!;
      if (!prefix.isSnapshot(tokens) || limit === 0 || blocks.available === 0) continue;
      if (tokens <= sequence.request.prompt.length) {
        const border = tokens / blockTokens;
        prefix.keys.extend(sequence, border);
        if (this.#cache.block(prefix.keys, border - 1, sequence) >= 0) continue;
      }
      const pending: Pending = { sequence, step, tokens, block: blocks.allocate(), failed: false };
      prefix.copiedAt = tokens;
      this.#pending.push(pending);
      this.#copy(sequence.tables![group]!.poolId(0), pending.block, (error) => {
        if (error !== null) {
          pending.failed = true;
          // It may have been entered already.
          this.#cache.clear();
        }
        this.#onCopied(sequence, null);
      });
    }
  }

  /** A step has retired: enters what was copied behind it. `enters`: what the sequence computed may be kept. */
  retire(step: number, enters: (sequence: Sequence) => boolean): void {
    this.#settle(step, ({ sequence, tokens, block, failed }) => {
      const known = sequence.request.prompt.length + sequence.ids.length;
      if (failed || tokens > known || !enters(sequence)) return;
      const { keys } = sequence.prefix!;
      const border = tokens / this.#cache.blockTokens;
      keys.extend(sequence, border);
      this.#cache.publish(block, ROOT, keys, border - 1, sequence);
    });
  }

  /** A step has failed, or all have (Infinity): what was copied behind it is let go of. */
  drop(step: number): void {
    this.#settle(step, () => {});
  }

  /** Gives a row that comes in its slot, with the state of a snapshot that it holds; −1: with none. */
  seat(sequence: Sequence, group: number, snapshot: number): void {
    const { blocks } = this.#group;
    const table = sequence.tables![group]!;
    if (snapshot < 0) {
      table.grow(1);
      return;
    }
    if (blocks.available === 0) {
      // There is one slot for the row and for the snapshot: the row goes on in the snapshot itself.
      this.#cache.forget(snapshot);
      table.adopt([snapshot], false);
      return;
    }
    table.grow(1);
    this.#copy(snapshot, table.poolId(0), (error) => this.#onCopied(sequence, error));
    // Whoever has it next writes to it in a later step.
    blocks.release(snapshot);
  }

  #settle(step: number, use: (pending: Pending) => void): void {
    if (this.#pending.length === 0) return;
    const later: Pending[] = [];
    for (const pending of this.#pending) {
      if (pending.step > step) {
        later.push(pending);
        continue;
      }
      use(pending);
      this.#group.blocks.release(pending.block);
    }
    this.#pending = later;
  }

  #copy(from: number, to: number, done: (error: KvantError | null) => void): void {
    this.#copies.start(Uint32Array.of(from), Uint32Array.of(to), done);
  }
}
