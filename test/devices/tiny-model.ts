/** One layer of attention between an embedding and its head: what steps are tried on. */
import type { Device, Program } from '../../src/device/device.js';
import type { KvPool } from '../../src/device/kv.js';
import { makeRopeTable } from '../../src/device/rope.js';
import type { StepInputs } from '../../src/device/step.js';
import { Random } from './numbers.js';
import { record, stepOf } from './run.js';
import { randomMatrix, vectorSource } from './sources.js';

export const VOCAB = 160;
export const WIDTH = 32;
const HEAD = 8;
export const LIMITS = { maxTokens: 32, maxOutputs: 4, maxSequences: 4, maxContext: 64, inFlight: 2 };
const FLOAT = { kind: 'float', dtype: 'f16' } as const;

export interface TinyModel {
  readonly program: Program;
  readonly pool: KvPool;
  close(): Promise<void>;
}

export async function tinyModel(device: Device): Promise<TinyModel> {
  const pool = device.createKvPool({
    layers: [{ kvHeads: 1, headDim: HEAD, key: FLOAT, value: FLOAT, group: 0 }],
    blocks: 12,
    blockTokens: 16,
    slots: 4,
    maxBlocksPerSlot: 4,
  });
  for (let slot = 0; slot < 3; slot++) pool.setBlocks(slot, 0, Uint32Array.of(slot * 2, slot * 2 + 1));
  const random = new Random(11);
  const matrix = async (rows: number, cols: number, use: 'linear' | 'both') =>
    device.loadMatrix([randomMatrix(random, rows, cols, FLOAT).source], { use });
  const table = await matrix(VOCAB, WIDTH, 'both');
  const qkv = await matrix(3 * HEAD, WIDTH, 'linear');
  const out = await matrix(WIDTH, HEAD, 'linear');
  const norm = await device.loadVector(vectorSource(random.normals(WIDTH)));
  const rope = makeRopeTable({
    dims: HEAD,
    style: 'half',
    frequencies: [1, 0.1, 0.01, 0.001],
    attentionFactor: 1,
    maxContext: 64,
  });
  const { graph } = record((ops) => {
    const x = ops.embed(table);
    const shape = { heads: 1, kvHeads: 1, headDim: HEAD };
    const q = ops.ropeAppend(ops.linear(x, qkv), { layer: 0, ...shape, rope });
    const attended = ops.attend(q, { layer: 0, ...shape });
    const y = ops.rmsNorm(ops.linear(attended, out, x), norm, 1e-5);
    ops.sample(ops.linear(ops.selectOutputs(y), table));
  });
  const program = await device.compile(graph, LIMITS, pool);
  return {
    program,
    pool,
    close: async () => {
      await program.dispose();
      pool.dispose();
    },
  };
}

/** A step over tokens of sequences, with these outputs: the index of a token, and the slot that draws there. */
export function tokensStep(
  sequences: readonly {
    readonly slot: number;
    readonly position: number;
    readonly tokens: readonly number[];
  }[],
  outputs: readonly (readonly [token: number, slot: number])[],
): StepInputs {
  const step = stepOf(
    sequences.map(({ tokens }) => tokens.length),
    sequences.map(({ position }) => position),
    sequences.map(({ slot }) => slot),
    LIMITS,
  );
  step.tokens.set(sequences.flatMap(({ tokens }) => tokens));
  outputs.forEach(([token, slot], i) => {
    step.outputs[i] = token;
    step.outputSlot[i] = slot;
  });
  step.outputCount = outputs.length;
  return step;
}
