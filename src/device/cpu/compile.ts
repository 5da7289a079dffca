/**
 * From a graph to what the threads run. An op runs in the memory that holds its weights or its cache; where the next op
 * lives in another memory, a new segment begins, and the activations it reads are carried over first. Tensors share
 * storage as the lifetime planner says; a storage has a place in every memory that uses it.
 */
import { KvantError } from '../../errors.js';
import type { StepSlice } from '../device.js';
import { featureRowsOf } from '../feature-tokens.js';
import type { Node, Tensor } from '../graph.js';
import { nodeInputs, planLifetimes } from '../lifetimes.js';
import { looksAhead } from '../look-ahead.js';
import { rotaryReach } from '../rotary-positions.js';
import { hiddenRoom } from '../step-result.js';
import { type Command, commandStarts, commandWords, writeCommands } from './command.js';
import type { CommandPlace } from './command-place.js';
import { type CompileOptions, precisionOf } from './compile-options.js';
import { type Descriptor, encodeDescriptor, type RowCopy, type Segment, sliceOf } from './descriptor.js';
import { type Fusions, findFusions } from './fusion.js';
import { quantisesOnce } from './linear-commands.js';
import type { Allocation, DeviceMemory } from './memory.js';
import { NodeCommands } from './node-commands.js';
import { nodeScratchBytes } from './node-scratch.js';
import { STEP_OUTPUTS, STEP_TOKENS } from './opcodes.js';
import { type Placement, placementOf } from './placement.js';
import { ownMatrix } from './resident.js';
import { resultWords } from './sample-commands.js';
import type { SamplerPlace } from './sampler-rows.js';
import { type StepLayout, stepLayout } from './step-layout.js';

/** Slots whose last token is kept where there is no KV pool to say how many there are. */
const SLOTS_WITHOUT_POOL = 4096;

export interface Compiled {
  readonly layout: StepLayout;
  /** Address of the descriptor in the first memory: of the whole step, and of its halves. */
  readonly descriptor: number;
  readonly forward: number;
  readonly sample: number;
  readonly slots: number;
  /** Rotary positions there are; 0 where all are cache indexes. */
  readonly rotaryReach: number;
  /** Rows of the feature slab that tokens may name. */
  readonly featureRows: number;
  readonly hidden: Tensor | null;
  /** Null if the graph does not sample. */
  readonly sampler: SamplerPlace | null;
  /** Writes the descriptor of a part of a step, over that of the one before; answers its address, 0 for a part without a command. */
  slice(slice: StepSlice): number;
  /** What the program alone uses. */
  readonly owned: readonly Allocation[];
  /** Where a tensor lies when the step has retired. Throws for one that is not kept. */
  place(tensor: Tensor): { readonly memory: DeviceMemory; readonly at: number };
}

/** What a program has in one memory. */
interface Site {
  readonly place: CommandPlace;
  readonly storages: Map<number, number>;
}

interface OpenSegment {
  readonly memory: DeviceMemory;
  readonly commands: Command[];
  readonly copies: RowCopy[];
}

export function compile(options: CompileOptions): Compiled {
  const compiler = new Compiler(options);
  try {
    return compiler.compile();
  } catch (error) {
    compiler.release();
    throw error;
  }
}

class Compiler {
  readonly #options: CompileOptions;
  readonly #owned: Allocation[] = [];
  readonly #layout: StepLayout;
  readonly #sites = new Map<DeviceMemory, Site>();
  readonly #segments: OpenSegment[] = [];
  #fusions: Fusions = { ofLinear: new Map(), gone: new Set(), keptAlive: new Map() };
  readonly #placement: Placement;
  /** Memories that a tensor has been carried to. */
  readonly #carried = new Map<Tensor, Set<DeviceMemory>>();
  /** Where the second half of a step begins: the segment, and its commands before that. */
  #half: { readonly segment: number; readonly commands: number } | null = null;

  constructor(options: CompileOptions) {
    this.#options = options;
    const { graph, limits } = options;
    this.#layout = stepLayout(limits, {
      rotary: rotaryReach(graph) > 0,
      ahead: looksAhead(graph),
      places: graph.nodes.some((node) => node.op === 'add-gathered' && node.taps === 'position'),
      hidden: hiddenRoom(graph, limits),
    });
    this.#placement = placementOf(options.set, options.graph, options.caches);
  }

  get #slots(): number {
    return this.#options.caches?.pools[0]?.spec.slots ?? SLOTS_WITHOUT_POOL;
  }

  release(): void {
    for (const allocation of this.#owned) this.#options.set.free(allocation);
  }

  compile(): Compiled {
    const { set, graph, limits, caches } = this.#options;
    const first = set.memory(0);
    const homes = this.#placement.ofNode;
    this.#fusions = findFusions(
      graph,
      (node, at) =>
        homes[at] === homes[at - 1] &&
        quantisesOnce(ownMatrix(set, node.weight).packed, precisionOf(this.#options, node)),
    );
    const lifetimes = planLifetimes(graph, this.#fusions.keptAlive);
    const scratch = this.#scratch();
    const stepBytes = this.#layout.words * 4;
    const stepAt = this.#allocate(first, stepBytes);
    const memories = new Set(homes);
    const mirrors: { memory: number; at: number }[] = [];
    for (const memory of memories) {
      const at = memory === first ? stepAt : this.#allocate(memory, stepBytes);
      if (memory !== first) mirrors.push({ memory: memory.index, at });
      this.#sites.set(memory, {
        place: {
          step: at,
          layout: this.#layout,
          threads: this.#options.threads,
          scratch: this.#allocate(memory, scratch.get(memory) ?? 0),
        },
        storages: new Map(),
      });
    }

    const addressOf = (tensor: Tensor, memory: DeviceMemory): number => {
      const site = this.#sites.get(memory)!;
      const storage = lifetimes.storages[lifetimes.storageOf[tensor.id]!]!;
      let at = site.storages.get(storage.id);
      if (at === undefined) {
        const rows = storage.rows === 'tokens' ? limits.maxTokens : limits.maxOutputs;
        at = this.#allocate(memory, rows * storage.cols * 4);
        site.storages.set(storage.id, at);
      }
      return at;
    };
    const slots = this.#slots;
    const commands = new NodeCommands(this.#options, this.#fusions, slots, (memory, bytes) =>
      this.#allocate(memory, bytes),
    );
    graph.nodes.forEach((node, index) => {
      this.#emit(node, homes[index]!, addressOf, commands);
    });
    const { segments, forward, sample } = this.#place();
    let last = caches?.pools[0]?.lastTokens.at;
    if (last === undefined) {
      last = this.#allocate(first, slots * 4);
      first.u32(last, slots).fill(0);
    }
    const ids = commands.sampled;
    const whole: Descriptor = {
      step: stepAt,
      stepBytes,
      tokens: this.#layout.tokens,
      last,
      slots,
      outputSlots: this.#layout.outputSlots,
      ids: ids === null ? null : { memory: ids.memory.index, at: ids.at },
      idsHere:
        ids === null || ids.memory === first ? 0 : this.#allocate(first, resultWords(limits.maxOutputs) * 4),
      hidden: this.#hidden(addressOf),
      mirrors,
      segments,
    };

    const lasting = new Set<Tensor>(graph.kept);
    for (const node of graph.nodes) if (node.op === 'input') lasting.add(node.out);
    const places = new Map(
      [...lasting].map((tensor) => {
        const memory = this.#placement.ofTensor.get(tensor)!;
        return [tensor, { memory, at: addressOf(tensor, memory) }];
      }),
    );
    const sliceWords = encodeDescriptor(whole).length;
    const sliceAt = this.#allocate(first, sliceWords * 4);
    const starts = this.#segments.map(({ commands }) => commandStarts(commands));
    return {
      layout: this.#layout,
      slice({ from, to, of }) {
        const own = sliceOf(segments, starts, { from, to, of });
        // Threads wait for each other behind a command: without any, some would still read it when the next one is written.
        if (own.length === 0) return 0;
        const words = encodeDescriptor({ ...whole, ids: null, hidden: null, segments: own });
        first.u32(sliceAt, words.length).set(words);
        return sliceAt;
      },
      descriptor: this.#write(whole),
      forward: this.#write({ ...whole, ids: null, hidden: null, segments: forward }),
      sample: this.#write({ ...whole, segments: sample }),
      slots,
      rotaryReach: rotaryReach(graph),
      featureRows: featureRowsOf(graph),
      hidden: graph.hidden ?? null,
      sampler: ids?.sampler ?? null,
      owned: this.#owned,
      place(tensor) {
        const place = places.get(tensor);
        if (place !== undefined) return place;
        throw new KvantError('tensor-not-kept', `Tensor ${tensor.id} is neither an input nor kept.`, {
          fix: 'Mark it with ops.keep before the graph is finished.',
        });
      },
    };
  }

  /** Writes all commands: the segments of a step, and those of its halves, which run the same commands. */
  #place(): Record<'segments' | 'forward' | 'sample', Segment[]> {
    const segments: Segment[] = [];
    const forward: Segment[] = [];
    const sample: Segment[] = [];
    const half = this.#half ?? { segment: this.#segments.length, commands: 0 };
    this.#segments.forEach(({ memory, commands, copies }, index) => {
      const words = commandWords(commands);
      const at = this.#allocate(memory, words * 4);
      writeCommands(memory.u32(at, words) as Uint32Array, commands);
      const own = { memory: memory.index, commands: at, count: commands.length, copies };
      segments.push(own);
      if (index < half.segment) forward.push(own);
      else if (index > half.segment || half.commands === 0) sample.push(own);
      else {
        const { commands: count } = half;
        forward.push({ ...own, count });
        const behind = at + commandWords(commands.slice(0, count)) * 4;
        sample.push({ ...own, commands: behind, count: own.count - count, copies: [] });
      }
    });
    return { segments, forward, sample };
  }

  #hidden(
    addressOf: (tensor: Tensor, memory: DeviceMemory) => number,
  ): NonNullable<Descriptor['hidden']> | null {
    const { graph, limits } = this.#options;
    if (!graph.hidden) return null;
    const memory = this.#placement.ofTensor.get(graph.hidden)!;
    const at = addressOf(graph.hidden, memory);
    const list = this.#layout.hidden!;
    const result = resultWords(limits.maxOutputs) * 4;
    return { memory: memory.index, at, rowBytes: graph.hidden.cols * 4, list, result };
  }

  #write(descriptor: Descriptor): number {
    const memory = this.#options.set.memory(0);
    const words = encodeDescriptor(descriptor);
    const at = this.#allocate(memory, words.byteLength);
    memory.u32(at, words.length).set(words);
    return at;
  }

  #allocate(memory: DeviceMemory, bytes: number): number {
    const allocation = this.#options.set.allocateIn(memory, bytes);
    this.#owned.push(allocation);
    return allocation.at;
  }

  #scratch(): Map<DeviceMemory, number> {
    const most = new Map<DeviceMemory, number>();
    this.#options.graph.nodes.forEach((node, index) => {
      const home = this.#placement.ofNode[index]!;
      most.set(home, Math.max(most.get(home) ?? 0, nodeScratchBytes(this.#options, node)));
    });
    return most;
  }

  #emit(
    node: Node,
    home: DeviceMemory,
    addressOf: (tensor: Tensor, memory: DeviceMemory) => number,
    commands: NodeCommands,
  ): void {
    if (node.op === 'input' || this.#fusions.gone.has(node)) return;
    let segment = this.#segments.at(-1);
    if (segment?.memory !== home) {
      segment = { memory: home, commands: [], copies: [] };
      this.#segments.push(segment);
    }
    if (node.op === 'sample')
      this.#half = { segment: this.#segments.length - 1, commands: segment.commands.length };
    const source = this.#fusions.ofLinear.get(node);
    for (const input of nodeInputs(node)) {
      const tensor = input === source?.out ? source.x : input;
      const from = this.#placement.ofTensor.get(tensor)!;
      if (from === home || this.#carried.get(tensor)?.has(home)) continue;
      // A tensor made elsewhere was made before this segment began, and nothing else uses its storage while it lives.
      segment.copies.push({
        fromMemory: from.index,
        from: addressOf(tensor, from),
        to: addressOf(tensor, home),
        rowBytes: tensor.cols * 4,
        rows: tensor.rows === 'tokens' ? STEP_TOKENS : STEP_OUTPUTS,
      });
      this.#carried.set(tensor, (this.#carried.get(tensor) ?? new Set()).add(home));
    }
    const { place } = this.#sites.get(home)!;
    segment.commands.push(...commands.of(node, home, place, (tensor) => addressOf(tensor, home)));
  }
}
