/** Checkpoints whose weights are no files: they are made of the tensors' names, as scripts/fixtures/named_values.py makes them. */

import { readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readPacked } from '../fixtures/read-packed.js';
import { f32, safetensors, type TestTensor } from '../fixtures/weights/build.js';

const FOLDER =
  process.env.CONFIG_FIELDS ?? fileURLToPath(new URL('../fixtures/config-fields/', import.meta.url));

const FIXTURE = '.json.br';

export type Json = Readonly<Record<string, unknown>>;
/** By a tensor's name, in which `*` is the layer. */
export type Shapes = Readonly<Record<string, readonly number[]>>;

export interface FieldCase {
  readonly set: Json;
  readonly remove?: readonly string[];
  /** Tensors that are others than those of the base; null: there is none. */
  readonly shapes?: Readonly<Record<string, readonly number[] | null>>;
  /** The first logits; those of the base if omitted. */
  readonly logits?: readonly number[];
}

export interface Run {
  readonly prompt: readonly number[];
  readonly greedy: readonly number[];
  readonly margins: readonly number[];
  /** `[steps][vocab]` what each greedy token was chosen from. */
  readonly logits: readonly (readonly number[])[];
}

export interface GeneratedFixture {
  readonly prompt: readonly number[];
  readonly config: Json;
  readonly shapes: Shapes;
  /** The first logits behind the prompt. */
  readonly logits: readonly number[];
  readonly runs: readonly Run[];
  readonly cases: Readonly<Record<string, FieldCase>>;
}

export const generatedFamilies: readonly string[] = readdirSync(FOLDER)
  .filter((name) => name.endsWith(FIXTURE))
  .map((name) => name.slice(0, -FIXTURE.length));

export function generatedFixture(family: string): GeneratedFixture {
  return readPacked(join(FOLDER, family + FIXTURE)) as GeneratedFixture;
}

/** The hash of the name (FNV-1a) seeds a mixer, 16 bits of whose words become a number of [-1, 1). */
export function valuesOf(name: string, count: number): Float32Array {
  if (name.endsWith('.beta')) return new Float32Array(count).fill(0.375);
  if (name.endsWith('.eps')) return new Float32Array(count).fill(-0.0625);
  let seed = 0x811c9dc5;
  for (const byte of Buffer.from(name)) seed = Math.imul(seed ^ byte, 0x01000193);
  const norm = name.includes('norm');
  const scale = name.includes('embed') && !norm ? 1 : 0.5;
  const shift = norm && !name.endsWith('.bias') ? 1 : 0;
  return Float32Array.from({ length: count }, (_, i) => {
    const a = (seed + Math.imul(i + 1, 0x6d2b79f5)) | 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    t ^= t >>> 14;
    return scale * (((t >>> 16) - 32_768) / 32_768) + shift;
  });
}

/** A safetensors file of these tensors. */
export function generatedWeights(shapes: Shapes, layers: number): Buffer {
  const tensors: Record<string, TestTensor> = {};
  for (const [pattern, shape] of Object.entries(shapes))
    for (let layer = 0; layer < (pattern.includes('*') ? layers : 1); layer++) {
      const name = pattern.replace('*', String(layer));
      tensors[name] = f32(
        shape,
        valuesOf(
          name,
          shape.reduce((size, n) => size * n, 1),
        ),
      );
    }
  return safetensors(tensors, { format: 'pt' });
}

/** Layers of a config, or of the decoder in it. */
export function layersOf(config: Json): number | undefined {
  return ((config.text_config as Json | undefined) ?? config).num_hidden_layers as number | undefined;
}

/** Writes a family's base as a model folder. */
export async function writeGenerated({ config, shapes }: GeneratedFixture, folder: string): Promise<void> {
  await writeFile(join(folder, 'config.json'), JSON.stringify(config));
  await writeFile(join(folder, 'model.safetensors'), generatedWeights(shapes, layersOf(config)!));
}
