/** The products of a program as decisions: each shape, format and number of rows once, on the model's own weights. */

import type { Graph, NodeOf } from '../../graph.js';
import type { KvCaches } from '../../kv.js';
import { ROPE_FINE } from '../../rope.js';
import type { Fusions } from '../fusion.js';
import type { Capabilities, Handed, Kernel, LinearShape, NormHanded } from '../kernel.js';
import { type LinearChoice, linearFits, linearKernel, linearKey } from '../kernels/linear-choice.js';
import { constantLengths } from '../kernels/linear-gemv-append.js';
import { keepsNormed, keepsNorming, keepsTaking } from '../kernels/linear-handed.js';
import type { GpuKvPool } from '../kv-pool.js';
import { linearWork } from '../linear-work.js';
import type { Shard } from '../matrix.js';
import { type AppendingWork, appendingWork } from '../resolve-append.js';
import { handsOn, normsOn } from '../resolve-linear.js';
import type { Bucket, Resources } from '../resources.js';
import type { RopeAppendShape } from '../shapes.js';
import { compareResults, factsOf, type TuningBench } from './bench.js';
import type { Contest, Decision } from './decision.js';
import { type LinearCandidate, linearCandidates, linearCost } from './linear-candidates.js';
import type { TimedLaunch } from './stopwatch.js';
import type { TunedChoices } from './tuned-choices.js';

/** Weights that a round reads, as far as the model has layers: more than caches hold. */
const ROUND_BYTES = 192 * 1024 * 1024;
const MOST_SHARDS = 64;

/** What a product does for its neighbours by the rules' choice: what could not would cost a launch more. */
interface Tie {
  /** It merges what attention left of one row. */
  readonly merges: boolean;
  readonly takes: Handed | null;
  readonly gives: Handed | null;
  /** As much through a norm. */
  readonly normTaken: NormHanded | null;
  readonly normGiven: NormHanded | null;
}

interface Work {
  readonly shape: LinearShape;
  readonly shards: Shard[];
  /** Of all nodes that it is for, by their text. */
  readonly ties: Map<string, Tie>;
}

function tieOf(node: NodeOf<'linear'>, bucket: Bucket, r: Pick<Resources, 'capabilities' | 'fusions'>): Tie {
  const producer = r.fusions.producers.get(node);
  return {
    merges: bucket[node.x.rows] === 1 && producer?.op === 'attend',
    takes: handsOn(producer, bucket, r),
    gives: handsOn(node, bucket, r),
    normTaken: normsOn(r.fusions.normProducers.get(node), bucket, r)?.form ?? null,
    normGiven: normsOn(node, bucket, r)?.form ?? null,
  };
}

/** Whether a candidate does for the neighbours what the first does, which is the choice by rule. */
function keeps(
  capabilities: Capabilities,
  shape: LinearShape,
  { merges, takes, gives, normTaken, normGiven }: Tie,
  choice: LinearChoice,
  rule: LinearChoice,
): boolean {
  if (merges && rule.family === 'gemv' && choice.family !== 'gemv') return false;
  if (takes !== null && !keepsTaking(capabilities, shape, takes, choice)) return false;
  if (normTaken !== null && !keepsNormed(normTaken, choice)) return false;
  if (normGiven !== null && !keepsNorming(capabilities, shape, normGiven, choice)) return false;
  return gives === null || linearFits(capabilities, { ...shape, outHanded: gives }, choice);
}

/** How long contexts may become changes the text of a kernel and not its time: choices are remembered for all. */
function ofAnyContext({ shape, shard }: AppendingWork): {
  readonly shape: LinearShape;
  readonly shard: Shard;
} {
  return { shape: { ...shape, append: { ...shape.append, maxBlocksPerSlot: 1 } }, shard };
}

/**
 * @param buckets rows of steps, as plans are made for
 * @param caches that programs attend over: without them no product is taken for one that appends
 * @param capabilities of the device, without anything tuned
 */
export function linearDecisions(
  graph: Graph,
  fusions: Fusions,
  buckets: readonly Bucket[],
  caches: KvCaches<GpuKvPool> | null,
  capabilities: Capabilities,
  tuned: TunedChoices,
  bench: () => TuningBench,
): Decision[] {
  const works = new Map<string, Work>();
  for (const bucket of buckets) {
    for (const node of graph.nodes) {
      if (node.op !== 'linear' || bucket[node.x.rows] === 0) continue;
      const appending =
        caches === null ? null : appendingWork(node, bucket, { caches, capabilities, fusions });
      // It is another kernel, with a choice of its own: what is best for the product alone says nothing about it.
      const all =
        appending === null ? linearWork(node, bucket, { capabilities, fusions }) : [ofAnyContext(appending)];
      const tie = tieOf(node, bucket, { capabilities, fusions });
      for (const { shape, shard } of all) {
        const key = linearKey(shape);
        const work: Work = works.get(key) ?? { shape, shards: [], ties: new Map() };
        works.set(key, work);
        work.ties.set(JSON.stringify(tie), tie);
        if (!work.shards.includes(shard)) work.shards.push(shard);
      }
    }
  }
  return [...works].flatMap(([key, { shape, shards, ties }]) => {
    const candidates = linearCandidates(capabilities, shape).filter(({ choice }, _, [rule]) =>
      [...ties.values()].every((tie) => keeps(capabilities, shape, tie, choice, rule!.choice)),
    );
    if (candidates.length < 2) return [];
    const kernelOf = (index: number): Kernel => linearKernel(capabilities, shape, candidates[index]!.choice);
    return {
      key,
      rows: shape.rows,
      candidates,
      ...linearCost(shape, bytesOf(shards[0]!)),
      textOf: (index: number) =>
        kernelOf(index)
          .stages.map(({ wgsl }) => wgsl)
          .join('\n'),
      open: () => openContest(bench(), shape, shards, candidates, kernelOf),
      adopt: (index: number) => tuned.adoptLinear(key, candidates[index]!.choice),
    };
  });
}

function bytesOf({ codes, metas }: Shard): number {
  return codes.size + (metas?.size ?? 0);
}

/** What a product that appends binds besides, for the first token of a cache of one block. */
function appendBuffers(
  shape: LinearShape,
  append: RopeAppendShape,
  make: (label: string, bytes: number, seed?: number) => GPUBuffer,
): Record<string, GPUBuffer> {
  const { kvHeads, headDim, blockTokens, rope } = append;
  const constants = Object.values(constantLengths(shape, append)).reduce((sum, length) => sum + length, 0);
  const cache = kvHeads * blockTokens * headDim * 4;
  return {
    tables: make('tables', 16),
    keys: make('keys', cache),
    values: make('values', cache),
    ...(constants === 0 ? {} : { constants: make('constants', constants * 4, 4) }),
    ...(rope === null ? {} : { rope: make('rope', (ROPE_FINE + 1) * rope.dims * 4, 5) }),
  };
}

async function openContest(
  bench: TuningBench,
  shape: LinearShape,
  all: readonly Shard[],
  candidates: readonly LinearCandidate[],
  kernelOf: (index: number) => Kernel,
): Promise<Contest> {
  const { rows, k, xStride, outStride } = shape;
  const count = Math.max(1, Math.min(all.length, MOST_SHARDS, Math.ceil(ROUND_BYTES / bytesOf(all[0]!))));
  const shards = all.slice(0, count);
  const made: GPUBuffer[] = [];
  const make = (label: string, bytes: number, seed?: number): GPUBuffer => {
    const buffer = bench.buffer(label, bytes, seed);
    made.push(buffer);
    return buffer;
  };
  const close = (): void => {
    for (const buffer of made) bench.free(buffer);
  };
  try {
    const step = make('step', 64);
    const facts = factsOf(rows);
    bench.device.queue.writeBuffer(step, 0, new Uint32Array([facts.tokens, facts.outputs, 1, 0]));
    const out = make('out', rows * outStride * 4);
    const shared: Record<string, GPUBuffer> = {
      step,
      out,
      x: make('x', rows * xStride * 4, 1),
      ...(shape.residual ? { residual: make('residual', rows * outStride * 4, 2) } : {}),
      ...(shape.norm === null ? {} : { norm: make('norm', k * 4, 3) }),
      ...(shape.append === undefined ? {} : appendBuffers(shape, shape.append, make)),
    };
    const scratch = new Map<string, number>();
    for (const index of candidates.keys()) {
      for (const [name, bytes] of Object.entries(kernelOf(index).scratch ?? {}))
        scratch.set(name, Math.max(scratch.get(name) ?? 0, bytes));
    }
    for (const [name, bytes] of scratch) shared[name] = make(name, bytes);
    await bench.settle();
    const groups = new Map<string, GPUBindGroup>();
    const launchesOn = (index: number, shard: Shard): TimedLaunch[] => {
      const { codes, metas, bias } = shard;
      const own = { codes, ...(metas === null ? {} : { metas }), ...(bias === null ? {} : { bias }) };
      return bench.launches(kernelOf(index), { ...shared, ...own }, facts, groups);
    };
    let expected: Uint32Array | null = null;
    return {
      prepare: async (list) => {
        const ok = await Promise.all(list.map((index) => bench.compiles(kernelOf(index))));
        return list.filter((_, i) => ok[i]);
      },
      time: (list, samples) => {
        const rivals = list.map((index) => ({
          launches: shards.flatMap((shard) => launchesOn(index, shard)),
          works: shards.length,
        }));
        return bench.stopwatch.time(rivals, samples);
      },
      compare: async (index) => {
        expected ??= await bench.results(launchesOn(0, shards[0]!), out);
        return compareResults(expected, await bench.results(launchesOn(index, shards[0]!), out));
      },
      close,
    };
  } catch (error) {
    close();
    throw error;
  }
}
