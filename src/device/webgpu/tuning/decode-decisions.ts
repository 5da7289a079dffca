/**
 * Decode attention as decisions: for each band of workgroups, the threads of one and what they have on their way.
 *
 * A band is measured on as many rows of one context as bring it about, over a cache of its own that is filled with
 * numbers. Blocks are used by several rows where all would not fit: there are more than caches hold.
 */

import type { Graph } from '../../graph.js';
import { type KvCaches, kvTokenBytes } from '../../kv.js';
import { StepInputs } from '../../step.js';
import type { Capabilities, Kernel } from '../kernel.js';
import type { AttendShape } from '../kernels/attend.js';
import { decodeStage } from '../kernels/attend-decode.js';
import { type DecodeConfig, decodeFits, decodeOrder } from '../kernels/attend-decode-plan.js';
import { decodeBands, decodeKey } from '../kernels/attend-fast.js';
import { kvLayout } from '../kernels/kv-layout.js';
import { allRows } from '../kernels/kv-rows.js';
import type { GpuKvPool } from '../kv-pool.js';
import { attendShapes } from '../resolve-attend.js';
import { ATTENTION_SPLIT, StepPacker, WIDE_SPLITS } from '../step-buffer.js';
import { compareResults, type TuningBench } from './bench.js';
import type { Contest, Decision, DecisionCandidate } from './decision.js';
import type { TunedChoices } from './tuned-choices.js';

interface DecodeCandidate extends DecisionCandidate {
  readonly config: DecodeConfig;
}

const THREADS = [64, 128, 256];
const UNROLLS: readonly (readonly [unroll: number, valueUnroll: number, ahead: boolean])[] = [
  [1, 2, false],
  [1, 4, false],
  [2, 2, false],
  [2, 4, false],
  [2, 8, false],
  [4, 4, false],
  [4, 8, false],
  [1, 2, true],
  [2, 4, true],
];

/** Threads, and dims of K and of V that a lane takes where it is not as many as by format and group. */
const DIMS: readonly (readonly [threads: number, keyDims: number | null, valueDims: number | null])[] = [
  [64, 8, null],
  [128, 8, null],
  [128, 32, null],
  [64, null, 4],
  [128, null, 4],
  [128, null, 16],
];

/** Candidates in the place of a band's size by rule, which is the first. */
function decodeCandidates(
  capabilities: Capabilities,
  shape: AttendShape,
  rule: DecodeConfig,
): DecodeCandidate[] {
  const found = new Map<string, DecodeCandidate>();
  const order = decodeOrder(shape, rule);
  const others = THREADS.flatMap((threads) =>
    UNROLLS.map(([unroll, valueUnroll, ahead]) => ({ ...rule, threads, unroll, valueUnroll, ahead })),
  );
  const dims = DIMS.map(([threads, keyDims, valueDims]) => ({
    ...rule,
    threads,
    unroll: 2,
    valueUnroll: 4,
    ...(keyDims === null ? {} : { keyDims }),
    ...(valueDims === null ? {} : { valueDims }),
  }));
  for (const config of [rule, ...others, ...dims]) {
    const { threads, unroll, valueUnroll = unroll, ahead = false, keyDims, valueDims } = config;
    const marks = [
      `decode t${threads} u${unroll} v${valueUnroll}`,
      ...(keyDims === undefined ? [] : [`k${keyDims}`]),
      ...(valueDims === undefined ? [] : [`d${valueDims}`]),
      ...(ahead ? ['ahead'] : []),
    ];
    const id = marks.join(' ');
    const fits =
      threads <= capabilities.workgroupThreads && decodeFits(shape, config, capabilities.workgroupBytes);
    if (found.has(id) || !fits) continue;
    found.set(id, { id, config, neutral: decodeOrder(shape, config) === order });
  }
  return [...found.values()];
}

/** Workgroups that a band is measured with: within it, and not at its edge. */
const MOST_WORKGROUPS = 6000;
/** Splits of a row. */
const ROW_SPLITS = 4;
/** Bytes of keys and values: more than caches hold. */
const CACHE_BYTES = 128 * 1024 * 1024;

export function decodeDecisions(
  graph: Graph,
  caches: KvCaches<GpuKvPool>,
  capabilities: Capabilities,
  tuned: TunedChoices,
  bench: () => TuningBench,
): Decision[] {
  const decisions = new Map<string, Decision>();
  for (const node of graph.nodes) {
    if (node.op !== 'attend') continue;
    for (const shape of attendShapes(node, { caches, maxItems: 1, maxTokens: 1, maxSequences: 1 })) {
      if (shape.window !== null) continue;
      for (const splits of [1, WIDE_SPLITS]) {
        const bands = decodeBands(capabilities, shape, splits);
        bands.forEach(({ below, config }, band) => {
          const key = decodeKey(shape, splits, band);
          if (decisions.has(key)) return;
          const from = band === 0 ? 0 : bands[band - 1]!.below;
          const wanted = Math.min(
            MOST_WORKGROUPS,
            below === Number.POSITIVE_INFINITY ? from + 2000 : (from + below) / 2,
          );
          const rows = Math.max(1, Math.round(wanted / shape.kvHeads / ROW_SPLITS));
          const decision = decisionOf(shape, splits, rows, config, key, capabilities, tuned, bench);
          if (decision.candidates.length > 1) decisions.set(key, decision);
        });
      }
    }
  }
  return [...decisions.values()];
}

function decisionOf(
  given: AttendShape,
  splits: number,
  rows: number,
  rule: DecodeConfig,
  key: string,
  capabilities: Capabilities,
  tuned: TunedChoices,
  bench: () => TuningBench,
): Decision {
  const { kvHeads, headDim, heads, blockTokens } = given;
  const context = splits * ATTENTION_SPLIT * ROW_SPLITS;
  const tokenBytes = kvTokenBytes(given.key, headDim, kvHeads) + kvTokenBytes(given.value, headDim, kvHeads);
  const perRow = context / blockTokens;
  const blocks = Math.min(
    rows * perRow,
    Math.max(perRow, Math.ceil(CACHE_BYTES / (tokenBytes * blockTokens))),
  );
  // The text of a choice knows nothing of the pool at hand.
  const shape: AttendShape = { ...given, maxBlocksPerSlot: perRow, rows: allRows(blocks) };
  const candidates = decodeCandidates(capabilities, given, rule);
  const kernelOf = (index: number): Kernel => ({ stages: [decodeStage(shape, candidates[index]!.config)] });
  return {
    key,
    rows,
    candidates,
    bytes: rows * context * tokenBytes,
    operations: 4 * rows * context * heads * headDim,
    textOf: (index) => kernelOf(index).stages[0]!.wgsl,
    open: () => openContest(bench(), shape, splits, rows, context, kernelOf),
    adopt: (index) => tuned.adoptDecode(key, candidates[index]!.config),
  };
}

async function openContest(
  bench: TuningBench,
  shape: AttendShape,
  splits: number,
  rows: number,
  context: number,
  kernelOf: (index: number) => Kernel,
): Promise<Contest> {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot } = shape;
  const { queue } = bench.device;
  const items = rows * ROW_SPLITS;
  const limits = { maxTokens: rows, maxOutputs: 1, maxSequences: rows, maxContext: context, inFlight: 1 };
  const packer = new StepPacker(limits, { slots: rows, positions: context }, items, true);
  // Wide items come from so many splits on.
  packer.wideFrom = splits === 1 ? Number.POSITIVE_INFINITY : 1;
  const inputs = new StepInputs(rows, rows, 1);
  inputs.tokenCount = rows;
  inputs.sequenceCount = rows;
  for (let row = 0; row < rows; row++) {
    inputs.seqSlot[row] = row;
    inputs.seqStart[row] = row;
    inputs.seqLength[row] = 1;
    inputs.seqPosition[row] = context - 1;
  }
  packer.pack(inputs);
  const blocks = shape.rows.keyBlocks;
  const tables = Uint32Array.from({ length: rows * maxBlocksPerSlot }, (_, i) => i % blocks);
  const made: GPUBuffer[] = [];
  const make = (...args: Parameters<TuningBench['buffer']>): GPUBuffer => {
    const buffer = bench.buffer(...args);
    made.push(buffer);
    return buffer;
  };
  const close = (): void => {
    for (const buffer of made) bench.free(buffer);
  };
  try {
    const place = { headDim, kvHeads, blockTokens, blocks };
    const buffers = {
      step: make('step', packer.bytes),
      q: make('queries', rows * heads * headDim * 4, 4),
      keys: make('keys', kvLayout(shape.key, place).bytes, 5, 'cache'),
      values: make('values', kvLayout(shape.value, place).bytes, 6, 'cache'),
      tables: make('tables', tables.byteLength),
      scratchSums: make('sums', items * heads * headDim * 4),
      scratchTops: make('tops', items * heads * 8),
    };
    await bench.settle();
    queue.writeBuffer(buffers.step, 0, packer.words);
    queue.writeBuffer(buffers.tables, 0, tables);
    const groups = new Map<string, GPUBindGroup>();
    const launchesOf = (index: number) => bench.launches(kernelOf(index), buffers, packer.facts, groups);
    const resultsOf = async (index: number): Promise<readonly Uint32Array[]> => [
      await bench.results(launchesOf(index), buffers.scratchSums),
      await bench.results(launchesOf(index), buffers.scratchTops),
    ];
    let expected: readonly Uint32Array[] | null = null;
    return {
      prepare: async (list) => {
        const ok = await Promise.all(list.map((index) => bench.compiles(kernelOf(index))));
        return list.filter((_, i) => ok[i]);
      },
      time: (list, samples) =>
        bench.stopwatch.time(
          list.map((index) => ({ launches: launchesOf(index), works: 1 })),
          samples,
        ),
      compare: async (index) => {
        expected ??= await resultsOf(0);
        const got = await resultsOf(index);
        const parts = expected.map((words, i) => compareResults(words, got[i]!));
        return parts.find((part) => part === 'differs') ?? parts.find((part) => part === 'close') ?? 'same';
      },
      close,
    };
  } catch (error) {
    close();
    throw error;
  }
}
