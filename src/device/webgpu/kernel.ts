/**
 * What a kernel is, to the runtime: text, bindings by role, and how many workgroups a step needs.
 *
 * A *variant* is one way to do an op. Variants stand in ordered lists (kernels/registry.ts), best first; at record
 * time the first one that supports the device's capabilities and the shape is taken, and the last one supports
 * everything. A variant answers with one or more *stages*: dispatches in order, which may pass results on in scratch buffers.
 *
 * Shapes are baked into the text or passed in `params`. A pipeline is cached by its text: layers of equal shape share one, and with
 * `params` layers of different shapes do too. What changes between steps is read from the `step` buffer (step-buffer.ts), or decides
 * the number of workgroups: that is a plain number when a step is encoded, and follows the counts of that step.
 */

import type { Precision } from '../device.js';
import type { Activation, RowKind } from '../graph.js';
import type { AttendShape } from './kernels/attend.js';
import type { DecodeConfig } from './kernels/attend-decode-plan.js';
import type { LinearChoice } from './kernels/linear-choice.js';
import type { BytesLayout, HeadColumns, RopeAppendShape } from './shapes.js';
import type { ShardLayout } from './weights-layout.js';

/** One shape of subgroup matrix: C `[m, n]` += A `[m, k]` · B `[k, n]`. */
export interface MatrixConfig {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly component: string;
  readonly result: string;
}

/** What kernels may use. `precision: 'reference'` has f16 and matrices withheld. */
export interface Capabilities {
  readonly precision: Precision;
  /** Results must not depend, by a bit, on how many rows there are: variants that reorder sums must decline. */
  readonly deterministic: boolean;
  /** The same of products alone, in programs that want it (ProgramLimits.oneOrder): on matrices, where there are any. */
  readonly oneOrder?: boolean;
  /** `shader-f16` is enabled on the device and wanted. */
  readonly f16: boolean;
  readonly subgroups: boolean;
  /** 0 where there are no subgroups. */
  readonly subgroupMinSize: number;
  readonly subgroupMaxSize: number;
  /** WGSL has products of four bytes, and packs them (`packed_4x8_integer_dot_product`). */
  readonly packedDots: boolean;
  /** Lanes from which kernels on subgroups are worth it. */
  readonly minLanes: number;
  readonly matrices: readonly MatrixConfig[];
  /** Bytes of workgroup memory. */
  readonly workgroupBytes: number;
  /** Threads of a workgroup. */
  readonly workgroupThreads: number;
  /** Bytes of the largest storage binding. */
  readonly bindingBytes: number;
  /** Storage buffers that a kernel binds at most. */
  readonly storageBuffers: number;
  /** What was measured to be best on this device. Omitted, or silent on a shape: rules choose. */
  readonly tuned?: TunedKernels;
}

/** Choices that take the place of the rules'. They fit the shape they are asked for; undefined: none was measured. */
export interface TunedKernels {
  linear(shape: LinearShape): LinearChoice | undefined;
  /** Attention of decoding rows, whose items are `splits` splits wide; `band`: which of the rules' sizes it takes the place of. */
  decode(shape: AttendShape, splits: number, band: number): DecodeConfig | undefined;
}

/** Counts of one step, for workgroup counts. */
export interface StepFacts {
  tokens: number;
  outputs: number;
  sequences: number;
  /** Split attention: pieces of rows, rows, and splits of a piece. See step-buffer.ts. */
  items: number;
  itemRows: number;
  itemSplits: number;
  /** Tiled attention: tiles of up to ATTENTION_TILE tokens of one sequence, and parts of the positions of each. */
  tiles: number;
  tileParts: number;
  /** 1 where some token sees later ones (StepInputs.visibleEnd), else 0. */
  ahead: number;
  /** Bits of FEATURE that some output row has. */
  features: number;
  /** Most tokens that a row with DRY looks back on, rounded up: steps that follow one another have the same counts. */
  dryWindow: number;
  /** Most tokens that a row's top-k lets through; 2³² − 1 where a top-p has no top-k before it. 0: no filters. */
  maxTopK: number;
  /** Rows that draw with a top-k, top-p or typical-p. */
  filteredRows: number;
}

export type Workgroups = [x: number, y: number, z: number];

export interface Binding {
  /** The role; also the name of the WGSL variable, but for `variable`. Roles that begin with `scratch` are the variant's own. */
  readonly name: string;
  /** Of a role that is only read, and bound before: the variable that has it as another type. */
  readonly variable?: string;
  readonly access: 'read' | 'read_write' | 'uniform';
  /** WGSL store type, e.g. `array<vec4<f32>>`. */
  readonly type: string;
}

/** One dispatch. */
export interface Stage {
  /** Names it in errors and profiles: `gated-delta 32 × 128 × 128`. */
  readonly label: string;
  /** The whole module. Binding i of group 0 is `bindings[i]`; the entry point is `main`. */
  readonly wgsl: string;
  readonly bindings: readonly Binding[];
  /** Contents of the uniform role `params`, for a stage that binds it. */
  readonly params?: Uint32Array;
  /** Compiled when a row first asks for it (Program.sampler.sync), not with the plan. */
  readonly lazy?: boolean;
  /** Fills `out`. A zero in any dimension skips the dispatch. At most 65,535 each. */
  readonly workgroups: (facts: StepFacts, out: Workgroups) => void;
}

export interface Kernel {
  readonly stages: readonly Stage[];
  /** Bytes of each scratch role. Scratch is shared by all kernels of a program and holds nothing between them. */
  readonly scratch?: Readonly<Record<string, number>>;
}

/** One way to do an op, for the shapes that it supports. */
export interface Variant<Shape> {
  readonly name: string;
  supports(capabilities: Capabilities, shape: Shape): boolean;
  build(capabilities: Capabilities, shape: Shape): Kernel;
}

/** In what form, other than f32, a kernel leaves its result for the product that alone reads it: f16, or int8 as that product reads them. */
export type Handed = 'halves' | BytesLayout;

/**
 * In what form a result goes through a norm to the product behind that: as halves, normed; or as bytes of it times the weights of the
 * norm, with so many sums of squares of each row, by which that product norms what it makes (kernels/linear-dp4a-norm.ts).
 */
export type NormHanded = 'halves' | { readonly bytes: BytesLayout; readonly tiles: number };

/**
 * `out[:, outOffset : outOffset + n'] = act(norm(x) · Wᵀ + bias) (+ residual)`, for one shard of a weight.
 *
 * Roles: `x` f32 `[rows, xStride]`, `codes`, `metas` (affine), `bias` f32 `[n]`, `residual` f32 as `out`, `norm` f32
 * `[k]`, `step`, `out` f32 `[rows, outStride]`. Buffers hold `rows` rows at least. `metas`, `bias`, `residual` and
 * `norm` are bound only where the shape has them; a stage binds what it names.
 */
export interface LinearShape {
  readonly rowKind: RowKind;
  /** The bucket: at most this many rows. */
  readonly rows: number;
  /** Rows of the shard (out features); gate and up together where `glu` is set. */
  readonly n: number;
  readonly k: number;
  readonly weight: ShardLayout;
  /** Elements from a row of x to the next: k, rounded up to 4. The padding holds anything, NaN too. */
  readonly xStride: number;
  readonly outStride: number;
  /** First column of `out` that the shard writes. */
  readonly outOffset: number;
  readonly bias: boolean;
  readonly residual: boolean;
  /** RMS norm of x, folded in. Offered to variants when nothing else reads the norm; declining costs a launch. */
  readonly norm: { readonly eps: number } | null;
  /** `out[f] = act(y[f]) · y[n / 2 + f]`. Offered like `norm`. */
  readonly glu: Activation | null;
  /** x is there in a form of its own already, or the result is left in one: where the reader would have it so (linear-handed.ts). */
  readonly xHanded?: Handed | null;
  readonly outHanded?: Handed | null;
  /**
   * The result is left twice: as it is, and for the product behind a norm of it, by the weights `outNorm`, where that one looks for
   * what it reads; it then has no launch for that (linear-handed.ts).
   */
  readonly outNorm?: { readonly eps: number; readonly form: NormHanded } | null;
  readonly xNormed?: NormHanded | null;
  /** The result is left as the sums of slices of K, for the rope-append behind it to put together (linear-split-k.ts). */
  readonly outSplitK?: boolean;
  /** x is merged of what attention left of it, where it is one row: heads, head_dim, and splits at most. */
  readonly merge?: { readonly heads: number; readonly headDim: number; readonly splits: number };
  /**
   * The result is q, k and v of one token, and the rope-append behind it is done here: `out` is then that of the append, and
   * roles are `constants` (linear-gemv-append.ts), in place of norm and bias, and `tables`, `rope`, `keys`, `values`.
   */
  readonly append?: RopeAppendShape;
  /** Features are heads', each with columns of x of its own. */
  readonly heads?: HeadColumns;
}

/** `var` lines for the bindings, in order. */
export function declareBindings(bindings: readonly Binding[]): string {
  return bindings
    .map(({ name, variable = name, access, type }, i) => {
      const space = access === 'uniform' ? 'uniform' : `storage, ${access}`;
      return `@group(0) @binding(${i}) var<${space}> ${variable}: ${type};`;
    })
    .join('\n');
}

/**
 * Numbers of a shape that need not be in the text. Each call takes the next word and answers with the WGSL
 * expression that reads it.
 * @example const cols = params.u32(4096); // cols is 'params[0].x', and params.words holds 4096
 */
export class Params {
  readonly #words: number[] = [];

  u32(value: number): string {
    const at = this.#words.push(value >>> 0) - 1;
    return `params[${at >> 2}].${'xyzw'[at & 3]}`;
  }

  f32(value: number): string {
    return `bitcast<f32>(${this.u32(new Uint32Array(new Float32Array([value]).buffer)[0]!)})`;
  }

  get binding(): Binding {
    return {
      name: 'params',
      access: 'uniform',
      type: `array<vec4<u32>, ${Math.ceil(this.#words.length / 4)}>`,
    };
  }

  get words(): Uint32Array {
    const out = new Uint32Array(Math.ceil(this.#words.length / 4) * 4);
    out.set(this.#words);
    return out;
  }
}

const MAX_DIMENSION = 65535;

/**
 * Spreads `count` workgroups over x and y, z given. Kernels find their index as `wid.x + wid.y * nwg.x` (nwg:
 * `num_workgroups`) and leave at once if it is beyond the end.
 */
export function spread(count: number, out: Workgroups, z = 1): void {
  const y = Math.ceil(count / MAX_DIMENSION);
  out[0] = y === 0 ? 0 : Math.ceil(count / y);
  out[1] = y;
  out[2] = z;
}

/** The first variant of the list that takes the shape. */
export function chooseVariant<Shape>(
  variants: readonly Variant<Shape>[],
  capabilities: Capabilities,
  shape: Shape,
): Variant<Shape> | undefined {
  return variants.find((v) => v.supports(capabilities, shape));
}
