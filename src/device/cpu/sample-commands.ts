/** The commands of a sample node: their parameters, the scratch they share, and which steps want them. */
import type { NodeOf } from '../graph.js';
import type { Command } from './command.js';
import { type CommandPlace, rowCountAt } from './command-place.js';
import { OP_SAMPLE, STEP_WANTS } from './opcodes.js';
import * as w from './sample-words.js';

/** What a job is for, and the steps that want it; 0: all do. In the order of a step. */
const JOBS: readonly (readonly [job: number, wanted: number])[] = [
  [w.JOB_RAW, w.WANTS_RAW],
  [w.JOB_MASK, w.F_MASK],
  [w.JOB_ADJUST, w.F_LISTS],
  [w.JOB_SCAN, 0],
  [w.JOB_HISTOGRAM, w.WANTS_PREFIX],
  [w.JOB_PREFIX, w.WANTS_PREFIX],
  [w.JOB_MOMENTS, w.F_TYPICAL | w.F_MIROSTAT],
  [w.JOB_DEVIATIONS, w.F_TYPICAL],
  [w.JOB_SHAPE, w.F_TYPICAL | w.F_SIGMA | w.F_MIROSTAT],
  [w.JOB_REST, w.F_XTC],
  [w.JOB_XTC, w.F_XTC],
  [w.JOB_DRAW, w.WANTS_DRAW],
  [w.JOB_FINISH, 0],
  [w.JOB_RANK, w.F_LOGPROBS],
  [w.JOB_RECORD, w.RECORDS],
];

/** Words of the ids and records of a step. */
export function resultWords(outputs: number): number {
  return outputs * (1 + w.R_WORDS);
}

interface Scratch {
  readonly parts: number;
  readonly blocks: number;
  readonly bounds: number;
  readonly histograms: number;
  readonly tops: number;
  readonly lists: number;
  readonly listsStride: number;
  readonly bytes: number;
}

function scratchOf(vocab: number, rows: number, threads: number): Scratch {
  const chunks = Math.ceil(vocab / w.CHUNK);
  let at = 0;
  const take = (bytes: number): number => {
    const own = at;
    at += Math.ceil(bytes / 64) * 64;
    return own;
  };
  const listsStride = Math.ceil((w.RADIX * 12 + w.HISTOGRAM_BYTES + 12 * vocab) / 64) * 64;
  return {
    parts: take(rows * chunks * w.PART_BYTES),
    blocks: take(rows * Math.ceil(vocab / w.BLOCK) * 4),
    bounds: take(rows * w.BOUNDS_BYTES),
    histograms: take(rows * Math.ceil(vocab / w.SPAN) * w.HISTOGRAM_BYTES),
    tops: take(rows * chunks * w.TOP_BYTES),
    lists: take(threads * listsStride),
    listsStride,
    bytes: at,
  };
}

export function sampleScratchBytes(vocab: number, maxOutputs: number, threads: number): number {
  return scratchOf(vocab, maxOutputs, threads).bytes;
}

/** Where the sampler's own arrays lie: the ids and records of a step, and the addresses of the slots' states. */
export interface SamplePlace {
  readonly result: number;
  readonly states: number;
  readonly slots: number;
}

export function sampleCommands(
  place: CommandPlace,
  node: NodeOf<'sample'>,
  maxOutputs: number,
  logits: number,
  own: SamplePlace,
): Command[] {
  const vocab = node.logits.cols;
  const { layout, scratch, step } = place;
  const parts = scratchOf(vocab, maxOutputs, place.threads);
  const words = new Array<number>(w.W_WORDS).fill(0);
  words[w.W_LOGITS] = logits;
  words[w.W_VOCAB] = vocab;
  words[w.W_ROWS_AT] = rowCountAt(place, 'outputs');
  words[w.W_SAMPLING] = step + 4 * layout.sampling;
  words[w.W_SAMPLING_STRIDE] = 4 * layout.samplingStride;
  words[w.W_CHUNKS] = Math.ceil(vocab / w.CHUNK);
  words[w.W_PARTS] = scratch + parts.parts;
  words[w.W_BLOCKS] = scratch + parts.blocks;
  words[w.W_BOUNDS] = scratch + parts.bounds;
  words[w.W_HISTOGRAMS] = scratch + parts.histograms;
  words[w.W_TOPS] = scratch + parts.tops;
  words[w.W_LISTS] = scratch + parts.lists;
  words[w.W_LISTS_STRIDE] = parts.listsStride;
  words[w.W_RESULT] = own.result;
  words[w.W_OUTPUT_SLOTS] = step + 4 * layout.outputSlots;
  words[w.W_STATES] = own.states;
  words[w.W_SLOTS] = own.slots;
  return JOBS.map(([job, bits]) => ({
    opcode: OP_SAMPLE,
    words: words.with(w.W_JOB, job),
    wanted: { at: step + 4 * STEP_WANTS, bits },
  }));
}
