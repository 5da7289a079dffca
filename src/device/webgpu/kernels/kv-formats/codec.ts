/** How this device stores and reads the KV formats of one kind: all that any kernel knows of them. */

import type { KvFormatData } from '../../../kv-formats/kind.js';
import type { KvSide } from '../../../turboquant/rotation.js';
import type { KvLayout, KvSideNumbers, KvSideSpec } from './side.js';

/** A side in a format of the codec's kind. */
export type SideOf<F> = Omit<KvSideSpec, 'format'> & { readonly format: F };

export interface ReaderText {
  /** `NAME_four(block, kv, token, vec)`: elements `4 vec … 4 vec + 3` of a stored vector as vec4<f32>, rotated if stored so. */
  readonly declarations: string;
  /** Statements at the start of a kernel, before a barrier; `threads` threads, `lid`. */
  readonly prepare: (threads: number) => string;
}

/**
 * The threads that store vectors: a workgroup has a head, or, where the metadata of two share a word, two of them side by
 * side, so that neither waits for the other. `lid` is a thread's place in its head.
 */
export interface StorePlan {
  readonly heads: 1 | 2;
  /** Threads of a head. */
  readonly lanes: number;
  readonly threads: number;
  /** Index of a head's own part of an array of workgroup memory: of two, `[half_]`. */
  readonly own: string;
}

/** Workgroup memory that storing a format shares with other formats (kv-store.ts declares it, and says what it is). */
export interface StoreNeeds {
  /** `codes_`: a code each, u32. */
  readonly codes?: boolean;
  /** `lows_` and `highs_`, a number a thread. */
  readonly range?: boolean;
  /** `turned`, `fours_`, `norms_`, `sum_()`, and `book_` of so many words. */
  readonly bookWords?: number;
  /** `eights_`: codes as bytes, a word a thread. */
  readonly eights?: boolean;
}

export interface StoreContext {
  readonly plan: StorePlan;
  /** Statement that stores an element of the side's buffer. */
  readonly put: (at: string, value: string) => string;
  /**
   * Expression of the vector's position in its sequence, u32; null where it is not known: in the conversion of blocks. A
   * format that needs it cannot be converted to.
   */
  readonly position: string | null;
}

export interface StoreText {
  readonly declarations: string;
  /** Statements that fetch what storing needs of the side's tables, well before, into what `storeVariables` declares. */
  readonly fetch: string;
  /**
   * Statements that store `v` of thread `lid` (zero from `headDim / 4` threads on) as KV head `kv` of (`block`,
   * `token_at`); in uniform control flow. Of two heads that share a workgroup `kv` may be one that is not there: `here`
   * tells.
   */
  readonly store: string;
}

export interface KvCodec<F extends KvFormatData = KvFormatData> {
  readonly kind: F['kind'];
  /** Multiples of head_dim that are possible, and other limits of this device. */
  takes(format: F, headDim: number): boolean;
  /** Type of an element of the buffer. */
  element(format: F): string;
  /** Words of metadata of a (head, token), and heads that have metadata of their own; null without. */
  meta(format: F, headDim: number, kvHeads: number): Pick<KvLayout, 'groups' | 'metaHeads'> | null;
  /** What lies at `tablesAt`; empty without. K and V have tables of one length. */
  tables(format: F, headDim: number, side: KvSide): Float32Array;
  /**
   * Vectors are stored rotated, and read so: the first word, in the tables, of the rotation's base matrix, its signs being
   * the first ones (kv-rotate.ts); null without.
   */
  rotation(format: F, headDim: number): number | null;
  /**
   * The codes that fast kernels unpack themselves (kv-layout.ts): of `AffineKv`, by its `bits` and `groupSize`, or of
   * `TurboKv`, by its `bits`. Null: they leave formats of the kind to the kernels that read by `reader`.
   */
  readonly codes: 'scaled' | 'normed' | null;
  /** Elements read are within ±65504 by themselves. */
  readonly bounded: boolean;
  /** Bytes of workgroup memory that `reader` declares. */
  readerBytes(format: F): number;
  reader(side: SideOf<F>, n: KvSideNumbers): ReaderText;
  /** The metadata of two heads share a word, which one thread stores. */
  readonly pairsHeads: boolean;
  /** K and V of one format are stored by one text, which differs in the buffer alone. */
  readonly sidesAlike: boolean;
  storeNeeds(format: F): StoreNeeds;
  store(side: SideOf<F>, n: KvSideNumbers, context: StoreContext): StoreText;
}
