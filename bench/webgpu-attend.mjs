// Attention kernels: cases over a paged arena, a float64 reference, the check and the timing.

import { f16, normals, relativeError } from './webgpu-harness.mjs';

/** Rows of a case: sequences of `length` tokens at `position`. Blocks of the pool are dealt in hashed order. */
export function makeCase({ StepPacker, StepInputs, ATTENTION_SPLIT }, shape, sequences) {
  const tokens = sequences.reduce((n, s) => n + s.length, 0);
  const contexts = sequences.map((s) => s.position + s.length);
  const items = sequences.reduce(
    (n, s) => n + (s.length === 1 ? Math.floor(s.position / ATTENTION_SPLIT) + 1 : 0),
    0,
  );
  const blocksEach = contexts.map((c) => Math.ceil(c / shape.blockTokens));
  const maxBlocksPerSlot = Math.max(...blocksEach);
  const blocks = blocksEach.reduce((a, b) => a + b, 0);
  const order = Array.from({ length: blocks }, (_, i) => i).sort(
    (a, b) => Math.imul(a + 1, 0x9e3779b1) - Math.imul(b + 1, 0x9e3779b1) || a - b,
  );
  const tables = new Uint32Array(sequences.length * maxBlocksPerSlot);
  let dealt = 0;
  blocksEach.forEach((n, s) => {
    for (let i = 0; i < n; i++) tables[s * maxBlocksPerSlot + i] = order[dealt++];
  });
  const inputs = new StepInputs(tokens, sequences.length, 1);
  inputs.tokenCount = tokens;
  inputs.sequenceCount = sequences.length;
  let at = 0;
  sequences.forEach((s, i) => {
    inputs.seqSlot[i] = i;
    inputs.seqStart[i] = at;
    inputs.seqLength[i] = s.length;
    inputs.seqPosition[i] = s.position;
    at += s.length;
  });
  const context = Math.max(...contexts);
  const packer = new StepPacker(
    { maxTokens: tokens, maxOutputs: 1, maxSequences: sequences.length, maxContext: context, inFlight: 1 },
    { slots: sequences.length, positions: maxBlocksPerSlot * shape.blockTokens },
    items,
    true,
  );
  const words = packer.pack(inputs);
  return {
    shape: {
      ...shape,
      maxBlocksPerSlot,
      maxItems: items,
      rows: { only: null, border: blocks, keyBlocks: blocks, keyBase: 0, valueBlocks: blocks, valueBase: 0 },
    },
    sequences,
    tokens,
    items,
    blocks,
    tables,
    step: packer.words.slice(0, words),
    facts: { ...packer.facts },
  };
}

/** A contract stage as a kernel text. */
export function stageText(stage, facts) {
  const workgroups = [0, 0, 0];
  stage.workgroups(facts, workgroups);
  return {
    label: stage.label,
    wgsl: stage.wgsl,
    bindings: stage.bindings.map((b) => b.name),
    writes: stage.bindings.filter((b) => b.access === 'read_write').map((b) => b.name),
    workgroups,
    params: stage.params,
  };
}

export const poolBytes = (c) => c.blocks * c.shape.kvHeads * c.shape.blockTokens * c.shape.headDim * 2;

/** Buffers of a case; keys and values are the first words of two arenas. */
function makeBuffers(bench, c, sharp) {
  const { shape } = c;
  const q = normals(c.tokens * shape.heads * shape.headDim, 99).map((v) => v * sharp);
  const out = bench.buffer(q.length * 4);
  bench.device.queue.writeBuffer(out, 0, new Uint8Array(q.length * 4).fill(0xff));
  return {
    q,
    resources: {
      step: bench.upload(c.step),
      q: bench.upload(q),
      tables: bench.upload(c.tables),
      out,
      scratchSums: bench.buffer(Math.max(1, c.items) * shape.heads * shape.headDim * 4),
      scratchTops: bench.buffer(Math.max(1, c.items) * shape.heads * 8),
    },
  };
}

/** out of one (token, head) in float64. */
function attendReference(keys, values, c, q, s, token, position, head) {
  const { shape } = c;
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot } = shape;
  const kv = Math.floor(head / (heads / kvHeads));
  const low = shape.window === null ? 0 : Math.max(0, position - shape.window + 1);
  const base = (t) =>
    ((c.tables[s * maxBlocksPerSlot + Math.floor(t / blockTokens)] * kvHeads + kv) * blockTokens +
      (t % blockTokens)) *
    headDim;
  const half = (arena, i) => f16(arena.word(i >>> 1) >>> (i & 1 ? 16 : 0));
  const scores = [];
  let top = -Infinity;
  for (let t = low; t <= position; t++) {
    let sum = 0;
    const at = base(t);
    for (let d = 0; d < headDim; d++) sum += q[(token * heads + head) * headDim + d] * half(keys, at + d);
    sum *= shape.scale;
    if (shape.softcap !== null) sum = shape.softcap * Math.tanh(sum / shape.softcap);
    scores.push(sum);
    top = Math.max(top, sum);
  }
  const out = new Float64Array(headDim);
  let total = 0;
  scores.forEach((score, i) => {
    const w = Math.exp(score - top);
    total += w;
    const at = base(low + i);
    for (let d = 0; d < headDim; d++) out[d] += w * half(values, at + d);
  });
  return out.map((v) => v / total);
}

/** Runs the stages and compares up to `most` (token, head) pairs. */
export async function checkAttend(bench, arenas, c, stages, most = 24) {
  const { q, resources } = makeBuffers(bench, c, 60);
  const all = { ...resources, keys: arenas.keys.buffer, values: arenas.values.buffer };
  const launches = [];
  for (const stage of stages) {
    const text = stageText(stage, c.facts);
    if (text.workgroups.some((n) => n === 0)) continue;
    launches.push(bench.launch(await bench.compile(text), all));
  }
  bench.run(launches);
  const { heads, headDim } = c.shape;
  const out = await bench.readFloats(resources.out, c.tokens * heads * headDim, 'f32');
  for (const buffer of Object.values(resources)) buffer.destroy();
  for (const v of out) if (!Number.isFinite(v)) return Number.NaN;
  const pairs = c.tokens * heads;
  const take = Math.min(most, pairs);
  const got = [];
  const ref = [];
  for (let i = 0; i < take; i++) {
    const pair = i === take - 1 ? pairs - 1 : Math.floor((i * pairs) / take);
    const token = Math.floor(pair / heads);
    let s = 0;
    let start = 0;
    while (start + c.sequences[s].length <= token) start += c.sequences[s++].length;
    const r = attendReference(
      arenas.keys,
      arenas.values,
      c,
      q,
      s,
      token,
      c.sequences[s].position + token - start,
      pair % heads,
    );
    ref.push(...r);
    got.push(...out.subarray(pair * headDim, (pair + 1) * headDim));
  }
  return relativeError(got, ref);
}

/** Median µs of the stages together, over as many pools as make `rotateBytes`. */
export async function timeAttend(bench, arenas, c, stages, rotateBytes, options) {
  const { resources } = makeBuffers(bench, c, 1);
  const bytes = Math.ceil(poolBytes(c) / 256) * 256;
  const count = Math.max(
    1,
    Math.min(Math.floor(arenas.keys.bytes / bytes), Math.ceil(rotateBytes / bytes / 2), 64),
  );
  const launches = [];
  const compiled = [];
  for (const stage of stages) {
    const text = stageText(stage, c.facts);
    if (text.workgroups.some((n) => n === 0)) continue;
    compiled.push(await bench.compile(text));
  }
  for (let i = 0; i < count; i++) {
    const part = (arena) => ({ buffer: arena.buffer, offset: i * bytes, size: bytes });
    for (const kernel of compiled)
      launches.push(
        bench.launch(kernel, { ...resources, keys: part(arenas.keys), values: part(arenas.values) }),
      );
  }
  const timed = await bench.time(launches, options);
  for (const buffer of Object.values(resources)) buffer.destroy();
  return { us: timed.us * compiled.length, spread: timed.spread };
}
