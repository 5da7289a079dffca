/**
 * What tuning is about, without a GPU in sight: decisions, and the contest that settles one.
 *
 * A decision is some work of a program and the kernels that could do it. Those that add up in the same order as the
 * rules' choice are neutral: whichever is taken, no bit changes.
 */

import type { AutotuneMode } from '../../device.js';

export interface DecisionCandidate {
  /** Unique within the decision, and made of nothing but sizes: what a cache names a choice by. */
  readonly id: string;
  readonly neutral: boolean;
}

export interface Decision {
  /** What the choice depends on: kind of work, shape, format, rows. */
  readonly key: string;
  /** Rows of the step. */
  readonly rows: number;
  /** The first is the rules' choice. */
  readonly candidates: readonly DecisionCandidate[];
  /** What the work takes at the least, for people. */
  readonly bytes: number;
  readonly operations: number;
  /** The text of a candidate's kernels: a choice that was measured on another text is not to be trusted. */
  textOf(candidate: number): string;
  /** Makes all that a contest needs on the device. Throws where there is no room. */
  open(): Promise<Contest>;
  /** Takes the candidate from now on. */
  adopt(candidate: number): void;
}

export interface Contest {
  /** Compiles; answers with those that can be run. */
  prepare(candidates: readonly number[]): Promise<number[]>;
  /** µs of each candidate, `samples` of each, taken in turns. */
  time(candidates: readonly number[], samples: number): Promise<number[][]>;
  /** How a candidate's results lie to those of the first, computed here and now. */
  compare(candidate: number): Promise<'same' | 'close' | 'differs'>;
  /** Frees everything that was made. */
  close(): void;
}

/** A measured choice, as a cache keeps it. */
export interface TuningEntry {
  /** The rules' choice when it was measured, and what won. Equal where nothing was better. */
  readonly rule: string;
  readonly choice: string;
  /** Of the texts of both. */
  readonly texts: string;
  readonly ruleUs: number;
  readonly us: number;
}

/** By mode and key of the decision. */
export type TuningEntries = Readonly<Record<string, TuningEntry>>;

export const entryName = (mode: AutotuneMode, key: string): string => `${mode} ${key}`;

/** Where choices are kept from one start to the next. Neither call throws. */
export interface TuningStore {
  read(): Promise<TuningEntries>;
  /** Adds to what is there. */
  add(entries: TuningEntries): Promise<void>;
}

/** FNV-1a over the text's UTF-16 units, twice with different starts: 64 bits in hexadecimal. */
export function textHash(text: string): string {
  let a = 0x811c9dc5;
  let b = 0x9747b28c;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    a = Math.imul(a ^ unit, 0x01000193);
    b = Math.imul(b ^ unit, 0x01000193) ^ (b >>> 15);
  }
  return [a, b].map((h) => (h >>> 0).toString(16).padStart(8, '0')).join('');
}
