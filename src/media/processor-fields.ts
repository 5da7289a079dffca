/** Reading preprocessor_config.json by hand: each getter checks one field and says what is wrong with it. */
import { KvantError } from '../errors.js';
import type { PixelValues } from './processor.js';
import type { ResizeFilter } from './resize-weights.js';

export type ProcessorJson = Readonly<Record<string, unknown>>;

export const CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073] as const;
export const CLIP_STD = [0.26862954, 0.26130258, 0.27577711] as const;
export const IMAGENET_MEAN = [0.485, 0.456, 0.406] as const;
export const IMAGENET_STD = [0.229, 0.224, 0.225] as const;
export const HALF = [0.5, 0.5, 0.5] as const;

/** PIL's numbers of filters. */
const FILTERS: Readonly<Record<number, ResizeFilter>> = { 1: 'lanczos', 2: 'bilinear', 3: 'bicubic' };

export class ProcessorFields {
  readonly #json: ProcessorJson;
  readonly #file: string;

  /** `file`: names it in errors. */
  constructor(json: ProcessorJson, file = 'preprocessor_config.json') {
    this.#json = json;
    this.#file = file;
  }

  value(name: string): unknown {
    return this.#json[name] ?? undefined;
  }

  flag(name: string, fallback: boolean): boolean {
    const value = this.value(name);
    if (value === undefined) return fallback;
    if (typeof value !== 'boolean') throw this.odd(name, 'It takes true or false.');
    return value;
  }

  number(name: string): number | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0)
      throw this.odd(name, 'It takes a number above 0.');
    return value;
  }

  count(name: string): number | undefined {
    const value = this.number(name);
    if (value !== undefined && !Number.isSafeInteger(value)) throw this.odd(name, 'It takes a whole number.');
    return value;
  }

  /** The fields of an object within; none where it is absent. A number alone is what `alone` names. */
  within(name: string, alone: readonly string[] = []): ProcessorFields {
    const value = this.value(name);
    if (typeof value === 'number')
      return new ProcessorFields(Object.fromEntries(alone.map((key) => [key, value])), this.#file);
    const json = typeof value === 'object' && value !== null ? (value as ProcessorJson) : {};
    return new ProcessorFields(json, this.#file);
  }

  three(name: string): readonly number[] | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (Array.isArray(value) && value.length === 3 && value.every((v) => Number.isFinite(v)))
      return value as number[];
    throw this.odd(name, 'It takes three numbers.');
  }

  filter(fallback: ResizeFilter): ResizeFilter {
    const number = this.count('resample');
    const filter = number === undefined ? fallback : FILTERS[number];
    if (filter === undefined)
      throw this.odd('resample', 'bilinear (2), bicubic (3) and lanczos (1) are known.');
    return filter;
  }

  /** How bytes become numbers. The arguments: those of the class, for what the file leaves out. */
  pixels(filter: ResizeFilter, mean: readonly number[], std: readonly number[]): PixelValues {
    const normalise = this.flag('do_normalize', true);
    return {
      filter: this.filter(filter),
      scale: this.flag('do_rescale', true) ? (this.number('rescale_factor') ?? 1 / 255) : 1,
      mean: normalise ? (this.three('image_mean') ?? mean) : [0, 0, 0],
      std: normalise ? (this.three('image_std') ?? std) : [1, 1, 1],
    };
  }

  /** The same, as a processor of tensors has it: in f32, mean and deviation rescaled in place of the bytes. */
  tensorPixels(filter: ResizeFilter, mean: readonly number[], std: readonly number[]): PixelValues {
    const values = this.pixels(filter, mean, std);
    if (this.flag('do_normalize', true)) return { ...values, fused: true };
    return { ...values, scale: Math.fround(values.scale) };
  }

  /** Errors: `invalid-preprocessor`, where a field says another thing than what the model is made for. */
  agree(name: string, stated: number | undefined, wanted: number): void {
    if (stated === undefined || stated === wanted) return;
    throw invalidProcessor(
      name,
      `is ${stated}; the model's config.json says ${wanted}`,
      'Fetch the model again: the two files are of different models.',
      this.#file,
    );
  }

  /** A field that has to be as it is by default, for what kvant does not do. */
  mustBe(name: string, wanted: boolean): void {
    if (this.flag(name, wanted) !== wanted)
      throw this.odd(name, `Only ${wanted} is known for this processor.`);
  }

  odd(name: string, fix: string): KvantError {
    return invalidProcessor(name, `is ${JSON.stringify(this.value(name))}`, fix, this.#file);
  }
}

export function invalidProcessor(
  where: string,
  what: string,
  fix: string,
  file = 'preprocessor_config.json',
): KvantError {
  return new KvantError('invalid-preprocessor', `${file}: ${where} ${what}.`, {
    kind: 'model',
    where,
    fix,
  });
}
