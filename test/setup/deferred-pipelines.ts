/**
 * Pipelines of one device that are compiled when a pass first runs them, each text once. Before that a kernel's text is parsed, and a
 * pipeline is made of its names alone: what it binds, its workgroup and the memory of that are within the device's limits.
 */

/** Stands for a pipeline until a pass sets it. */
class Deferred {
  #made: GPUComputePipeline | undefined;
  readonly #make: () => GPUComputePipeline;

  constructor(make: () => GPUComputePipeline) {
    this.#make = make;
  }

  get made(): GPUComputePipeline {
    this.#made ??= this.#make();
    return this.#made;
  }
}

const knowing = new WeakSet<GPUComputePassEncoder>();

/** Passes of Dawn's, all of which have one prototype, take what is deferred. */
function teach(raw: GPUDevice): void {
  const encoder = raw.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.end();
  encoder.finish();
  const passes = Object.getPrototypeOf(pass) as GPUComputePassEncoder;
  if (knowing.has(passes)) return;
  knowing.add(passes);
  const { setPipeline } = passes;
  passes.setPipeline = function (this: GPUComputePassEncoder, pipeline: GPUComputePipeline | Deferred) {
    return setPipeline.call(this, pipeline instanceof Deferred ? pipeline.made : pipeline);
  };
}

export class DeferredPipelines {
  /** Dawn's own, whatever stands in their places later. */
  readonly #raw: Pick<
    GPUDevice,
    'createShaderModule' | 'createComputePipeline' | 'createComputePipelineAsync'
  >;
  readonly #texts = new WeakMap<GPUShaderModule, string>();
  /** By text, which says what is bound and how, and apart those whose layout Dawn makes: no other layout's groups fit these. */
  readonly #pipelines = new Map<string, Promise<GPUComputePipeline>>();
  readonly #checked = new Map<string, GPUComputePipeline>();

  constructor(raw: GPUDevice) {
    this.#raw = {
      createShaderModule: raw.createShaderModule.bind(raw),
      createComputePipeline: raw.createComputePipeline.bind(raw),
      createComputePipelineAsync: raw.createComputePipelineAsync.bind(raw),
    };
    teach(raw);
  }

  /** Puts these pipelines in the place of Dawn's on the device itself. */
  install(raw: GPUDevice): void {
    raw.createShaderModule = (descriptor) => this.module(descriptor);
    raw.createComputePipeline = (descriptor) => this.get(descriptor);
    raw.createComputePipelineAsync = (descriptor) => this.prepare(descriptor);
  }

  module(descriptor: GPUShaderModuleDescriptor): GPUShaderModule {
    const module = this.#raw.createShaderModule(descriptor);
    this.#texts.set(module, descriptor.code);
    return module;
  }

  /** @throws as Dawn does of a pipeline that is none */
  prepare(descriptor: GPUComputePipelineDescriptor): Promise<GPUComputePipeline> {
    const [text, key] = this.#textAndKey(descriptor);
    let pipeline = this.#pipelines.get(key);
    if (pipeline === undefined) {
      pipeline = this.#check(descriptor, text);
      this.#pipelines.set(key, pipeline);
      pipeline.then(
        (checked) => this.#checked.set(key, checked),
        () => this.#pipelines.delete(key),
      );
    }
    return pipeline;
  }

  /** What is wrong with it Dawn reports as an error of the device. */
  get(descriptor: GPUComputePipelineDescriptor): GPUComputePipeline {
    const [text, key] = this.#textAndKey(descriptor);
    let pipeline = this.#checked.get(key);
    if (pipeline === undefined) {
      if (descriptor.layout === 'auto') pipeline = this.#raw.createComputePipeline(descriptor);
      else {
        this.#raw.createComputePipeline(this.#named(descriptor, text));
        pipeline = this.#deferred(descriptor);
      }
      this.#checked.set(key, pipeline);
      this.#pipelines.set(key, Promise.resolve(pipeline));
    }
    return pipeline;
  }

  #textAndKey({ compute, layout }: GPUComputePipelineDescriptor): readonly [text: string, key: string] {
    const text = this.#texts.get(compute.module)!;
    return [text, layout === 'auto' ? `auto ${text}` : text];
  }

  async #check(descriptor: GPUComputePipelineDescriptor, text: string): Promise<GPUComputePipeline> {
    const { messages } = await descriptor.compute.module.getCompilationInfo();
    if (descriptor.layout === 'auto' || messages.some(({ type }) => type === 'error'))
      return this.#raw.createComputePipelineAsync(descriptor);
    await this.#raw.createComputePipelineAsync(this.#named(descriptor, text));
    return this.#deferred(descriptor);
  }

  #deferred(descriptor: GPUComputePipelineDescriptor): GPUComputePipeline {
    return new Deferred(() => this.#raw.createComputePipeline(descriptor)) as unknown as GPUComputePipeline;
  }

  #named(descriptor: GPUComputePipelineDescriptor, text: string): GPUComputePipelineDescriptor {
    const module = this.#raw.createShaderModule({ code: namesOf(text) });
    return { ...descriptor, compute: { ...descriptor.compute, module } };
  }
}

/** A kernel that does nothing with what it has of the module. */
function namesOf(text: string): string {
  const main = /(fn main\([\s\S]*?\)\s*\{\n)[\s\S]*?\n\}/.exec(text);
  if (main === null) throw new Error(`There is no kernel in ${text.slice(0, 200)}.`);
  const names = [...text.matchAll(/\bvar<(?:workgroup|storage|uniform)[^>]*> (\w+):/g)].map(
    ([, name]) => name!,
  );
  const used = names.filter((name) => text.split(new RegExp(`\\b${name}\\b`)).length > 2);
  const uses = used.map((name) => `  _ = &${name};`).join('\n');
  return text.replace(main[0], () => `${main[1]}${uses}\n}`);
}
