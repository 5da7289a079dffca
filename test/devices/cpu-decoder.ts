/** A small decoder on a device of the CPU, every layer in a placement group of its own, and a talk of three rows with it. */
import type { Device, Program, ProgramLimits } from '../../src/device/device.js';
import type { KvFormat, KvPool } from '../../src/device/kv.js';
import { Ops } from '../../src/device/ops.js';
import { makeRopeTable } from '../../src/device/rope.js';
import { StepInputs } from '../../src/device/step.js';
import type { StepResult } from '../../src/device/step-result.js';
import { Random } from './numbers.js';
import { setSampling } from './run.js';
import { randomMatrix, vectorSource } from './sources.js';

export const F16: KvFormat = { kind: 'float', dtype: 'f16' };
const HIDDEN = 64;
const HEADS = 4;
const KV_HEADS = 2;
const HEAD_DIM = 20;
const VOCAB = 301;
const LAYERS = 4;
const SLOTS = 6;
export const LIMITS: ProgramLimits = {
  maxTokens: 96,
  maxOutputs: 8,
  maxSequences: 8,
  maxContext: 1024,
  inFlight: 3,
};

interface Model {
  readonly program: Program;
  readonly pool: KvPool;
  readonly logits: Parameters<Program['read']>[0];
}

/** A small decoder, every layer in a placement group of its own. */
export async function loadModel(device: Device): Promise<Model> {
  const random = new Random(12);
  const format = { kind: 'affine', bits: 4, groupSize: 32, dtype: 'f16' } as const;
  const qkvRows = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
  const blocks = 200;
  const vectors = blocks * 16 * KV_HEADS * HEAD_DIM;
  device.place([
    { matrices: [{ rows: VOCAB, cols: HIDDEN, format: { kind: 'float', dtype: 'f32' } }], kvBytes: 0 },
    ...Array.from({ length: LAYERS }, () => ({
      matrices: [
        { rows: qkvRows, cols: HIDDEN, format },
        { rows: HIDDEN, cols: HEADS * HEAD_DIM, format: { kind: 'float', dtype: 'f32' } as const },
        { rows: 256, cols: HIDDEN, format },
        { rows: HIDDEN, cols: 128, format },
      ],
      kvBytes: vectors * 4,
    })),
  ]);
  const pool = device.createKvPool({
    layers: Array.from({ length: LAYERS }, (_, layer) => ({
      kvHeads: KV_HEADS,
      headDim: HEAD_DIM,
      key: F16,
      value: F16,
      group: layer + 1,
    })),
    blocks,
    blockTokens: 16,
    slots: SLOTS,
    maxBlocksPerSlot: 32,
  });
  for (let slot = 0; slot < SLOTS; slot++) {
    pool.setBlocks(
      slot,
      0,
      Uint32Array.from({ length: 32 }, (_, i) => ((slot * 32 + i) * 7 + 3) % blocks),
    );
  }
  const f32 = { kind: 'float', dtype: 'f32' } as const;
  const table = await device.loadMatrix([randomMatrix(random, VOCAB, HIDDEN, f32).source], { use: 'both' });
  const rope = makeRopeTable({
    dims: HEAD_DIM,
    style: 'half',
    frequencies: Float64Array.from({ length: HEAD_DIM / 2 }, (_, i) => 1000 ** ((-2 * i) / HEAD_DIM)),
    attentionFactor: 1,
    maxContext: LIMITS.maxContext,
  });
  const ops = new Ops();
  const shape = { heads: HEADS, kvHeads: KV_HEADS, headDim: HEAD_DIM };
  const load = async (rows: number, cols: number, group: number, quantized = true) =>
    device.loadMatrix([randomMatrix(random, rows, cols, quantized ? format : f32).source], {
      use: 'linear',
      group,
    });
  const norm = async (length: number, group: number) =>
    device.loadVector(vectorSource(random.normals(length).map((v) => 1 + v / 10)), group);
  let x = ops.embed(table, 6);
  for (let layer = 0; layer < LAYERS; layer++) {
    const group = layer + 1;
    const qkv = ops.linear(
      ops.rmsNorm(x, await norm(HIDDEN, group), 1e-6),
      await load(qkvRows, HIDDEN, group),
    );
    const heads = { q: await norm(HEAD_DIM, 0), k: await norm(HEAD_DIM, group), eps: 1e-6 };
    const q = ops.ropeAppend(qkv, { ...shape, layer, norm: heads, rope });
    const window = layer % 2 === 1 ? 30 : null;
    const a = ops.attend(q, { ...shape, layer, window });
    x = ops.linear(a, await load(HIDDEN, HEADS * HEAD_DIM, group, false), x);
    const up = ops.linear(ops.rmsNorm(x, await norm(HIDDEN, group), 1e-6), await load(256, HIDDEN, group));
    x = ops.linear(ops.glu(up, 'silu'), await load(HIDDEN, 128, group), x);
  }
  const last = ops.rmsNorm(ops.selectOutputs(x), await norm(HIDDEN, 0), 1e-6);
  const logits = ops.keep(ops.linear(last, table));
  ops.sample(logits);
  return { program: await device.compile(ops.finish(), LIMITS, pool), pool, logits };
}

export interface Row {
  readonly slot: number;
  readonly position: number;
  readonly tokens: readonly number[];
}

export function fill(step: StepInputs, rows: readonly Row[]): StepInputs {
  step.clear();
  rows.forEach(({ slot, position, tokens }, s) => {
    step.seqSlot[s] = slot;
    step.seqPosition[s] = position;
    step.seqStart[s] = step.tokenCount;
    step.seqLength[s] = tokens.length;
    for (const token of tokens) step.tokens[step.tokenCount++] = token;
    step.outputs[s] = step.tokenCount - 1;
    step.outputSlot[s] = slot;
    setSampling(step, s, {
      temperature: s % 2,
      topP: 0.95,
      seed: [slot, 1],
      position: position + tokens.length,
    });
  });
  step.sequenceCount = rows.length;
  step.outputCount = rows.length;
  return step;
}

/** Prompts of three lengths, then 20 steps whose tokens never leave the device. Returns ids and the last logits. */
export async function talk(model: Model): Promise<{ ids: number[][]; logits: Float32Array }> {
  const prompts = [5, 61, 20].map((n, s) => Array.from({ length: n }, (_, i) => (i * 31 + s * 7) % VOCAB));
  const ids: number[][] = [];
  const step = new StepInputs(LIMITS.maxTokens, LIMITS.maxSequences, LIMITS.maxOutputs);
  const under: Promise<StepResult>[] = [
    model.program.submit(
      fill(
        step,
        prompts.map((tokens, slot) => ({ slot, position: 0, tokens })),
      ),
    ),
  ];
  for (let n = 0; n < 20; n++) {
    const rows = prompts.map((tokens, slot) => ({
      slot,
      position: tokens.length + n,
      tokens: [-(slot + 1)],
    }));
    under.push(model.program.submit(fill(step, rows)));
    if (under.length === LIMITS.inFlight) ids.push([...(await under.shift()!).ids]);
  }
  for (const pending of under) ids.push([...(await pending).ids]);
  return { ids, logits: await model.program.read(model.logits, 3) };
}
