/**
 * The kernels of the CPU device. Every thread has an instance of this module for every memory, and runs the same lists
 * of commands (see ../opcodes.ts): it takes its share of a command and meets the others before the next.
 */
import {
  OP_ACT, OP_ADD, OP_ATTEND, OP_ATTEND_MERGE, OP_ATTEND_SEGMENTS, OP_CONVERT, OP_COPY_BLOCKS, OP_EMBED, OP_EXPERT_LINEAR,
  OP_EXPERT_PAIRS, OP_EXPERT_ROWS, OP_EXPERT_SUM, OP_GLU, OP_LINEAR, OP_NORM, OP_QUANTIZE_ROWS, OP_RMS_NORM, OP_ROPE_APPEND,
  OP_ROTATE, OP_ROUTE, OP_SAMPLE, OP_SCALE, OP_SELECT_OUTPUTS,
  OP_COLUMNS, OP_GATE, OP_HEAD_LINEAR, OP_GATED_DELTA, OP_SELECTIVE_SCAN, OP_SHORT_CONV,
  OP_ADD_FEATURES, OP_ADD_GATHERED, OP_CLAMP,
} from '../opcodes';
import { addFeatures, addGathered } from './add-rows';
import { attend, attendMerge } from './attend';
import { attendSegments } from './attend-segments';
import { barrier } from './barrier';
import { clamp } from './clamp';
import { act, add, glu, rmsNorm, scale, selectOutputs } from './elementwise';
import { embed } from './embed';
import { expertLinear, expertPairs, expertRows, expertSum } from './experts';
import { columns } from './columns';
import { convert } from './kv-convert';
import { copyBlocks } from './kv-copy';
import { gate } from './gate';
import { gatedDelta } from './gated-delta';
import { headLinear } from './head-linear';
import { linear } from './matmul';
import { norm } from './norm';
import { quantizeRows } from './quantize-rows';
import { ropeAppend } from './rope-append';
import { rotateRows } from './rotate-rows';
import { route } from './route';
import { sample } from './sample';
import { selectiveScan } from './selective-scan';
import { shortConv } from './short-conv';

export { barrier } from './barrier';
export { readAll } from './read';
export { beginStep, endStep } from './step';

/**
 * Runs `count` commands, those that no row of the step wants left out. False if a thread has died on the way.
 * Which comes next is settled before the threads meet: behind the last barrier the step may be over, and gone.
 */
export function run(commands: usize, count: u32, thread: u32, threads: u32): bool {
  let at = commands;
  let left = count;
  while (left > 0) {
    if (isWanted(at)) {
      launch(load<u32>(at), at + 16, thread, threads);
      let next = at + load<u32>(at, 4);
      for (left--; left > 0 && !isWanted(next); left--) next += load<u32>(next, 4);
      at = next;
      if (!barrier(threads)) return false;
    } else {
      // Only the first ones.
      at += load<u32>(at, 4);
      left--;
    }
  }
  return true;
}

// @ts-ignore: decorator
@inline function isWanted(at: usize): bool {
  const bits = load<u32>(at, 12);
  return bits == 0 || (load<u32>(load<u32>(at, 8)) & bits) != 0;
}

function launch(opcode: u32, p: usize, thread: u32, threads: u32): void {
  switch (opcode) {
    case OP_QUANTIZE_ROWS: quantizeRows(p, thread, threads); break;
    case OP_LINEAR: linear(p, thread, threads); break;
    case OP_EMBED: embed(p, thread, threads); break;
    case OP_RMS_NORM: rmsNorm(p, thread, threads); break;
    case OP_ROPE_APPEND: ropeAppend(p, thread, threads); break;
    case OP_ATTEND: attend(p, thread, threads); break;
    case OP_ATTEND_MERGE: attendMerge(p, thread, threads); break;
    case OP_CONVERT: convert(p, thread, threads); break;
    case OP_COPY_BLOCKS: copyBlocks(p, thread, threads); break;
    case OP_GLU: glu(p, thread, threads); break;
    case OP_NORM: norm(p, thread, threads); break;
    case OP_ACT: act(p, thread, threads); break;
    case OP_ROUTE: route(p, thread, threads); break;
    case OP_ROTATE: rotateRows(p, thread, threads); break;
    case OP_ATTEND_SEGMENTS: attendSegments(p, thread, threads); break;
    case OP_EXPERT_PAIRS: expertPairs(p, thread, threads); break;
    case OP_EXPERT_ROWS: expertRows(p, thread, threads); break;
    case OP_EXPERT_LINEAR: expertLinear(p, thread, threads); break;
    case OP_EXPERT_SUM: expertSum(p, thread, threads); break;
    case OP_HEAD_LINEAR: headLinear(p, thread, threads); break;
    case OP_GATED_DELTA: gatedDelta(p, thread, threads); break;
    case OP_COLUMNS: columns(p, thread, threads); break;
    case OP_SELECTIVE_SCAN: selectiveScan(p, thread, threads); break;
    case OP_GATE: gate(p, thread, threads); break;
    case OP_ADD_FEATURES: addFeatures(p, thread, threads); break;
    case OP_ADD_GATHERED: addGathered(p, thread, threads); break;
    case OP_CLAMP: clamp(p, thread, threads); break;
    case OP_SHORT_CONV: shortConv(p, thread, threads); break;
    case OP_ADD: add(p, thread, threads); break;
    case OP_SCALE: scale(p, thread, threads); break;
    case OP_SELECT_OUTPUTS: selectOutputs(p, thread, threads); break;
    case OP_SAMPLE: sample(p, thread, threads); break;
    // OP_TRAP, and whatever the host should never have written.
    default: unreachable();
  }
}
