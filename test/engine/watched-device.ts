/** A device that looks on: it passes everything to the real one and checks what the engine may not do. */
import type { Device, Program, ProgramLimits } from '../../src/device/device.js';
import type { Graph } from '../../src/device/graph.js';
import { type KvCaches, type KvPool, type KvPoolSpec, kvCaches } from '../../src/device/kv.js';
import type { StepInputs } from '../../src/device/step.js';
import type { StepResult } from '../../src/device/step-result.js';

interface Watched {
  /** Slots and how many of their positions the step reads or writes. */
  readonly reach: Map<number, number>;
  /** Blocks the step reads or writes, with the slots that do and as which block of theirs. */
  readonly blocks: Map<number, Set<string>>;
  /** Blocks the step writes, likewise. */
  readonly written: Map<number, string>;
}

export class Watch {
  submits = 0;
  retired = 0;
  mostInFlight = 0;
  /** Steps submitted while the ids of the step before had not been given to the host. */
  ahead = 0;
  /** Steps that were run in two halves. */
  halves = 0;
  readonly faults: string[] = [];
  readonly #flight: Watched[] = [];
  /** Blocks that conversions under way read or write. */
  readonly #converting: Set<number>[] = [];
  conversions = 0;
  /** As which block of a sequence a block was written last. */
  readonly #writtenAs = new Map<number, number>();
  readonly #window: number;
  readonly #tables: number[][] = [];
  #blockTokens = 16;

  /** `window`: tokens that every layer sees; blocks before it are not read. */
  constructor(window = Number.POSITIVE_INFINITY) {
    this.#window = window;
  }

  wrap(device: Device): Device {
    return {
      info: device.info,
      lost: device.lost,
      place: (groups) => device.place(groups),
      loadMatrix: (parts, options) => device.loadMatrix(parts, options),
      loadVector: (source, group) => device.loadVector(source, group),
      createFeatureSlab: (spec) => device.createFeatureSlab(spec),
      createKvPool: (spec) => this.#wrapPool(device.createKvPool(spec), spec),
      compile: async (graph: Graph, limits: ProgramLimits, caches: KvPool | KvCaches | null) => {
        // It knows the blocks of one group.
        const { pools, layers } = kvCaches(caches)!;
        const inner = pools.map((pool) => (pool as WrappedPool).inner);
        return this.#wrapProgram(await device.compile(graph, limits, { pools: inner, layers }));
      },
      stats: () => device.stats(),
      [Symbol.asyncDispose]: () => device[Symbol.asyncDispose](),
    };
  }

  #wrapPool(inner: KvPool, spec: KvPoolSpec): WrappedPool {
    this.#blockTokens = spec.blockTokens;
    for (let slot = 0; slot < spec.slots; slot++) this.#tables.push([]);
    return {
      inner,
      spec,
      bytes: inner.bytes,
      storage: inner.storage,
      dispose: () => inner.dispose(),
      prepare: (use) => inner.prepare(use),
      copy: (from, to) => {
        from.forEach((block, i) => {
          this.#writtenAs.set(to[i]!, this.#writtenAs.get(block)!);
        });
        return inner.copy(from, to);
      },
      read: (blocks) => inner.read(blocks),
      write: (blocks, bytes) => inner.write(blocks, bytes),
      convert: (from, to) => {
        const blocks = new Set([...from, ...to]);
        if (blocks.size !== from.length + to.length) this.faults.push('a block is converted twice');
        if (from.some((block) => block < spec.blocks) || to.some((block) => block >= spec.blocks))
          this.faults.push('a conversion takes blocks of the wrong kind');
        for (const block of to)
          if (this.#flight.some((step) => step.blocks.has(block)))
            this.faults.push(`block ${block} is converted to under a step`);
        this.#converting.push(blocks);
        this.conversions++;
        return inner.convert(from, to).finally(() => {
          if (this.#converting.shift() !== blocks) this.faults.push('conversions ended out of order');
        });
      },
      setBlocks: (slot, first, blocks) => {
        for (const step of this.#flight) {
          if (Math.ceil((step.reach.get(slot) ?? 0) / spec.blockTokens) > first)
            this.faults.push(`entry ${first} of slot ${slot} changed under a step that reads it`);
          for (const block of blocks)
            if (step.written.has(block)) this.faults.push(`block ${block} has a new owner under a step`);
        }
        // Those it is converted to come into the table while it is done, and no others.
        for (const converted of this.#converting)
          if (blocks.some((block) => block >= spec.blocks && converted.has(block)))
            this.faults.push('a float-start block has a new owner before it is converted');
        const table = this.#tables[slot]!;
        table.length = first;
        table.push(...blocks);
        inner.setBlocks(slot, first, blocks);
      },
    };
  }

  #wrapProgram(inner: Program): Program {
    let half: Watched | null = null;
    return {
      sampler: inner.sampler,
      prepare: (tokens, outputs) => inner.prepare(tokens, outputs),
      write: (tensor, data) => inner.write(tensor, data),
      fill: (tensor, rows, make) => inner.fill(tensor, rows, make),
      clear: (tensor, rows) => inner.clear(tensor, rows),
      read: (tensor, rows) => inner.read(tensor, rows),
      store: (tensor, slab, place) => inner.store(tensor, slab, place),
      dispose: () => inner.dispose(),
      submit: (inputs, slice) => {
        const step = this.#begin(inputs);
        return this.#retire(step, inner.submit(inputs, slice));
      },
      forward: (inputs) => {
        half = this.#begin(inputs);
        this.halves++;
        inner.forward(inputs);
      },
      computed: () => inner.computed(),
      sample: (inputs) => {
        const step = half!;
        half = null;
        return this.#retire(step, inner.sample(inputs));
      },
    };
  }

  #begin(inputs: StepInputs): Watched {
    const step = this.#record(inputs);
    if (this.#flight.length > 0) this.ahead++;
    this.#flight.push(step);
    this.submits++;
    this.mostInFlight = Math.max(this.mostInFlight, this.#flight.length);
    return step;
  }

  #retire(step: Watched, result: Promise<StepResult>): Promise<StepResult> {
    return result.finally(() => {
      if (this.#flight.shift() !== step) this.faults.push('steps retired out of order');
      this.retired++;
    });
  }

  #record(inputs: StepInputs): Watched {
    const reach = new Map<number, number>();
    const blocks = new Map<number, Set<string>>();
    const written = new Map<number, string>();
    for (let s = 0; s < inputs.sequenceCount; s++) {
      const slot = inputs.seqSlot[s]!;
      const end = inputs.seqPosition[s]! + inputs.seqLength[s]!;
      reach.set(slot, end);
      const needed = Math.ceil(end / this.#blockTokens);
      const table = this.#tables[slot]!;
      if (table.length < needed) this.faults.push(`slot ${slot} has ${table.length} blocks, needs ${needed}`);
      const first = Math.floor(inputs.seqPosition[s]! / this.#blockTokens);
      const oldest = Math.max(0, inputs.seqPosition[s]! - this.#window + 1);
      for (let index = Math.floor(oldest / this.#blockTokens); index < needed; index++) {
        const block = table[index]!;
        const reader = `${slot}, block ${index},`;
        blocks.set(block, (blocks.get(block) ?? new Set()).add(reader));
        if (index >= first) {
          written.set(block, reader);
          this.#writtenAs.set(block, index);
        } else if (this.#window < Number.POSITIVE_INFINITY && this.#writtenAs.get(block) !== index)
          this.faults.push(
            `${reader} reads block ${block}, which is ${this.#writtenAs.get(block)} of another`,
          );
      }
    }
    // Many may read a block, and then nobody writes to it: not in this step, nor while earlier ones are under way.
    for (const [block, writer] of written)
      for (const step of [{ blocks }, ...this.#flight])
        for (const reader of step.blocks.get(block) ?? [])
          if (reader !== writer)
            this.faults.push(`slot ${writer} writes block ${block} that ${reader} reads`);
    return { reach, blocks, written };
  }
}

interface WrappedPool extends KvPool {
  readonly inner: KvPool;
}
