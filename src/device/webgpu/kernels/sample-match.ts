/**
 * DRY's matches: carries the match length of every distance on by the row's last token, and leaves the longest match
 * of each id in the slot, from where the pass over the logits takes them. One thread for each distance.
 *
 * In a history that repeats itself most distances speak for one id. Its matches are put together in the workgroup
 * first, so that a word of the slot is not fought over by tens of thousands of threads.
 */

import { FEATURE } from '../../sampling.js';
import type { Stage } from '../kernel.js';
import { LOOK_BACK, rowWord } from '../step-buffer.js';
import { type SampleShape, sampleStage, writes } from './sample-wgsl.js';

const THREADS = LOOK_BACK;
const NONE = '0xffffffffu';

export function matchStage(shape: SampleShape): Stage {
  return sampleStage({
    name: 'matches',
    shape,
    threads: THREADS,
    lazy: true,
    rowAxis: 'y',
    bindings: [writes('sampler', 'array<atomic<u32>>')],
    before: () => `var<workgroup> leader: atomic<u32>;
var<workgroup> longest: atomic<u32>;
var<workgroup> led: u32;
var<workgroup> led_id: u32;`,
    main: (text) => `if ((${rowWord('features')} & F_DRY) == 0u) { return; }
  let position = c.y;
  let window = ${rowWord('dryWindow')};
  let near = select(min(position, window), position, window == 0u);
  if (wid.x * ${THREADS}u >= near) { return; }
  let head = ${rowWord('head')} * 4u;
  let history = ${rowWord('history')} * 4u;
  let ring = ${rowWord('ring')};
  let lengths = ${rowWord('lengths')} * 4u;
  let table = ${rowWord('matched')} * 4u;
  // The place of t(n − 1 − d) in the ring is that of t(n − 1), d back.
  let last_at = (position - 1u) % ring;
  // All loads that wait for nothing, before any that does.
  let d = wid.x * ${THREADS}u + lid;
  let there = d >= 1u && d < near;
  var length = 0u;
  var token = 0u;
  var next = 0u;
  if (there) {
    length = atomicLoad(&sampler[lengths + d]);
    token = atomicLoad(&sampler[history + select(last_at + ring - d, last_at - d, last_at >= d)]);
    let back = d - 1u;
    next = atomicLoad(&sampler[history + select(last_at + ring - back, last_at - back, last_at >= back)]);
  }
  let last = atomicLoad(&sampler[history + last_at]);
  let carried = atomicLoad(&sampler[head + 2u]) == position;
  let since = min(position - atomicLoad(&sampler[head + 1u]), near);
  if (lid == 0u) {
    atomicStore(&leader, ${NONE});
    atomicStore(&longest, 0u);
  }
  workgroupBarrier();
  var matched = 0u;
  if (there) {
    if (!carried) {
      length = select(0u, length + 1u, token == last);
      atomicStore(&sampler[lengths + d], length);
    }
    let m = min(min(length, near - d), since);
    if (m > 0u && m >= ${rowWord('dryAllowedLength')}) {
      // A breaker that is one id is never penalised.
      let ids = ${rowWord('breakers')} * 4u;
      var spared = next >= ${text.vocab};
      if (ids != 0u && !spared) { spared = ((atomicLoad(&sampler[ids + (next >> 5u)]) >> (next & 31u)) & 1u) != 0u; }
      if (!spared) {
        matched = m;
        atomicMin(&leader, lid);
      }
    }
  }
  workgroupBarrier();
  if (lid == 0u) { led = atomicLoad(&leader); }
  // In most workgroups nothing has matched.
  let leads = workgroupUniformLoad(&led);
  if (leads == ${NONE}) { return; }
  if (lid == leads) { led_id = next; }
  let shared_id = workgroupUniformLoad(&led_id);
  if (matched > 0u) {
    if (next == shared_id) {
      if (matched > atomicLoad(&longest)) { atomicMax(&longest, matched); }
    } else if (matched > atomicLoad(&sampler[table + next])) {
      atomicMax(&sampler[table + next], matched);
    }
  }
  workgroupBarrier();
  if (lid == 0u) { atomicMax(&sampler[table + shared_id], atomicLoad(&longest)); }`,
    workgroups: (facts, out) => {
      out[0] = (facts.features & FEATURE.DRY) === 0 ? 0 : Math.ceil(facts.dryWindow / THREADS);
      out[1] = facts.outputs;
      out[2] = 1;
    },
  });
}
