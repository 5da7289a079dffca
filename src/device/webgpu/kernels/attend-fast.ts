/** The fast attention kernels as variants: which device and shape gets which, and with what sizes. */

import { isFloatKv, kvFormatName } from '../../kv.js';
import type { Capabilities, Kernel, Stage, Variant } from '../kernel.js';
import { ATTENTION_SPLIT, ATTENTION_TILE, WIDE_SPLITS } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { bytesStage } from './attend-bytes.js';
import { bytesFits, itemScoreBytes } from './attend-bytes-plan.js';
import { decodeStage } from './attend-decode.js';
import { type DecodeConfig, decodeFits } from './attend-decode-plan.js';
import { mergePartsStage, partScratch } from './attend-parts.js';
import { prefillStage } from './attend-prefill.js';
import { type PrefillConfig, planPrefill, prefillFits } from './attend-prefill-plan.js';
import { quadsStage } from './attend-quads.js';
import { quadsFits } from './attend-quads-plan.js';
import { turnStage } from './attend-reduce.js';
import { codecOf, codesInRuns, hasCodes, hasScales } from './kv-formats/list.js';
import { hasItemOfRow, itemsOf } from './kv-head.js';
import { matrixOf } from './linear-choice.js';
import { fixedLanes } from './linear-fast.js';

/**
 * Threads of a workgroup and pieces of K and V on their way, by the number of workgroups, (item, KV head): while there
 * are few, many threads each hide the latency. The last is for shapes that the one before it does not take. Measured on
 * an H200.
 */
type Size = readonly [below: number, threads: number, unroll: number, valueUnroll: number];
const MANY = Number.POSITIVE_INFINITY;
const FLOAT_SIZES: readonly Size[] = [
  [400, 256, 2, 4],
  [1200, 128, 2, 4],
  [3000, 64, 4, 4],
  [MANY, 128, 4, 8],
  [MANY, 64, 4, 4],
];
const CODE_SIZES: readonly Size[] = [
  [400, 256, 2, 4],
  [1200, 64, 4, 8],
  [MANY, 128, 4, 8],
  [MANY, 64, 4, 4],
];
/** Most pieces of V on their way where codes are laid in runs: a piece is 300 operations, which hide the next one's load. */
const PLANE_PIECES = 4;
/** For wide items; and workgroups, had they one split each, from which on items are wide. */
const WIDE_SIZES: readonly Size[] = [
  [MANY, 128, 4, 8],
  [MANY, 64, 4, 4],
];
const WIDE_WORKGROUPS = 2000;

/** A size of the kernel and the number of workgroups below which it is taken. */
export interface DecodeBand {
  readonly below: number;
  readonly config: DecodeConfig;
}

/**
 * The bands of a shape by rule; empty where the kernel does not take it, and without those that another kernel takes.
 * `splits`: of an item.
 */
export function decodeBands(
  capabilities: Capabilities,
  shape: AttendShape,
  splits: number,
): readonly DecodeBand[] {
  const lanes = fixedLanes(capabilities);
  if (lanes === 0) return [];
  const float = isFloatKv(shape.key) && isFloatKv(shape.value);
  const sizes = splits > 1 ? WIDE_SIZES : float ? FLOAT_SIZES : CODE_SIZES;
  const split = splits * ATTENTION_SPLIT;
  const most = codesInRuns(shape.value) ? PLANE_PIECES : MANY;
  const products = capabilities.packedDots ? {} : { dot: false };
  const configs = sizes
    .map(([below, threads, unroll, valueUnroll]) => ({
      below,
      config: {
        subgroupSize: lanes,
        threads,
        split,
        unroll,
        valueUnroll: Math.min(valueUnroll, most),
        f16: capabilities.f16,
        ...products,
      },
    }))
    .filter(
      ({ config }) =>
        config.threads <= capabilities.workgroupThreads &&
        decodeFits(shape, config, capabilities.workgroupBytes),
    );
  // The first for any number of workgroups is the last that is needed.
  const end = configs.findIndex(({ below }) => below === MANY);
  if (end < 0) return [];
  const bands = configs.slice(0, end + 1);
  const many = manyKernel(capabilities, shape);
  if (many === null) return bands;
  return splits > 1 ? [] : bands.filter((_, i) => i === 0 || bands[i - 1]!.below < many.from);
}

/** Kind of attention and what its bands depend on, as text: nothing of the cache's size. */
export function decodeKey(shape: AttendShape, splits: number, band: number): string {
  const { heads, kvHeads, headDim, blockTokens, softcap, key, value } = shape;
  const formats = `${kvFormatName(key)}/${kvFormatName(value)} blocks${blockTokens}`;
  const extra = softcap === null ? '' : ' softcap';
  return `decode ${heads}/${kvHeads}x${headDim} ${formats}${extra} splits${splits} band${band}`;
}

/** The bands with what was measured to be best on this device. Windows are not tuned: their rows end early. */
function configsOf(capabilities: Capabilities, shape: AttendShape, splits = 1): readonly DecodeBand[] {
  const bands = decodeBands(capabilities, shape, splits);
  const { tuned } = capabilities;
  if (tuned === undefined || shape.window !== null) return bands;
  return bands.map((band, i) => ({ ...band, config: tuned.decode(shape, splits, i) ?? band.config }));
}

/** What many workgroups, (item, KV head), of one split run in place of the kernel above. */
interface ManyKernel {
  /** From so many workgroups on. */
  readonly from: number;
  readonly stage: () => Stage;
  /** Bytes of scores that an item leaves between its passes. */
  readonly itemBytes: number;
}

/**
 * From so many workgroups on; and matrices of bytes, for short codes of groups that fill them, from fewer, of TurboQuant from
 * fewer still, for its codes are most to unpack in the kernel above. Measured on an H200.
 */
const MANY_WORKGROUPS = 1200;
const FEWER_WORKGROUPS = 400;
const TURBO_WORKGROUPS = 270;
const SHORT_BITS = 4;
/**
 * Heads of a group that fill matrices: with fewer, the kernel above is faster for longer, and quads of lanes are for codes of 6
 * bits, for which the registers of the matrices' kernel are too many. Measured on an H200.
 */
const FULL_GROUP = 3;
/** Most memory for scores: more than the partial sums of a GQA group of four leave items for. */
const SCORES_BYTES = 260 * 1024 * 1024;

function manyKernel(capabilities: Capabilities, shape: AttendShape): ManyKernel | null {
  const { key, value, maxItems } = shape;
  const { workgroupBytes, bindingBytes, storageBuffers, matrices } = capabilities;
  const lanes = fixedLanes(capabilities);
  if (lanes === 0 || !(hasCodes(key) && hasCodes(value))) return null;
  const matrix = matrices.find(
    (m) => m.component === 'i8' && m.result === 'i32' && m.m === 16 && m.n === 8 && m.k === 32,
  );
  const bits = Math.max(key.bits, value.bits);
  const full = shape.heads / shape.kvHeads >= FULL_GROUP;
  const byQuads =
    hasScales(key) &&
    hasScales(value) &&
    bits > SHORT_BITS &&
    capabilities.packedDots &&
    quadsFits(shape, lanes, workgroupBytes);
  const itemBytes = itemScoreBytes(shape);
  if (
    matrix !== undefined &&
    !(byQuads && bits === 6 && !full) &&
    bytesFits(shape, { matrix, subgroupSize: lanes, storageBuffers }, workgroupBytes) &&
    maxItems * itemBytes <= Math.min(SCORES_BYTES, bindingBytes)
  )
    return {
      from:
        !full || bits > SHORT_BITS
          ? MANY_WORKGROUPS
          : codesInRuns(key) && codesInRuns(value)
            ? TURBO_WORKGROUPS
            : FEWER_WORKGROUPS,
      stage: () => bytesStage(shape),
      itemBytes,
    };
  return byQuads ? { from: MANY_WORKGROUPS, stage: () => quadsStage(shape, lanes), itemBytes: 0 } : null;
}

/** Splits of a row, per KV head, from which on items are wide; infinite where the kernel of the shape has no such. */
export function wideItemsFrom(capabilities: Capabilities, shape: AttendShape): number {
  const has =
    configsOf(capabilities, shape).length > 0 && configsOf(capabilities, shape, WIDE_SPLITS).length > 0;
  return has ? Math.ceil(WIDE_WORKGROUPS / shape.kvHeads) : Number.POSITIVE_INFINITY;
}

/** Splits of an item: those of steps, or of a row's head or tail, that may begin within a block. */
function widthsOf({ rows, blockTokens }: AttendShape): readonly number[] {
  if (rows.only === 'head') return [1];
  if (rows.only !== 'tail') return [1, WIDE_SPLITS];
  return [Math.ceil((rows.tail!.tokens + blockTokens - 1) / ATTENTION_SPLIT)];
}

/** All sizes stand in the plan; the step's number of items, and how wide they are, says which one is dispatched. */
const decode: Variant<AttendShape> = {
  name: 'decode-items',
  supports: (capabilities, shape) => configsOf(capabilities, shape, widthsOf(shape)[0]).length > 0,
  build: (capabilities, shape) => {
    const many = manyKernel(capabilities, shape);
    const most = many === null ? MANY : many.from;
    /** The stage for so many workgroups, of items so wide. */
    const within = (stage: Stage, splits: number, from: number, below: number): Stage => ({
      ...stage,
      workgroups: (facts, out) => {
        const count = itemsOf(shape.rows, facts) * shape.kvHeads;
        if ((ofRow || facts.itemSplits === splits) && count >= from && count < below)
          stage.workgroups(facts, out);
        else out[0] = 0;
      },
    });
    const ofRow = hasItemOfRow(shape.rows.only);
    const stages = widthsOf(shape).flatMap((splits) => {
      const configs = configsOf(capabilities, shape, splits);
      return configs.map(({ config }, i): Stage => {
        const from = i === 0 ? 0 : configs[i - 1]!.below;
        const below = i === configs.length - 1 ? MANY : configs[i]!.below;
        return within(decodeStage(shape, config), splits, from, Math.min(below, most));
      });
    });
    if (many === null) return { stages };
    stages.push(within(many.stage(), 1, most, MANY));
    if (many.itemBytes > 0) return { stages, scratch: { scratchScores: shape.maxItems * many.itemBytes } };
    return { stages };
  },
};

export const fastItems: readonly Variant<AttendShape>[] = [decode];

/**
 * Positions staged at once, query rows of a workgroup, and subgroups that share rows, the best first. Measured on an H200, and the
 * last on an H100.
 */
const PREFILL_SIZES: readonly (readonly [keys: number, rows: number, split: number])[] = [
  [64, 64, 1],
  [32, 32, 1],
  [32, 16, 1],
  [32, 32, 2],
  [32, 16, 2],
];

function prefillConfig(capabilities: Capabilities, shape: AttendShape): PrefillConfig | null {
  const lanes = fixedLanes(capabilities);
  const matrix = matrixOf(capabilities);
  if (lanes === 0 || matrix === null) return null;
  const rowsThereAre = (shape.heads / shape.kvHeads) * ATTENTION_TILE;
  for (const [keys, rows, split] of PREFILL_SIZES) {
    if (rows > rowsThereAre) continue;
    const { workgroupBytes, workgroupThreads } = capabilities;
    const config = { matrix, subgroupSize: lanes, keys, rows, split, workgroupBytes };
    if (prefillFits(shape, config) && planPrefill(shape, config).subs * lanes <= workgroupThreads)
      return config;
  }
  return null;
}

/** Workgroups of a tile on matrices; 0 where the shape has no such kernel. */
export function tileWorkgroups(capabilities: Capabilities, shape: AttendShape): number {
  const config = prefillConfig(capabilities, shape);
  return config === null ? 0 : shape.kvHeads * planPrefill(shape, config).rowBlocks;
}

/** Tiles whole and in parts; TurboQuant's values are rotated back last. */
export function prefillKernel(shape: AttendShape, config: PrefillConfig): Kernel {
  const { rows, rowBlocks } = planPrefill(shape, config);
  const rotated = codecOf(shape.value).rotation(shape.value, shape.headDim) !== null;
  // What is still to be rotated is f32.
  const own = rotated ? { ...shape, outHanded: false } : shape;
  const { tail, only } = shape.rows;
  if (only === 'tail') return { stages: [prefillStage(shape, config)] };
  const stages = [
    prefillStage(own, config),
    prefillStage(own, config, true),
    mergePartsStage(own, rows, rowBlocks),
  ];
  // Of rows with a tail that is done where the two are put together.
  if (rotated && tail === undefined) stages.push(turnStage(shape));
  return { stages, scratch: partScratch(shape, rows) };
}

const prefill: Variant<AttendShape> = {
  name: 'matrix-tiles',
  supports: (capabilities, shape) => prefillConfig(capabilities, shape) !== null,
  build: (capabilities, shape) => prefillKernel(shape, prefillConfig(capabilities, shape)!),
};

export const fastTiles: readonly Variant<AttendShape>[] = [prefill];
