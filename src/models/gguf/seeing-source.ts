/** A GGUF file together with what sees for it. */

import type { MatrixSource, VectorSource } from '../../device/weights.js';
import type { JsonObject } from '../../weights/folder-files.js';
import { Projector } from './projector.js';
import { GgufSource } from './source.js';

/** Models whose rotation by three axes takes turns between them. */
const INTERLEAVED = /^qwen3/;

export class SeeingSource {
  /** That of a wrapper. */
  readonly config: JsonObject;
  readonly #model: GgufSource;
  readonly #projector: Projector;

  private constructor(model: GgufSource, projector: Projector) {
    this.#model = model;
    this.#projector = projector;
    this.config = { ...projector.config, text_config: withAxes(model) };
  }

  /** Takes the model over: it is closed with this, or where this fails. Errors: those of `Projector.open`. */
  static async open(model: GgufSource, path: string): Promise<SeeingSource> {
    try {
      return new SeeingSource(model, await Projector.open(path, model));
    } catch (error) {
      await model.close();
      throw error;
    }
  }

  /** As preprocessor_config.json would have it. */
  get processor(): JsonObject {
    return this.#projector.processor;
  }

  names(): string[] {
    return [...this.#model.names(), ...this.#projector.names()];
  }

  has(name: string): boolean {
    return this.#of(name).has(name);
  }

  info(name: string): ReturnType<GgufSource['info']> {
    return this.#of(name).info(name);
  }

  matrix(...[name, expected]: Parameters<GgufSource['matrix']>): MatrixSource {
    return this.#of(name).matrix(name, expected);
  }

  vector(name: string, shape?: readonly number[]): VectorSource {
    return this.#of(name).vector(name, shape);
  }

  async equal(): Promise<boolean> {
    return await this.#model.equal();
  }

  unusedNames(): string[] {
    return [...this.#model.unusedNames(), ...this.#projector.unusedNames()];
  }

  async close(): Promise<void> {
    await Promise.all([this.#model.close(), this.#projector.close()]);
  }

  #of(name: string): GgufSource | Projector {
    return this.#projector.has(name) ? this.#projector : this.#model;
  }
}

/** What config.json and preprocessor_config.json would say. */
export interface SightFiles {
  readonly config: JsonObject;
  readonly processor: JsonObject;
}

/** What the caller's side needs of a model that sees: no weights. Errors: as `GgufSource.open` and `SeeingSource.open`. */
export async function readSight(model: string, projector: string): Promise<SightFiles> {
  const source = await SeeingSource.open(await GgufSource.open(model), projector);
  await source.close();
  return { config: source.config, processor: source.processor };
}

/** The model's config, with the axes of its rotation where it has several. */
function withAxes({ config, metadata, architecture }: GgufSource): JsonObject {
  const sections = metadata.numbers(`${architecture.name}.rope.dimension_sections`);
  if (sections === undefined) return config;
  return {
    ...config,
    rope_scaling: {
      rope_type: 'default',
      ...(config.rope_scaling as JsonObject | undefined),
      mrope_section: sections.slice(0, 3),
      mrope_interleaved: INTERLEAVED.test(architecture.name),
    },
  };
}
