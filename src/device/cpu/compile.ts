/**
 * From a graph to what the threads run. An op runs in the memory that holds its weights or its cache; where the next op
 * lives in another memory, a new segment begins, and the activations it reads are carried over first. Tensors share
 * storage as the lifetime planner says; a storage has a place in every memory that uses it.
 */
import { KvantError } from '../../errors.js';
import type { Precision, ProgramLimits, StepSlice, Vector } from '../device.js';
import { featureRowsOf } from '../feature-tokens.js';
import { ACTIVATIONS, type Graph, type Node, type NodeOf, type Tensor } from '../graph.js';
import type { KvCaches } from '../kv.js';
import { nodeInputs, planLifetimes } from '../lifetimes.js';
import { looksAhead } from '../look-ahead.js';
import type { RopeTable } from '../rope.js';
import { rotaryReach } from '../rotary-positions.js';
import { checkConv, checkScan } from '../state.js';
import { type Command, commandStarts, commandWords, writeCommands } from './command.js';
import {
  type AttendCentrePlace,
  actCommand,
  addCommand,
  attendCommands,
  attendSegmentsCommand,
  attentionScratchBytes,
  type CommandPlace,
  checkRope,
  columnsCommand,
  embedCommand,
  gluCommand,
  type LayerPlace,
  normCommands,
  rmsNormCommand,
  ropeAppendCommand,
  ropeScratchBytes,
  rotateCommand,
  routeCommand,
  routeScratchBytes,
  rowCountAt,
  scaleCommand,
  segmentsScratchBytes,
  selectCommand,
} from './commands.js';
import { type Descriptor, encodeDescriptor, type RowCopy, type Segment, sliceOf } from './descriptor.js';
import { type ExpertStacks, expertCommands, expertScratchBytes } from './expert-commands.js';
import { type CpuFeatureSlab, ownSlab } from './feature-slab.js';
import { type Fusions, findFusions } from './fusion.js';
import type { CpuKvPool } from './kv-pool.js';
import { headTokens } from './kv-store.js';
import { type LinearPlace, linearCommands, quantisesOnce, scratchBytes } from './linear-commands.js';
import type { Allocation, DeviceMemory, MemorySet } from './memory.js';
import { STEP_OUTPUTS, STEP_TOKENS } from './opcodes.js';
import { cacheOf, type NodeState, type Placement, placementOf, stateOf } from './placement.js';
import {
  deltaScratchBytes,
  gateCommand,
  gatedDeltaCommand,
  scanScratchBytes,
  selectiveScanCommand,
  shortConvCommand,
  shortConvScratchBytes,
} from './recurrent-commands.js';
import { ownMatrix, ownVector } from './resident.js';
import { addFeaturesCommand, addGatheredCommand } from './row-commands.js';
import { resultWords, sampleCommands, sampleScratchBytes } from './sample-commands.js';
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

export interface CompileOptions {
  readonly set: MemorySet;
  readonly graph: Graph;
  readonly limits: ProgramLimits;
  readonly caches: KvCaches<CpuKvPool> | null;
  readonly threads: number;
  readonly precision: Precision;
}

/** What a program has in one memory. */
interface Site {
  readonly place: CommandPlace;
  readonly storages: Map<number, number>;
}

/** Addresses of a rope table; 0 for axes it has not. */
interface TablePlace {
  readonly fine: number;
  readonly coarse: number;
  readonly axes: number;
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
  readonly #ropes = new Map<DeviceMemory, Map<RopeTable, TablePlace>>();
  readonly #segments: OpenSegment[] = [];
  #fusions: Fusions = { ofLinear: new Map(), gone: new Set(), held: new Map() };
  readonly #placement: Placement;
  /** Memories that a tensor has been carried to. */
  readonly #carried = new Map<Tensor, Set<DeviceMemory>>();
  /** Where the second half of a step begins: the segment, and its commands before that. */
  #half: { readonly segment: number; readonly commands: number } | null = null;
  #ids: { memory: DeviceMemory; at: number; sampler: SamplerPlace } | null = null;

  constructor(options: CompileOptions) {
    this.#options = options;
    const { graph, limits } = options;
    this.#layout = stepLayout(limits, {
      rotary: rotaryReach(graph) > 0,
      ahead: looksAhead(graph),
      hidden: graph.hidden != null,
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
        quantisesOnce(ownMatrix(set, node.weight).packed, this.#precisionOf(node)),
    );
    const lifetimes = planLifetimes(graph, this.#fusions.held);
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
    graph.nodes.forEach((node, index) => {
      this.#emit(node, homes[index]!, addressOf);
    });
    const { segments, forward, sample } = this.#place();
    const slots = this.#slots;
    let last = caches?.pools[0]?.lastTokens.at;
    if (last === undefined) {
      last = this.#allocate(first, slots * 4);
      first.u32(last, slots).fill(0);
    }
    const ids = this.#ids;
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
      most.set(home, Math.max(most.get(home) ?? 0, this.#scratchBytes(node)));
    });
    return most;
  }

  #scratchBytes(node: Node): number {
    const { set, limits, threads, precision } = this.#options;
    switch (node.op) {
      case 'linear':
        return scratchBytes(
          ownMatrix(set, node.weight).packed,
          this.#rowsOf(node.x),
          this.#precisionOf(node),
          threads,
        );
      case 'rope-append':
        return ropeScratchBytes(node, threads);
      case 'attend': {
        const { formats, spec } = cacheOf(this.#options.caches, node);
        return attentionScratchBytes(node, formats, headTokens(formats, spec), limits.maxContext, threads);
      }
      case 'route':
        return routeScratchBytes(node, threads);
      case 'attend-segments':
        return segmentsScratchBytes(node, threads);
      case 'experts':
        return expertScratchBytes(node, this.#stacks(node), this.#rowsOf(node.x), precision, threads);
      case 'short-conv':
        return shortConvScratchBytes(node, threads);
      case 'gated-delta':
        return deltaScratchBytes(node, threads);
      case 'selective-scan':
        return scanScratchBytes(node, threads);
      case 'sample':
        return sampleScratchBytes(node.logits.cols, limits.maxOutputs, threads);
      case 'input':
      case 'embed':
      case 'rms-norm':
      case 'norm':
      case 'gate':
      case 'glu':
      case 'act':
      case 'add':
      case 'add-features':
      case 'add-gathered':
      case 'scale':
      case 'columns':
      case 'rotate':
      case 'select-outputs':
        return 0;
    }
  }

  /** An exact product takes its activations as they are. */
  #precisionOf(node: NodeOf<'linear'>): Precision {
    return node.exact === true ? 'reference' : this.#options.precision;
  }

  #stacks(node: NodeOf<'experts'>): ExpertStacks {
    const { set } = this.#options;
    const gateUp = ownMatrix(set, node.gateUp);
    const down = ownMatrix(set, node.down);
    if (gateUp.memory === down.memory) return { gateUp: gateUp.packed, down: down.packed };
    throw new KvantError('shape-mismatch', 'experts: the two stacks of a layer lie in different memories.', {
      where: 'experts',
      fix: 'Load them into one placement group, with room for both.',
    });
  }

  #rowsOf(tensor: Tensor): number {
    const { maxTokens, maxOutputs } = this.#options.limits;
    return tensor.rows === 'tokens' ? maxTokens : maxOutputs;
  }

  #emit(node: Node, home: DeviceMemory, addressOf: (tensor: Tensor, memory: DeviceMemory) => number): void {
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
    segment.commands.push(...this.#commands(node, home, (tensor) => addressOf(tensor, home)));
  }

  #commands(
    node: Exclude<Node, NodeOf<'input'>>,
    home: DeviceMemory,
    at: (tensor: Tensor) => number,
  ): Command[] {
    const { set, limits, precision } = this.#options;
    const { place } = this.#sites.get(home)!;
    switch (node.op) {
      case 'embed': {
        const { table } = ownMatrix(set, node.table);
        if (table === 0) {
          throw new KvantError('shape-mismatch', 'embed: the table was loaded for products only.', {
            where: 'embed',
            fix: "Load it with use: 'embedding' or 'both'.",
          });
        }
        return [embedCommand(place, node, table, this.#slab(node, home), at(node.out))];
      }
      case 'rms-norm':
        return [rmsNormCommand(place, node, at(node.x), ownVector(set, node.weight).at(home), at(node.out))];
      case 'norm': {
        const addressOf = (vector: Vector | null): number =>
          vector === null ? 0 : ownVector(set, vector).at(home);
        return normCommands(place, node, at(node.x), at(node.out), addressOf);
      }
      case 'linear': {
        const where = {
          ...this.#activations(node, home, at),
          out: at(node.out),
          residual: node.residual === null ? 0 : at(node.residual),
          rowCountAt: rowCountAt(place, node.x.rows),
          scratch: place.scratch,
        };
        return linearCommands(
          ownMatrix(set, node.weight).packed,
          where,
          this.#precisionOf(node),
          this.#rowsOf(node.x),
        );
      }
      case 'rope-append': {
        checkRope(node.rope, node.shape.headDim, limits.maxContext);
        const { norm, rope } = node;
        const tables = rope === null ? { fine: 0, coarse: 0, axes: 0 } : this.#rope(rope, home);
        const parts = {
          qNorm: norm === null ? 0 : ownVector(set, norm.q).at(home),
          kNorm: norm === null ? 0 : ownVector(set, norm.k).at(home),
          ...tables,
          centre: node.centre ? ownVector(set, node.centre.vector).at(home) : 0,
        };
        return [ropeAppendCommand(place, node, this.#layer(node), parts, at(node.qkv), at(node.out))];
      }
      case 'attend':
        return attendCommands(
          place,
          node,
          this.#layer(node),
          limits.maxContext,
          precision,
          at(node.q),
          at(node.out),
          this.#isOnlySelected(node.out),
          this.#centre(node, home),
          node.sinks ? ownVector(set, node.sinks).at(home) : 0,
        );
      case 'glu':
        return [gluCommand(place, node, at(node.x), at(node.out))];
      case 'act': {
        const parameters = node.parameters === null ? 0 : ownVector(set, node.parameters).at(home);
        return [actCommand(place, node, at(node.x), at(node.out), parameters)];
      }
      case 'route': {
        const { bias } = node.spec;
        const biasAt = bias === null ? 0 : ownVector(set, bias).at(home);
        const scales = node.spec.expertScales ? ownVector(set, node.spec.expertScales).at(home) : 0;
        return [routeCommand(place, node, at(node.logits), at(node.out), biasAt, scales)];
      }
      case 'experts': {
        const where = {
          x: at(node.x),
          route: at(node.route),
          residual: node.residual === null ? 0 : at(node.residual),
          out: at(node.out),
        };
        return expertCommands(place, node, this.#stacks(node), where, this.#rowsOf(node.x), precision);
      }
      case 'short-conv': {
        const vectors = {
          weight: ownVector(set, node.weight).at(home),
          bias: node.bias === null ? 0 : ownVector(set, node.bias).at(home),
        };
        const where = { x: at(node.x), out: at(node.out), ...vectors };
        return [shortConvCommand(place, node, this.#state(node), where)];
      }
      case 'gated-delta': {
        const state = stateOf(this.#options.caches, node);
        checkScan(node, state.shape);
        const decay = ownVector(set, node.decay).at(home);
        const where = { qkv: at(node.qkv), gates: at(node.gates), out: at(node.out), decay };
        return [gatedDeltaCommand(place, node, state, where)];
      }
      case 'selective-scan': {
        const state = stateOf(this.#options.caches, node);
        checkScan(node, state.shape);
        const decay = ownVector(set, node.decay).at(home);
        const where = { x: at(node.x), steps: at(node.steps), out: at(node.out), decay };
        return [selectiveScanCommand(place, node, state, where)];
      }
      case 'gate': {
        const weight = node.norm === null ? 0 : ownVector(set, node.norm.weight).at(home);
        return [gateCommand(place, node, { x: at(node.x), gate: at(node.gate), out: at(node.out), weight })];
      }
      case 'add':
        return [addCommand(place, node, at(node.a), at(node.b), at(node.out))];
      case 'add-features':
        return [addFeaturesCommand(place, node, at(node.x), ownSlab(set, node.features), at(node.out))];
      case 'add-gathered': {
        const table = ownVector(set, node.table).at(home);
        const where = { x: at(node.x), table, taps: at(node.taps), out: at(node.out) };
        return [addGatheredCommand(place, node, where)];
      }
      case 'scale':
        return [scaleCommand(place, node, at(node.x), at(node.out))];
      case 'columns':
        return [columnsCommand(place, node, at)];
      case 'rotate':
        return [rotateCommand(place, node, at(node.x), at(node.angles), at(node.out))];
      case 'attend-segments':
        return [attendSegmentsCommand(place, node, at(node.qkv), at(node.bounds), at(node.out))];
      case 'select-outputs':
        return [selectCommand(place, node, at(node.x), at(node.out))];
      case 'sample': {
        const result = this.#allocate(home, resultWords(limits.maxOutputs) * 4);
        const slots = this.#slots;
        const states = this.#allocate(home, slots * 4);
        home.u32(states, slots).fill(0);
        const { maxContext, maxOutputs } = limits;
        const sampler = { memory: home, states, slots, vocab: node.logits.cols, maxContext };
        this.#ids = { memory: home, at: result, sampler };
        return sampleCommands(place, node, maxOutputs, at(node.logits), { result, states, slots });
      }
    }
  }

  #slab({ features }: NodeOf<'embed'>, home: DeviceMemory): CpuFeatureSlab | null {
    if (!features) return null;
    const slab = ownSlab(this.#options.set, features);
    if (slab.memory === home) return slab;
    throw new KvantError('shape-mismatch', 'embed: the feature slab lies in another memory than the table.', {
      where: 'embed',
      fix: 'Make the slab for the placement group of the table.',
    });
  }

  #centre({ centre, shape }: NodeOf<'attend'>, home: DeviceMemory): AttendCentrePlace | null {
    if (!centre) return null;
    const { kvHeads, headDim } = shape;
    const mean = ownVector(this.#options.set, centre.vector).at(home) + 8 * kvHeads * headDim;
    return { mean, ...this.#rope(centre.rope, home) };
  }

  /** What a product takes its activations from. */
  #activations(
    node: NodeOf<'linear'>,
    home: DeviceMemory,
    at: (tensor: Tensor) => number,
  ): Pick<LinearPlace, 'x' | 'source'> {
    const source = this.#fusions.ofLinear.get(node);
    if (source === undefined) return { x: at(node.x) };
    if (source.op === 'glu') {
      return { x: at(source.x), source: { kind: 'glu', activation: ACTIVATIONS.indexOf(source.activation) } };
    }
    const weight = ownVector(this.#options.set, source.weight).at(home);
    return { x: at(source.x), source: { kind: 'norm', weight, eps: source.eps } };
  }

  /** Whether nothing but the rows of the step's outputs is ever read of a tensor. */
  #isOnlySelected(tensor: Tensor): boolean {
    const { graph } = this.#options;
    const readers = graph.nodes.filter((node) => nodeInputs(node).includes(tensor));
    return !graph.kept.includes(tensor) && readers.every((node) => node.op === 'select-outputs');
  }

  #layer(node: NodeOf<'rope-append' | 'attend'>): LayerPlace {
    const { layer, ...cache } = cacheOf(this.#options.caches, node);
    return { store: layer.store, ...cache };
  }

  /** Checks what the recorder cannot know. */
  #state(node: NodeOf<'short-conv'>): NodeState {
    const state = stateOf(this.#options.caches, node);
    checkConv(node, state.shape);
    return state;
  }

  /** A rope table in a memory. */
  #rope(rope: RopeTable, memory: DeviceMemory): TablePlace {
    const tables = this.#ropes.get(memory) ?? new Map<RopeTable, TablePlace>();
    this.#ropes.set(memory, tables);
    let found = tables.get(rope);
    if (found === undefined) {
      const put = (data: Float32Array): number => {
        const at = this.#allocate(memory, data.byteLength);
        memory.f32(at, data.length).set(data);
        return at;
      };
      let axes = 0;
      if (rope.axes) {
        axes = this.#allocate(memory, rope.axes.length * 4);
        memory.u32(axes, rope.axes.length).set(rope.axes);
      }
      found = { fine: put(rope.fine), coarse: put(rope.coarse), axes };
      tables.set(rope, found);
    }
    return found;
  }
}
