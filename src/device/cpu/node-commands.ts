/** The commands of each node: kernels and their parameters, with all addresses in one memory. */
import { KvantError } from '../../errors.js';
import type { Vector } from '../device.js';
import { ACTIVATIONS, type Node, type NodeOf, type Tensor } from '../graph.js';
import { nodeInputs } from '../lifetimes.js';
import { checkConv, checkScan } from '../state.js';
import { type AttendCentrePlace, attendCommands, attendSegmentsCommand } from './attend-commands.js';
import type { Command } from './command.js';
import { type CommandPlace, type LayerPlace, rowCountAt } from './command-place.js';
import {
  actCommand,
  addCommand,
  columnsCommand,
  embedCommand,
  gluCommand,
  normCommands,
  rmsNormCommand,
  routeCommand,
  scaleCommand,
  selectCommand,
} from './commands.js';
import { type CompileOptions, mostRows, precisionOf } from './compile-options.js';
import { expertCommands, stacksOf } from './expert-commands.js';
import { type CpuFeatureSlab, ownSlab } from './feature-slab.js';
import type { Fusions } from './fusion.js';
import { headLinearCommand } from './head-linear-commands.js';
import { type LinearPlace, linearCommands } from './linear-commands.js';
import type { DeviceMemory } from './memory.js';
import { cacheOf, type NodeState, stateOf } from './placement.js';
import {
  gateCommand,
  gatedDeltaCommand,
  selectiveScanCommand,
  shortConvCommand,
} from './recurrent-commands.js';
import { ownMatrix, ownVector } from './resident.js';
import { checkRope, ropeAppendCommand, rotateCommand } from './rope-commands.js';
import { type Allocate, RopeTables } from './rope-tables.js';
import { addFeaturesCommand, addGatheredCommand, clampCommand } from './row-commands.js';
import { resultWords, sampleCommands } from './sample-commands.js';
import type { SamplerPlace } from './sampler-rows.js';

/** Where the ids of a step are left. */
export interface SampledPlace {
  readonly memory: DeviceMemory;
  readonly at: number;
  readonly sampler: SamplerPlace;
}

export class NodeCommands {
  /** Null until a node has sampled. */
  sampled: SampledPlace | null = null;
  readonly #options: CompileOptions;
  readonly #fusions: Fusions;
  /** Slots that draw. */
  readonly #slots: number;
  readonly #allocate: Allocate;
  readonly #ropes: RopeTables;

  constructor(options: CompileOptions, fusions: Fusions, slots: number, allocate: Allocate) {
    this.#options = options;
    this.#fusions = fusions;
    this.#slots = slots;
    this.#allocate = allocate;
    this.#ropes = new RopeTables(allocate);
  }

  /** Those of a node that runs in `home`, where tensors lie `at`. */
  of(
    node: Exclude<Node, NodeOf<'input'>>,
    home: DeviceMemory,
    place: CommandPlace,
    at: (tensor: Tensor) => number,
  ): Command[] {
    const { set, limits, precision } = this.#options;
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
          precisionOf(this.#options, node),
          mostRows(this.#options, node.x),
        );
      }
      case 'head-linear': {
        const { packed } = ownMatrix(set, node.weight);
        return [headLinearCommand(place, node, packed, at(node.x), at(node.out))];
      }
      case 'rope-append': {
        checkRope(node.rope, node.shape.headDim, limits.maxContext);
        const { norm, rope } = node;
        const tables = rope === null ? { fine: 0, coarse: 0, axes: 0 } : this.#ropes.in(home, rope);
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
        return expertCommands(
          place,
          node,
          stacksOf(set, node),
          where,
          mostRows(this.#options, node.x),
          precision,
        );
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
        const taps = node.taps === 'position' ? place.step + 4 * place.layout.places! : at(node.taps);
        const where = { x: at(node.x), table, taps, out: at(node.out) };
        return [addGatheredCommand(place, node, where)];
      }
      case 'scale':
        return [scaleCommand(place, node, at(node.x), at(node.out))];
      case 'clamp': {
        const bounds = ownVector(set, node.bounds).at(home);
        return [clampCommand(place, node, { x: at(node.x), bounds, out: at(node.out) })];
      }
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
        this.sampled = { memory: home, at: result, sampler };
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
    return { mean, ...this.#ropes.in(home, centre.rope) };
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
}
