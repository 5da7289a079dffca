/** One attention layer on a device, beside a float64 history of what each slot has stored. */
import type { Device, Matrix, Program } from '../../src/device/device.js';
import type { Tensor } from '../../src/device/graph.js';
import { type KvPool, type KvPoolSpec, kvCaches } from '../../src/device/kv.js';
import { makeRopeTable, ropeAxes } from '../../src/device/rope.js';
import { RotaryInputs } from '../../src/device/rotary-inputs.js';
import type { StepInputs } from '../../src/device/step.js';
import type { AttentionCase, Pictures, Standing } from './attention-case.js';
import { AttentionReference, type AttentionStep, rowWidth, SLOTS, seenEnd } from './attention-reference.js';
import { LIMITS, record, stepOf } from './run.js';
import { vectorSource } from './sources.js';

export type { AttentionCase, Pictures, Standing } from './attention-case.js';

/** A linear behind attention. Where `keeps`, what is between them is kept for reading, and nothing can be handed over. */
export interface Behind {
  readonly weight: Matrix;
  readonly keeps: boolean;
}

const SLOT_TOKENS = 1024;

/** A step of the reference, and what the device made of it. `out` is empty where it is not kept, `product` where there is none. */
export interface BenchStep extends AttentionStep {
  readonly out: Float32Array;
  readonly q: Float32Array;
  readonly product: Float32Array;
}

export class AttentionBench {
  readonly #device: Device;
  readonly #case: AttentionCase;
  readonly #reference: AttentionReference;
  readonly #program: Program;
  readonly #pool: KvPool;
  readonly #tail: KvPool | null;
  readonly #tensors;

  static async open(
    device: Device,
    c: AttentionCase,
    seed: number,
    behind: Behind | null = null,
  ): Promise<AttentionBench> {
    const reference = new AttentionReference(c, seed);
    const { norms, centre, sinks, frequencies } = reference;
    const blockTokens = c.blockTokens ?? 16;
    const perSlot = SLOT_TOKENS / blockTokens;
    const layer = {
      kvHeads: c.kvHeads,
      headDim: c.headDim,
      ...latentOf(c),
      key: c.key,
      value: c.value,
      group: 0,
    };
    const sizes = { blocks: SLOTS * perSlot, blockTokens, slots: SLOTS, maxBlocksPerSlot: perSlot };
    const spec: KvPoolSpec = {
      layers: [layer],
      ...sizes,
      floatStart: c.floatStart
        ? { blocks: SLOTS * perSlot, dtype: c.floatStart.dtype }
        : c.head
          ? { blocks: (SLOTS * c.head.tokens) / blockTokens, dtype: c.head.dtype, head: c.head.tokens }
          : null,
    };
    const pool = device.createKvPool(spec);
    const float = c.tail ? ({ kind: 'float', dtype: c.tail.dtype } as const) : null;
    const tail = float && device.createKvPool({ ...sizes, layers: [{ ...layer, key: float, value: float }] });
    const rope =
      c.rope === null
        ? null
        : makeRopeTable({
            dims: c.ropeDims ?? c.headDim,
            style: c.rope ?? 'half',
            frequencies,
            attentionFactor: 1,
            maxContext: LIMITS.maxContext,
            axes: c.sections === undefined ? null : ropeAxes(c.sections),
          });
    const norm = norms && {
      q: await device.loadVector(vectorSource(norms.q)),
      k: await device.loadVector(vectorSource(norms.k)),
      eps: 1e-6,
      order: c.normAfter ? ('after' as const) : ('before' as const),
    };
    const keyCentre =
      centre === null
        ? null
        : { vector: await device.loadVector(vectorSource(centre)), turns: c.centre === 'turning' };
    const sinkVector = sinks && (await device.loadVector(vectorSource(sinks)));
    const shape = { heads: c.heads, kvHeads: c.kvHeads, headDim: c.headDim, ...latentOf(c) };
    const { graph, tensors } = record((ops) => {
      const qkv = ops.input('tokens', rowWidth(c));
      const q = ops.keep(
        ops.ropeAppend(qkv, {
          ...shape,
          layer: 0,
          norm,
          rope,
          queryGrowth: c.growth ?? null,
          centre: keyCentre,
        }),
      );
      const turning = keyCentre?.turns === true && rope !== null ? { ...keyCentre, rope } : null;
      const { window = null, softcap = null } = c;
      const options = { window, softcap, sinks: sinkVector, centre: turning, ahead: c.ahead ?? false };
      const out = ops.attend(q, { ...shape, layer: 0, ...options });
      if (behind?.keeps !== false) ops.keep(out);
      const product = behind === null ? null : ops.keep(ops.linear(out, behind.weight));
      return { qkv, q, out: behind?.keeps === false ? null : out, product };
    });
    const caches = tail
      ? {
          pools: [pool, tail],
          layers: [{ group: 0, index: 0, tail: { group: 1, index: 0, tokens: c.tail!.tokens } }],
        }
      : kvCaches(pool);
    const program = await device.compile(graph, LIMITS, caches);
    return new AttentionBench(device, c, reference, program, pool, tail, tensors);
  }

  private constructor(
    device: Device,
    c: AttentionCase,
    reference: AttentionReference,
    program: Program,
    pool: KvPool,
    tail: KvPool | null,
    tensors: { qkv: Tensor; q: Tensor; out: Tensor | null; product: Tensor | null },
  ) {
    this.#device = device;
    this.#case = c;
    this.#reference = reference;
    this.#program = program;
    this.#pool = pool;
    this.#tail = tail;
    this.#tensors = tensors;
    for (let s = 0; s < SLOTS; s++) {
      const first = this.#reference.floatStart.has(s) ? pool.spec.blocks : 0;
      pool.setBlocks(
        s,
        0,
        this.#blocksOf(s).map((block) => block + first),
      );
      pool.setBlocks(s, 0, this.#headOf(s));
      // In another order than the others.
      tail?.setBlocks(s, 0, this.#blocksOf(SLOTS - 1 - s));
    }
  }

  get device(): Device {
    return this.#device;
  }

  get program(): Program {
    return this.#program;
  }

  context(slot: number): number {
    return this.#reference.context(slot);
  }

  /** Converts a slot that was float-start, to the blocks that were kept for it. */
  async convert(slot: number): Promise<void> {
    const { blockTokens = 16 } = this.#case;
    const perSlot = SLOT_TOKENS / blockTokens;
    const count = Math.ceil(this.context(slot) / blockTokens);
    const to = this.#blocksOf(slot);
    await this.#pool.convert(
      to.map((block) => block + SLOTS * perSlot).subarray(0, count),
      to.subarray(0, count),
    );
    this.#pool.setBlocks(slot, 0, to);
    this.#reference.convert(slot);
  }

  get pool(): KvPool {
    return this.#pool;
  }

  /**
   * Lets slot `to` go on where slot `from` stands: `move` is to bring what the blocks of the one hold to those of the
   * other. Both float-start, or neither.
   */
  async adopt(
    from: number,
    to: number,
    move: (from: Uint32Array, to: Uint32Array) => Promise<void>,
  ): Promise<void> {
    const count = Math.ceil(this.context(from) / (this.#case.blockTokens ?? 16));
    const first = this.#reference.floatStart.has(from) ? this.#pool.spec.blocks : 0;
    const heads = this.#headOf(from).length;
    const ids = (slot: number): Uint32Array =>
      Uint32Array.of(
        ...this.#headOf(slot).subarray(0, count),
        ...this.#blocksOf(slot)
          .subarray(heads, Math.max(heads, count))
          .map((block) => block + first),
      );
    await move(ids(from), ids(to));
    this.#reference.adopt(from, to);
  }

  /**
   * Fills with NaN the blocks of a slot that lie wholly before the window of its next token, or of its tail those that lie before that.
   * Answers how many.
   */
  async spoilBehindWindow(slot: number): Promise<number> {
    const { window, blockTokens = 16 } = this.#case;
    const pool = this.#tail ?? this.#pool;
    const own = this.#tail === null ? slot : SLOTS - 1 - slot;
    const oldest = Math.max(0, this.context(slot) + 1 - (this.#case.tail?.tokens ?? window!));
    const blocks = this.#blocksOf(own).subarray(0, Math.floor(oldest / blockTokens));
    if (blocks.length === 0) return 0;
    await pool.prepare('transfer');
    const now = await pool.read(blocks);
    // All ones are a NaN in f16, in f32, and as a scale.
    await pool.write(
      blocks,
      now.map(({ length }) => new Uint8Array(length).fill(0xff)),
    );
    return blocks.length;
  }

  /** Blocks of a float head, in another order than those of the others. */
  #headOf(slot: number): Uint32Array {
    const { head, blockTokens = 16 } = this.#case;
    const heads = (head?.tokens ?? 0) / blockTokens;
    return Uint32Array.from(
      { length: heads },
      (_, i) => this.#pool.spec.blocks + (heads - 1 - i) * SLOTS + slot,
    );
  }

  #blocksOf(slot: number): Uint32Array {
    const perSlot = SLOT_TOKENS / (this.#case.blockTokens ?? 16);
    // Blocks in a scrambled order, so that nothing works by their lying side by side.
    return Uint32Array.from(
      { length: perSlot },
      (_, i) => ((slot * perSlot + i) * 173 + 29) % (SLOTS * perSlot),
    );
  }

  async close(): Promise<void> {
    await this.#program.dispose();
    this.#pool.dispose();
    this.#tail?.dispose();
  }

  /** Appends tokens to slots, of `data` or drawn, and returns the attention of each beside its reference. */
  async step(
    slots: readonly number[],
    lengths: readonly number[],
    data?: Float32Array,
    standing: readonly Standing[] = slots.map(() => 0),
    pictures: readonly Pictures[] = [],
  ): Promise<BenchStep> {
    const made = this.#reference.step(slots, lengths, standing, pictures, data);
    this.#program.write(this.#tensors.qkv, made.qkv);
    await this.#program.submit(
      standingStep(aheadStep(stepOf(lengths, made.positions, slots), pictures), standing),
    );
    const read = async (tensor: Tensor | null): Promise<Float32Array> =>
      tensor === null ? new Float32Array(0) : this.#program.read(tensor, made.rows);
    const out = await read(this.#tensors.out);
    const q = await read(this.#tensors.q);
    const product = await read(this.#tensors.product);
    return { ...made, out, q, product };
  }

  /** Tokens that a slot has stored, computed once more from cache index `from` on: their attention. */
  async again(slot: number, from: number, data: Float32Array, pictures: Pictures): Promise<Float32Array> {
    const rows = data.length / rowWidth(this.#case);
    this.#program.write(this.#tensors.qkv, data);
    await this.#program.submit(aheadStep(stepOf([rows], [from], [slot]), [pictures]));
    return this.#program.read(this.#tensors.out!, rows);
  }

  /** Rows of q, k and v. Vectors that f32 arithmetic might store otherwise than float64 are drawn again. */
  draw(rows: number): Float32Array {
    return this.#reference.draw(rows);
  }
}

const latentOf = ({ valueDim }: AttentionCase): { valueDim?: number } =>
  valueDim === undefined ? {} : { valueDim };

/** Gives the tokens of pictures the ends of what they see. */
function aheadStep(step: StepInputs, pictures: readonly Pictures[]): StepInputs {
  if (pictures.length === 0) return step;
  const visibleEnd = new Uint32Array(step.tokens.length);
  pictures.forEach((own, s) => {
    for (let i = 0; i < step.seqLength[s]!; i++) {
      const position = step.seqPosition[s]! + i;
      const end = seenEnd(position, own);
      if (end > position + 1) visibleEnd[step.seqStart[s]! + i] = end;
    }
  });
  return Object.assign(step, { visibleEnd });
}

/** Gives the sequences of a step rotary positions. */
export function standingStep(step: StepInputs, standing: readonly Standing[]): StepInputs {
  const own = new RotaryInputs(step.tokens.length, standing.length);
  standing.forEach((one, s) => {
    if (typeof one === 'number') own.shift[s] = one;
    else {
      own.placed[s] = 1;
      own.positions.set(one.flat(), 3 * step.seqStart[s]!);
    }
  });
  return Object.assign(step, { rotary: own });
}
