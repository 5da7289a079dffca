/** How the CPU device stores and reads the KV formats of one kind. */

import type { KvFormatData } from '../../kv-formats/kind.js';
import type { KvSide } from '../../turboquant/rotation.js';
import type { Packing } from './packings.js';

/** Tables that many layers share, as addresses in one memory. */
export type Tables = (name: string, bytes: number, fill: (to: DataView) => void) => number;

/** Sets a word of a side's description: `put(SIDE_GROUP, 64)` (../kv-layout.ts). */
export type Put = (offset: number, word: number) => void;

export interface CpuKvCodec<F extends KvFormatData = KvFormatData> {
  readonly kind: F['kind'];
  takes(format: F, headDim: number): boolean;
  /**
   * Packings of its codes, by names that are unique; a packing named by several kinds is one. Codes of `SIDE_BITS` bits are
   * packed as assembly/kv-codes.ts says.
   */
  readonly packings: Readonly<Record<string, Packing>>;
  /**
   * The file of assembly/ in which the kind's codes are made, and its functions with the arguments of `codeVector` and of
   * `readMeta` (scripts/generate-kv-formats.mjs). Null: the kernels have floats of their own.
   */
  readonly assembly: { readonly file: string; readonly code: string; readonly meta: string } | null;
  /** Scales that a vector has: 0 for floats. */
  groups(format: F, headDim: number): number;
  /** Fills the description of a side, but for its addresses and sizes; of kinds with codes, but for `SIDE_KIND`. */
  describe(format: F, side: KvSide, headDim: number, put: Put, tables: Tables): void;
}
