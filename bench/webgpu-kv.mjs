// Decode attention over quantised KV: every fast kernel against float64, then its time.
//
//   node bench/webgpu-kv.mjs [--only check,time,prefill] [--seconds 300] [--json FILE] [--quick]
//     [--bytes] [--pairs FROM,TO]                       check the kernel on matrices of bytes alone, and a part of its cases
//     [--model HEADS,KV_HEADS,DIM]                      what is timed; Llama-8B's if omitted
//     [--one] [--slices]                                time one row as well, and every reduce of every kernel
//   node bench/webgpu-kv.mjs --only quads               attention by quads: checked, then timed against the others in turns
//   node bench/webgpu-kv.mjs --only bytes               the same on matrices of bytes
//     [--turns FROM,TO] [--rounds N]                    a part of what is timed; rounds of turns
//
// Needs a build (npm run build). A cache is filled with hashed words, which the host decodes again on its own.

import { option } from './options.mjs';
import { checkAll } from './webgpu-kv/check.mjs';
import { left, report, save, seconds } from './webgpu-kv/context.mjs';
import { timeDecode } from './webgpu-kv/decode.mjs';
import { checkAndTimePrefill } from './webgpu-kv/prefill.mjs';
import { bytesInTurns, quadsInTurns } from './webgpu-kv/turns.mjs';

const only = option('--only', 'check,time').split(',');
if (only.includes('check')) await checkAll();
if (only.includes('quads')) await quadsInTurns();
if (only.includes('bytes')) await bytesInTurns();
if (only.includes('time')) await timeDecode();
if (only.includes('prefill')) await checkAndTimePrefill();
report.seconds = seconds - left();
save();
console.log(`${report.seconds.toFixed(0)} s`);
process.exit(0);
