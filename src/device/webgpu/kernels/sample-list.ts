/**
 * A short list of a row's tokens in workgroup memory, sorted: where a top-k and a top-p end. Tokens stand there by
 * *place*, a word that is larger the earlier a token comes, and by id.
 */

import { rolledTurns, type SampleText } from './sample-wgsl.js';

/** The list and its order. `room` is a power of two. Needs `part: array<f32, threads>`. */
export function listWgsl(threads: number, room: number): string {
  return `
var<workgroup> list_place: array<u32, ${room}>;
var<workgroup> list_id: array<u32, ${room}>;
var<workgroup> list_count: atomic<u32>;

fn list_add(place: u32, id: u32) {
  let at = atomicAdd(&list_count, 1u);
  if (at < ${room}u) {
    list_place[at] = place;
    list_id[at] = id;
  }
}

// By place, largest first, then by id, smallest first; a long list by a bitonic network.
fn list_sort(count: u32, lid: u32) {
  // A short list at once: what comes before each token is counted, by four threads where there are as many. The network
  // takes fewer steps beyond.
  if (count <= ${Math.min(threads, 256)}u) {
    let ways = select(1u, 4u, count * 4u <= ${threads}u);
    if (lid < count * ways) {
      let place = list_place[lid / ways];
      let id = list_id[lid / ways];
      var rank = 0u;
      for (var j = lid % ways; j < count; j += ways) {
        let other = list_place[j];
        if (other > place || (other == place && list_id[j] < id)) { rank++; }
      }
      part[lid] = f32(rank);
    }
    workgroupBarrier();
    var place = 0u;
    var id = 0u;
    var rank = 0u;
    if (lid < count) {
      place = list_place[lid];
      id = list_id[lid];
      for (var way = 0u; way < ways; way++) { rank += u32(part[lid * ways + way]); }
    }
    workgroupBarrier();
    if (lid < count) {
      list_place[rank] = place;
      list_id[rank] = id;
    }
    workgroupBarrier();
    return;
  }
  var size = 2u;
  while (size < count) { size <<= 1u; }
  for (var i = count + lid; i < size; i += ${threads}u) {
    list_place[i] = 0u;
    list_id[i] = 0xffffffffu;
  }
  workgroupBarrier();
  for (var run = 2u; run <= size; run <<= 1u) {
    for (var apart = run >> 1u; apart > 0u; apart >>= 1u) {
      for (var pair = lid; pair < size / 2u; pair += ${threads}u) {
        let i = (pair / apart) * apart * 2u + pair % apart;
        let j = i + apart;
        let p = list_place[i];
        let q = list_place[j];
        let later = p < q || (p == q && list_id[i] > list_id[j]);
        if (later == ((i & run) == 0u)) {
          let k = list_id[i];
          list_place[i] = q;
          list_id[i] = list_id[j];
          list_place[j] = p;
          list_id[j] = k;
        }
      }
      workgroupBarrier();
    }
  }
}
`;
}

/** Where it ends. Needs `part: array<f32, 2 · threads>` and `weight_of(order, place, id)`. */
export function cutWgsl(text: SampleText, threads: number): string {
  return `
var<workgroup> cut_at: atomic<u32>;

// Leaves the sum of the values of all threads before this one in part[lid]; answers with the sum of all.
fn sum_before(value: f32, lid: u32) -> f32 {
  workgroupBarrier();
  part[lid] = value;
  workgroupBarrier();
  // Eight times as many at each level, from one half of 'part' to the other.
  var from_ = 0u;
  var sum = value;
  for (var apart = 1u; apart < ${rolledTurns(text, threads)}; apart *= 8u) {
    for (var j = 1u; j < 8u; j++) {
      if (lid >= j * apart) { sum += part[from_ + lid - j * apart]; }
    }
    from_ = ${threads}u - from_;
    part[from_ + lid] = sum;
    workgroupBarrier();
  }
  let all = part[from_ + ${threads - 1}u];
  var mine = 0.0f;
  if (lid > 0u) { mine = part[from_ + lid - 1u]; }
  workgroupBarrier();
  part[lid] = mine;
  return all;
}

// Where the sorted list ends that keeps at most 'most' of its 'count' tokens, and of these the shortest start whose
// weights reach 'share' of the whole. 'before': weights before the list; 'whole' 0: those before it and in it.
fn list_cut(order: u32, count: u32, most: u32, share: f32, before: f32, whole: f32, lid: u32) -> u32 {
  let end = min(count, most);
  let each = (end + ${threads - 1}u) / ${threads}u;
  let from_ = min(lid * each, end);
  let to = min(from_ + each, end);
  if (lid == 0u) { atomicStore(&cut_at, end - 1u); }
  if (share < 1.0f) {
    var mine = 0.0f;
    for (var i = from_; i < to; i++) { mine += weight_of(order, list_place[i], list_id[i]); }
    let all = before + sum_before(mine, lid);
    let wanted = share * select(all, whole, whole > 0.0f);
    var reached = before + part[lid];
    for (var i = from_; i < to; i++) {
      reached += weight_of(order, list_place[i], list_id[i]);
      if (reached >= wanted) {
        atomicMin(&cut_at, i);
        break;
      }
    }
  }
  workgroupBarrier();
  return atomicLoad(&cut_at);
}`;
}
