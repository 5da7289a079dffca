/** What attend-prefill.test.ts computes: shapes, formats and sequences for attention of prompts on matrices. */
import type { AttendShape } from '../../src/device/webgpu/kernels/attend.js';
import type { PrefillConfig } from '../../src/device/webgpu/kernels/attend-prefill-plan.js';
import { affine, turbo } from '../devices/kv-cases.js';

export const F16 = { kind: 'float', dtype: 'f16' } as const;
export const CONFIG: PrefillConfig = {
  matrix: { m: 4, n: 4, k: 4, component: 'f32', result: 'f32' },
  subgroupSize: 1,
  keys: 8,
  rows: 8,
  workgroupBytes: 32768,
};

interface Case {
  readonly name: string;
  readonly shape: Partial<AttendShape>;
  readonly parts?: number;
  /** Tokens of a float head. */
  readonly head?: number;
  /** Tokens of a float tail. */
  readonly tail?: number;
  readonly config?: Partial<PrefillConfig>;
  readonly sequences: readonly (readonly [position: number, length: number])[];
}

export const CASES: readonly Case[] = [
  {
    name: 'GQA 2, tails of tiles and chunks',
    shape: {},
    sequences: [
      [0, 37],
      [5, 18],
    ],
  },
  { name: 'MHA over several splits', shape: { heads: 2, headDim: 16 }, sequences: [[300, 33]] },
  {
    name: 'GQA 4',
    shape: { heads: 8, kvHeads: 2 },
    sequences: [
      [0, 2],
      [63, 16],
      [64, 17],
    ],
  },
  { name: 'a soft cap', shape: { softcap: 5 }, sequences: [[0, 24]] },
  {
    name: 'parts of the positions, some of them empty',
    shape: {},
    parts: 3,
    sequences: [
      [1530, 37],
      [0, 18],
      [700, 5],
    ],
  },
  {
    name: 'two subgroups for the dims of a row',
    shape: { headDim: 16 },
    config: { split: 2 },
    sequences: [
      [300, 37],
      [0, 3],
    ],
  },
  {
    name: 'two subgroups for the dims of a row, in parts',
    shape: { headDim: 16 },
    config: { split: 2 },
    parts: 3,
    sequences: [
      [1530, 37],
      [700, 5],
    ],
  },
];

/** Codes are made halves; those of a head of 32 dims are one piece, of 64 two. */
const HALVES: Partial<PrefillConfig> = {
  matrix: { m: 8, n: 8, k: 8, component: 'f16', result: 'f32' },
  keys: 16,
  rows: 16,
};
/** More threads for fewer keys: a text of a third, and compiling it is what takes the time. */
const SHORT: Partial<PrefillConfig> = { ...HALVES, keys: 8, rows: 32 };
export const CODED: readonly Case[] = [
  { name: 'f16 in halves', shape: { headDim: 32 }, config: HALVES, sequences: [[40, 19]] },
  {
    name: 'affine 4, two subgroups for the dims of a row',
    shape: { headDim: 64, key: affine(4, 32), value: affine(4, 32) },
    config: { ...HALVES, split: 2 },
    sequences: [[40, 19]],
  },
  ...(
    [
      ['affine 4, two pieces', affine(4, 32), affine(4, 32), 64, HALVES],
      ['affine 8 and 5', affine(8, 32), affine(5, 32), 32, HALVES],
      ['TurboQuant 3.5', turbo(3), turbo(4), 32, SHORT],
      ['f16 and TurboQuant 2', F16, turbo(2), 32, HALVES],
      ['TurboQuant 8, word by word', turbo(8), turbo(8), 32, HALVES],
    ] as const
  ).map(([name, key, value, headDim, config]) => ({
    name,
    shape: { headDim, key, value },
    config,
    sequences: [
      [40, 19],
      [0, 3],
    ] as const,
  })),
];

export const HEADS: readonly Case[] = [
  {
    name: 'a float head that is no whole tiles, before TurboQuant 3.5',
    head: 48,
    shape: { headDim: 32, key: turbo(3), value: turbo(4) },
    config: { ...HALVES, keys: 32 },
    sequences: [
      [40, 19],
      [0, 3],
    ],
  },
  {
    name: 'a float head in parts, before affine 8',
    head: 32,
    shape: { headDim: 32, key: affine(8, 32), value: affine(8, 32) },
    config: { keys: 16 },
    parts: 2,
    sequences: [
      [1030, 7],
      [20, 18],
    ],
  },
];

export const TAILS: readonly Case[] = [
  {
    name: 'a float tail behind f16, rows before it begins and behind',
    tail: 19,
    shape: {},
    sequences: [
      [10, 37],
      [300, 18],
    ],
  },
  {
    name: 'a float tail in parts, behind a float head and affine 8',
    tail: 24,
    head: 32,
    shape: { headDim: 32, key: affine(8, 32), value: affine(8, 32), sinks: true },
    config: { keys: 16 },
    parts: 2,
    sequences: [
      [1030, 7],
      [20, 58],
    ],
  },
];

export const SMALL_HEAD: Case = {
  name: 'a float head before affine 8',
  head: 16,
  shape: { headDim: 8, key: affine(8, 32), value: affine(8, 32) },
  sequences: [
    [10, 9],
    [0, 3],
  ],
};
