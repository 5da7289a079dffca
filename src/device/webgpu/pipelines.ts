/**
 * Pipelines, layouts and bind groups, each made once.
 *
 * Layouts are explicit and shared by every kernel with the same pattern of read and read-write bindings: with
 * `layout: 'auto'` an unused binding vanishes and every pipeline has bind groups of its own. A pipeline is cached by
 * its text.
 */

import { STAGE_COMPUTE } from './constants.js';
import { internalFault } from './faults.js';
import type { Binding, Stage } from './kernel.js';

const KIND = { read: 'r', read_write: 'w', uniform: 'u' } as const;
const TYPE: Record<string, GPUBufferBindingType> = { r: 'read-only-storage', w: 'storage', u: 'uniform' };

function pattern(bindings: readonly Binding[]): string {
  return bindings.map((b) => KIND[b.access]).join('');
}

export class Pipelines {
  readonly #device: GPUDevice;
  readonly #layouts = new Map<string, { group: GPUBindGroupLayout; pipeline: GPUPipelineLayout }>();
  readonly #pipelines = new Map<string, GPUComputePipeline>();
  readonly #compiling = new Map<string, Promise<GPUComputePipeline>>();
  readonly #bufferIds = new WeakMap<GPUBuffer, number>();
  #nextBufferId = 0;
  #created = 0;

  constructor(device: GPUDevice) {
    this.#device = device;
  }

  /** Layouts, pipelines and bind groups ever made. */
  get created(): number {
    return this.#created;
  }

  get(stage: Stage): GPUComputePipeline {
    let pipeline = this.#pipelines.get(stage.wgsl);
    if (pipeline === undefined) {
      pipeline = this.#device.createComputePipeline(this.#descriptor(stage));
      this.#created++;
      this.#pipelines.set(stage.wgsl, pipeline);
    }
    return pipeline;
  }

  /** Compiles without blocking; afterwards `get` answers from the cache. */
  async prepare(stage: Stage): Promise<void> {
    if (this.#pipelines.has(stage.wgsl)) return;
    let compiling = this.#compiling.get(stage.wgsl);
    if (compiling === undefined) {
      compiling = this.#device.createComputePipelineAsync(this.#descriptor(stage));
      this.#created++;
      this.#compiling.set(stage.wgsl, compiling);
    }
    try {
      this.#pipelines.set(stage.wgsl, await compiling);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      throw internalFault(`Kernel ${stage.label} does not compile: ${message}`, stage.label, error);
    } finally {
      this.#compiling.delete(stage.wgsl);
    }
  }

  /** A group of whole buffers in the order of the stage's bindings; `cache` holds those made for one program. */
  bindGroup(stage: Stage, buffers: readonly GPUBuffer[], cache: Map<string, GPUBindGroup>): GPUBindGroup {
    const kinds = pattern(stage.bindings);
    const key = `${kinds}:${buffers.map((b) => this.#idOf(b)).join(',')}`;
    let group = cache.get(key);
    if (group === undefined) {
      group = this.#device.createBindGroup({
        label: stage.label,
        layout: this.#layout(kinds).group,
        entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
      });
      this.#created++;
      cache.set(key, group);
    }
    return group;
  }

  #descriptor(stage: Stage): GPUComputePipelineDescriptor {
    return {
      label: stage.label,
      layout: this.#layout(pattern(stage.bindings)).pipeline,
      compute: {
        module: this.#device.createShaderModule({ label: stage.label, code: stage.wgsl }),
        entryPoint: 'main',
      },
    };
  }

  #layout(kinds: string): { group: GPUBindGroupLayout; pipeline: GPUPipelineLayout } {
    let layout = this.#layouts.get(kinds);
    if (layout === undefined) {
      const group = this.#device.createBindGroupLayout({
        label: kinds,
        entries: [...kinds].map((kind, binding) => ({
          binding,
          visibility: STAGE_COMPUTE,
          buffer: { type: TYPE[kind]! },
        })),
      });
      layout = {
        group,
        pipeline: this.#device.createPipelineLayout({ label: kinds, bindGroupLayouts: [group] }),
      };
      this.#created += 2;
      this.#layouts.set(kinds, layout);
    }
    return layout;
  }

  #idOf(buffer: GPUBuffer): number {
    let id = this.#bufferIds.get(buffer);
    if (id === undefined) {
      id = this.#nextBufferId++;
      this.#bufferIds.set(buffer, id);
    }
    return id;
  }
}
