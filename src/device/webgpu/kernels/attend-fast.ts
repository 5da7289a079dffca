/** The fast attention kernels as variants: which device and shape gets which, and with what sizes. */

import type { Capabilities, Stage, Variant } from '../kernel.js';
import { ATTENTION_TILE } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { type DecodeConfig, decodeFits, decodeStage } from './attend-decode.js';
import { type PrefillConfig, prefillFits, prefillStage } from './attend-prefill.js';
import { turnStage } from './attend-reduce.js';
import { fixedLanes, matrixOf } from './linear-fast.js';

/**
 * Threads of a workgroup and pieces on their way by the number of workgroups, (item, KV head): while there are few, many
 * threads each hide the latency; once they fill the GPU, small ones fit side by side.
 */
const SIZES: readonly (readonly [below: number, threads: number, unroll: number, valueUnroll: number])[] = [
  [400, 256, 2, 4],
  [Number.POSITIVE_INFINITY, 128, 4, 8],
  [Number.POSITIVE_INFINITY, 64, 4, 8],
  [Number.POSITIVE_INFINITY, 64, 4, 4],
];

function configsOf(
  capabilities: Capabilities,
  shape: AttendShape,
): { readonly below: number; readonly config: DecodeConfig }[] {
  const lanes = fixedLanes(capabilities);
  if (lanes === 0) return [];
  const configs = SIZES.map(([below, threads, unroll, valueUnroll]) => ({
    below,
    config: { subgroupSize: lanes, threads, unroll, valueUnroll, f16: capabilities.f16 },
  })).filter(
    ({ config }) =>
      config.threads <= capabilities.workgroupThreads &&
      decodeFits(shape, config, capabilities.workgroupBytes),
  );
  // The first for any number of workgroups is the last that is needed.
  const end = configs.findIndex(({ below }) => below === Number.POSITIVE_INFINITY);
  return end < 0 ? [] : configs.slice(0, end + 1);
}

/** All sizes stand in the plan; the step's number of items says which one is dispatched. */
const decode: Variant<AttendShape> = {
  name: 'decode-items',
  supports: (capabilities, shape) => configsOf(capabilities, shape).length > 0,
  build: (capabilities, shape) => {
    const configs = configsOf(capabilities, shape);
    const stages = configs.map(({ config }, i): Stage => {
      const stage = decodeStage(shape, config);
      const from = i === 0 ? 0 : configs[i - 1]!.below;
      const below = i === configs.length - 1 ? Number.POSITIVE_INFINITY : configs[i]!.below;
      return {
        ...stage,
        workgroups: (facts, out) => {
          const count = facts.items * shape.kvHeads;
          if (count >= from && count < below) stage.workgroups(facts, out);
          else out[0] = 0;
        },
      };
    });
    return { stages };
  },
};

export const fastItems: readonly Variant<AttendShape>[] = [decode];

/** Positions staged at once and query rows of a workgroup, the best first. Measured on an H200. */
const PREFILL_SIZES: readonly (readonly [keys: number, rows: number])[] = [
  [64, 64],
  [32, 32],
  [32, 16],
];

function prefillConfig(capabilities: Capabilities, shape: AttendShape): PrefillConfig | null {
  const lanes = fixedLanes(capabilities);
  const matrix = matrixOf(capabilities);
  if (lanes === 0 || matrix === null) return null;
  const rowsThereAre = (shape.heads / shape.kvHeads) * ATTENTION_TILE;
  for (const [keys, rows] of PREFILL_SIZES) {
    if (rows > rowsThereAre) continue;
    const { workgroupBytes, workgroupThreads } = capabilities;
    const config = { matrix, subgroupSize: lanes, keys, rows, workgroupBytes };
    if (prefillFits(shape, config) && (rows / matrix.m) * lanes <= workgroupThreads) return config;
  }
  return null;
}

const prefill: Variant<AttendShape> = {
  name: 'matrix-tiles',
  supports: (capabilities, shape) => prefillConfig(capabilities, shape) !== null,
  build: (capabilities, shape) => {
    const stage = prefillStage(shape, prefillConfig(capabilities, shape)!);
    return { stages: shape.value.kind === 'turboquant' ? [stage, turnStage(shape)] : [stage] };
  },
};

export const fastTiles: readonly Variant<AttendShape>[] = [prefill];
