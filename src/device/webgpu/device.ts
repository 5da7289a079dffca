/** A GPU behind the device contract. Needs a `GPUAdapter` and nothing of Node: it runs in a browser as well. */

import { KvantError } from '../../errors.js';
import { HELD_ADAPTERS } from '../adapters.js';
import type {
  Device,
  DeviceInfo,
  DeviceStats,
  Matrix,
  MatrixOptions,
  PlacementGroup,
  Precision,
  Program,
  ProgramLimits,
} from '../device.js';
import type { FeatureSlabSpec } from '../feature-slab.js';
import type { Graph } from '../graph.js';
import { type KvCaches, type KvPool, type KvPoolSpec, kvCaches } from '../kv.js';
import { Staging } from '../staging.js';
import type { MatrixSource, VectorSource } from '../weights.js';
import { adapterName, featureNames, readCapabilities, requestDevice } from './adapter.js';
import { Allocator } from './allocator.js';
import { deviceLost, Faults, fromGpuError, internalFault } from './faults.js';
import { GpuFeatureSlab } from './feature-slab.js';
import type { Capabilities } from './kernel.js';
import { MOST_TAIL, TAIL_BUFFERS } from './kernels/attend-tail.js';
import { areGpuCaches, GpuKvPool } from './kv-pool.js';
import { type GpuMatrix, type GpuVector, type LoadTarget, loadMatrix, loadVector } from './matrix.js';
import { Pipelines } from './pipelines.js';
import { roundedLimits } from './plans.js';
import { WebGpuProgram } from './program.js';
import { measureReadBandwidth } from './read-bandwidth.js';
import { ATTENTION_SPLIT } from './step-buffer.js';
import { StepOrder } from './step-order.js';
import type { TuneDeviceOptions, TuneReport } from './tuning/session.js';
import { TunedChoices } from './tuning/tuned-choices.js';

export interface WebGpuDeviceOptions {
  readonly precision?: Precision;
  readonly deterministic?: boolean;
  /** Kernels on subgroups are taken from so many lanes on. For tests, where subgroups are narrow. */
  readonly minLanes?: number;
  /** Matrices are cut by rows into shards of at most so many bytes. What a binding may hold if omitted. */
  readonly maxShardBytes?: number;
  /** Holds and computes what is kept in host memory (MatrixOptions.host). It is disposed of with this one. Default: none. */
  readonly host?: Device;
}

export class WebGpuDevice implements Device {
  readonly info: DeviceInfo;
  readonly lost: Promise<KvantError>;
  readonly capabilities: Capabilities;
  /** What sets this GPU and its driver apart from others, for caches of what was measured on it. */
  readonly identity: Readonly<Record<string, unknown>>;
  readonly #device: GPUDevice;
  readonly #allocator: Allocator;
  readonly #pipelines: Pipelines;
  readonly #faults = new Faults();
  readonly #target: LoadTarget;
  readonly #programs = new Set<WebGpuProgram>();
  readonly #order = new StepOrder();
  readonly #host: Device | null;
  readonly #onDispose: () => void;
  /** Those of the device until it is tuned. */
  /** Of programs whose products have one order: what was measured may have another. */
  readonly #oneOrder: Capabilities;
  #tuned: { readonly choices: TunedChoices; readonly capabilities: Capabilities } | null = null;
  #plans = 0;
  #disposed = false;

  /** `onDispose` runs last: Node drops its hold on Dawn there. */
  static async create(
    gpu: GPU,
    adapter: GPUAdapter,
    options: WebGpuDeviceOptions = {},
    onDispose: () => void = () => {},
  ): Promise<WebGpuDevice> {
    const device = await requestDevice(adapter);
    const { precision = 'default', deterministic = false } = options;
    const { minLanes } = options;
    const language = gpu.wgslLanguageFeatures as WGSLLanguageFeatures | undefined;
    const capabilities = readCapabilities(language, adapter, device, precision, deterministic, minLanes);
    const { bindingBytes } = capabilities;
    const shardBytes = Math.min(bindingBytes, options.maxShardBytes ?? bindingBytes);
    return new WebGpuDevice(adapter, device, capabilities, shardBytes, options.host ?? null, onDispose);
  }

  private constructor(
    adapter: GPUAdapter,
    device: GPUDevice,
    capabilities: Capabilities,
    shardBytes: number,
    host: Device | null,
    onDispose: () => void,
  ) {
    this.#device = device;
    this.#host = host;
    this.capabilities = capabilities;
    this.#oneOrder = { ...capabilities, oneOrder: true };
    this.#onDispose = onDispose;
    this.#allocator = new Allocator(device);
    this.#pipelines = new Pipelines(device);
    this.#target = {
      device,
      allocator: this.#allocator,
      f16: capabilities.f16,
      shardBytes,
      staging: new Staging(),
    };
    const { vendor, architecture, device: model, description } = adapter.info;
    const { tuned: _, ...can } = capabilities;
    this.identity = { vendor, architecture, device: model, description, can };
    this.info = {
      kind: 'webgpu',
      name: adapterName(adapter.info),
      features: featureNames(capabilities),
      precision: capabilities.precision,
      deterministic: capabilities.deterministic,
      // WebGPU does not say.
      memoryBytes: undefined,
      attentionSplit: ATTENTION_SPLIT,
      adapters: HELD_ADAPTERS,
      keyCentres: 'flat',
      hostExperts: host !== null,
      ...(capabilities.storageBuffers >= TAIL_BUFFERS && { floatTails: MOST_TAIL }),
    };
    device.addEventListener('uncapturederror', (event) => {
      event.preventDefault();
      this.#faults.report(fromGpuError(event.error, 'step'));
    });
    this.lost = new Promise((resolve) => {
      void device.lost.then(({ reason, message }) => {
        // Our own dispose destroys the device: that is no loss.
        if (this.#disposed) return;
        const error = deviceLost(reason, message);
        this.#faults.report(error);
        resolve(error);
      });
    });
  }

  /** Objects ever made on the GPU: buffers, pipelines, layouts, bind groups. Stands still while steps run. */
  get created(): number {
    return this.#allocator.created + this.#pipelines.created;
  }

  /** One memory: nothing to place but what is kept in the host's. */
  place(groups: readonly PlacementGroup[]): void {
    this.#alive();
    this.#host?.place(
      groups.map(({ matrices }) => ({ matrices: matrices.filter(({ host }) => host === true), kvBytes: 0 })),
    );
  }

  async loadMatrix(
    parts: readonly MatrixSource[],
    options: MatrixOptions & { readonly host?: false },
  ): Promise<GpuMatrix>;
  async loadMatrix(parts: readonly MatrixSource[], options: MatrixOptions): Promise<Matrix>;
  async loadMatrix(parts: readonly MatrixSource[], options: MatrixOptions): Promise<Matrix> {
    this.#alive();
    if (options.host && this.#host !== null) return this.#host.loadMatrix(parts, options);
    const matrix = await loadMatrix(this.#target, parts, options);
    this.#alive();
    return matrix;
  }

  async loadVector(source: VectorSource, _group?: number): Promise<GpuVector> {
    this.#alive();
    return loadVector(this.#target, source);
  }

  createKvPool(spec: KvPoolSpec): GpuKvPool {
    this.#alive();
    return new GpuKvPool(
      {
        device: this.#device,
        allocator: this.#allocator,
        pipelines: this.#pipelines,
        faults: this.#faults,
        bindingBytes: this.capabilities.bindingBytes,
        order: this.#order,
      },
      spec,
    );
  }

  createFeatureSlab(spec: FeatureSlabSpec): GpuFeatureSlab {
    this.#alive();
    const { bindingBytes } = this.capabilities;
    const host = { device: this.#device, allocator: this.#allocator, pipelines: this.#pipelines };
    return new GpuFeatureSlab({ ...host, bindingBytes }, spec);
  }

  async compile(graph: Graph, limits: ProgramLimits, caches: KvPool | KvCaches | null): Promise<Program> {
    this.#alive();
    this.#target.staging.clear();
    const own = kvCaches(caches);
    if (!areGpuCaches(own)) {
      throw internalFault('A KV pool of another device was given to a WebGPU program', 'compile');
    }
    const program = await WebGpuProgram.create(
      {
        device: this.#device,
        allocator: this.#allocator,
        pipelines: this.#pipelines,
        faults: this.#faults,
        order: this.#order,
        expertsDevice: this.#host,
        capabilities:
          limits.oneOrder === true ? this.#oneOrder : (this.#tuned?.capabilities ?? this.capabilities),
        onPlan: () => {
          this.#plans++;
        },
      },
      graph,
      roundedLimits(limits),
      own,
    );
    this.#programs.add(program);
    return program;
  }

  /**
   * Measures which kernels are the fastest for the products of a graph, on the weights it was recorded with. Programs that
   * are compiled afterwards use them. For use while nothing runs; nothing that it makes on the device stays there.
   */
  async tune(graph: Graph, limits: ProgramLimits, options: TuneDeviceOptions): Promise<TuneReport> {
    this.#alive();
    const { tuneSession } = await import('./tuning/session.js');
    const { capabilities } = this;
    // Of an earlier tuning, perhaps of another mode, nothing stays.
    const choices = new TunedChoices();
    const host = { device: this.#device, allocator: this.#allocator, capabilities, tuned: choices };
    const report = await tuneSession(host, graph, limits, options);
    // Kernels are kept by capabilities: new choices want new ones.
    this.#tuned = choices.size > 0 ? { choices, capabilities: { ...capabilities, tuned: choices } } : null;
    return report;
  }

  /** Bytes a second that this GPU reads. For benchmarks. */
  async measureReadBandwidth(bytes: number, rounds: number): Promise<number> {
    this.#alive();
    return measureReadBandwidth(this.#device, Math.min(bytes, this.capabilities.bindingBytes), rounds);
  }

  /** Operations a second of this GPU's matrices, those that products are made of; null where it has none. For benchmarks. */
  async measureMatrixRate(rounds: number): Promise<number | null> {
    this.#alive();
    const { matrixOf } = await import('./kernels/linear-choice.js');
    const { measureMatrixRate } = await import('./matrix-rate.js');
    const { subgroupMinSize, subgroupMaxSize } = this.capabilities;
    const matrix = matrixOf(this.capabilities);
    if (matrix === null || subgroupMinSize !== subgroupMaxSize) return null;
    return measureMatrixRate(this.#device, matrix, subgroupMinSize, rounds);
  }

  stats(): DeviceStats {
    return {
      buffers: this.#allocator.buffers,
      bytes: this.#allocator.bytes,
      peakBytes: this.#allocator.peakBytes,
      samplerBytes: [...this.#programs].reduce((sum, p) => sum + (p.sampler?.bytes ?? 0), 0),
      plans: this.#plans,
      ...(this.#host === null ? {} : { hostBytes: this.#host.stats().bytes }),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const program of this.#programs) await program.dispose();
    this.#allocator.destroyAll();
    this.#device.destroy();
    await this.#device.lost;
    await this.#host?.[Symbol.asyncDispose]();
    this.#onDispose();
  }

  #alive(): void {
    this.#faults.check();
    if (!this.#disposed) return;
    throw new KvantError('disposed', 'The WebGPU device has been disposed of.', { fix: 'Create it again.' });
  }
}
