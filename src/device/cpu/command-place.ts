/** What commands name: the step, scratch and caches of the memory they run in. */
import type { KvLayerSpec, KvPoolSpec } from '../kv.js';
import { STEP_OUTPUTS, STEP_TOKENS } from './opcodes.js';
import type { StepLayout } from './step-layout.js';

/** What commands of a program in one memory have in common. */
export interface CommandPlace {
  /** Address of the step in this memory. */
  readonly step: number;
  readonly layout: StepLayout;
  readonly threads: number;
  /** Address of scratch, free for each node. */
  readonly scratch: number;
}

/** A layer's cache, as commands name it. */
export interface LayerPlace {
  /** Address of its description (kv-layout.ts). */
  readonly store: number;
  readonly tables: number;
  readonly formats: KvLayerSpec;
  readonly spec: KvPoolSpec;
  /** Where its newest positions are kept as floats besides; null: nowhere. */
  readonly tail: TailPlace | null;
}

export interface TailPlace {
  readonly store: number;
  readonly tables: number;
  readonly tokens: number;
}

export function rowCountAt(place: CommandPlace, rows: 'tokens' | 'outputs'): number {
  return place.step + 4 * (rows === 'tokens' ? STEP_TOKENS : STEP_OUTPUTS);
}
