/** What lies beside a GGUF file to see for it (mmproj): its tensors by the names of checkpoints, and what their config would say. */

import { basename } from 'node:path';
import type { MatrixSource, VectorSource } from '../../device/weights.js';
import { KvantError } from '../../errors.js';
import type { JsonObject } from '../../weights/folder-files.js';
import { GgufCheckpoint } from '../../weights/gguf-checkpoint.js';
import { pairedRows, type RowOrder } from '../../weights/gguf-matrix.js';
import type { GgufMetadata } from '../../weights/gguf-metadata.js';
import { PROJECTOR_KINDS } from './projector-kinds.js';
import type { ProjectorKind, ProjectorReader, TensorPlace } from './projector-rules.js';
import { joinedFrames, joinedNumbers, joinedRows, reorderedNumbers } from './projector-tensors.js';
import type { GgufSource } from './source.js';

const AT = 'clip.vision.';

/** A tensor of a checkpoint, with those of the file that it is made of. */
interface Made {
  readonly stored: readonly string[];
  readonly frames: boolean;
  readonly reordered?: TensorPlace['reordered'] & {};
}

export class Projector {
  /** All of config.json but `text_config`. */
  readonly config: JsonObject;
  /** As preprocessor_config.json would have it. */
  readonly processor: JsonObject;
  readonly #checkpoint: GgufCheckpoint;
  readonly #made: ReadonlyMap<string, Made>;
  readonly #order: RowOrder | undefined;
  readonly #used = new Set<string>();

  private constructor(checkpoint: GgufCheckpoint, kind: ProjectorKind, read: ProjectorReader) {
    this.#checkpoint = checkpoint;
    const width = read.count('projection_dim');
    if (kind.ownProjection !== true && width !== undefined && width !== read.text.hidden_size)
      throw checkpoint.metadata.odd(
        `${AT}projection_dim`,
        `the model's width (${String(read.text.hidden_size)}): the file is another model's, and the width`,
      );
    this.config = kind.config(read);
    this.processor = kind.processor(read);
    this.#made = places(checkpoint, kind, read);
    this.#order = kind.pairedRows === true ? pairedRows(headDimOf(read)) : undefined;
  }

  /**
   * Reads the header.
   * @throws KvantError those of `GgufCheckpoint.open`; `projector-unsupported`, `model-config`, `weights-tensor-extra`
   */
  static async open(path: string, model: GgufSource): Promise<Projector> {
    const checkpoint = await GgufCheckpoint.open(path, 'sight');
    try {
      const kind = kindOf(checkpoint.metadata);
      return new Projector(checkpoint, kind, reader(checkpoint, model));
    } catch (error) {
      await checkpoint.close();
      throw error;
    }
  }

  names(): string[] {
    return [...this.#made.keys()];
  }

  has(name: string): boolean {
    return this.#made.has(name);
  }

  info(
    name: string,
  ): { readonly dtype: string; readonly shape: readonly number[]; readonly byteLength: number } | undefined {
    const made = this.#made.get(name);
    if (made === undefined) return undefined;
    const parts = made.stored.map((stored) => this.#checkpoint.info(stored)!);
    const [{ type, shape }] = parts as [(typeof parts)[0]];
    const byteLength = parts.reduce((sum, part) => sum + part.byteLength, 0);
    const [outer, ...inner] = shape as [number, ...number[]];
    const joined = made.frames
      ? [outer, inner[0]!, parts.length, ...inner.slice(1)]
      : [parts.reduce((sum, part) => sum + part.shape[0]!, 0), ...inner];
    return { dtype: type.name, shape: joined, byteLength };
  }

  matrix(
    name: string,
    expected?: { readonly rows: number; readonly cols: number; readonly stack?: number },
  ): MatrixSource {
    const { stored } = this.#take(name);
    const parts = stored.map((one) => {
      const own = expected && { rows: expected.rows / stored.length, cols: expected.cols };
      return this.#checkpoint.matrix(one, name, own, this.#orderOf(one));
    });
    return joinedRows(name, parts);
  }

  vector(name: string, shape?: readonly number[]): VectorSource {
    const { stored, frames, reordered } = this.#take(name);
    const [first] = stored as [string];
    if (reordered !== undefined) {
      const own = this.#checkpoint.info(first)!.shape;
      const sizeOf = (sides: readonly number[]): number => sides.reduce((all, side) => all * side, 1);
      const stated = shape !== undefined && sizeOf(shape) !== sizeOf(own) ? shape : own;
      return reorderedNumbers(this.#checkpoint.vector(first, name, stated), (values) =>
        reordered(values, own),
      );
    }
    if (stored.length === 1) return this.#checkpoint.vector(first, name, shape, this.#orderOf(first));
    const parts = stored.map((one) =>
      this.#checkpoint.vector(one, name, this.#checkpoint.info(one)!.shape, this.#orderOf(one)),
    );
    if (!frames) return joinedNumbers(name, parts);
    const [, , height, width] = this.#checkpoint.info(first)!.shape;
    return joinedFrames(name, parts, height! * width!);
  }

  unusedNames(): string[] {
    return this.names().filter((name) => !this.#used.has(name));
  }

  async close(): Promise<void> {
    await this.#checkpoint.close();
  }

  #orderOf(stored: string): RowOrder | undefined {
    return /\.attn_[qk]\.(weight|bias)$/.test(stored) ? this.#order : undefined;
  }

  #take(name: string): Made {
    this.#used.add(name);
    // The checkpoint says what is missing.
    return this.#made.get(name) ?? { stored: [name], frames: false };
  }
}

function headDimOf(read: ProjectorReader): number {
  return read.required('embedding_length') / read.required('attention.head_count');
}

/** What the file calls itself: `qwen2.5vl_merger`, `gemma3`. */
function projectorType(metadata: GgufMetadata): string | undefined {
  const keys = ['clip.vision.projector_type', 'clip.projector_type', 'clip.audio.projector_type'];
  return keys.map((key) => metadata.text(key)).find((kind) => kind !== undefined);
}

/** Tiles side by side without the padding, as transformers has them. */
const MERGED = 'spatial_unpad';

function kindOf(metadata: GgufMetadata): ProjectorKind {
  const architecture = metadata.text('general.architecture');
  // Files from before 2024 do not say it.
  const old = architecture === 'clip' && metadata.has('clip.has_llava_projector') ? 'mlp' : undefined;
  const type = projectorType(metadata) ?? old;
  const found = PROJECTOR_KINDS.find(({ types }) => types.includes(type ?? ''));
  const merged = metadata.text(`${AT}mm_patch_merge_type`) ?? MERGED;
  const flat = metadata.has(`${AT}image_grid_pinpoints`) && merged !== MERGED;
  if (found !== undefined && !flat) return found;
  if (type === undefined && architecture !== undefined && architecture !== 'clip')
    throw new KvantError(
      'projector-unsupported',
      `${basename(metadata.path)} is no mmproj file: its architecture is ${architecture}`,
      {
        kind: 'unsupported',
        where: 'general.architecture',
        fix: 'Give the mmproj file that was made for the model.',
      },
    );
  const known = PROJECTOR_KINDS.flatMap(({ types }) => types);
  const what =
    type === undefined
      ? 'says no projector_type'
      : `is of the kind ${JSON.stringify(flat ? `${type}, tiles merged as ${merged}` : type)}`;
  throw new KvantError(
    'projector-unsupported',
    `${basename(metadata.path)} is an mmproj file that ${what}, which is not supported`,
    {
      kind: 'unsupported',
      where: 'clip.projector_type',
      fix: `Known are ${known.join(', ')}. Its safetensors checkpoint sees where docs/vision.md lists the family.`,
    },
  );
}

function reader(checkpoint: GgufCheckpoint, model: GgufSource): ProjectorReader {
  const { metadata } = checkpoint;
  const count = (key: string, min?: number): number | undefined => metadata.count(AT + key, min);
  let tokens: Map<string, number> | undefined;
  return {
    architecture: model.architecture.name,
    text: model.config,
    count,
    required: (key) => {
      const value = count(key);
      if (value === undefined) throw metadata.odd(AT + key, 'a whole number of at least 1');
      return value;
    },
    number: (key) => metadata.number(AT + key),
    numbers: (key) => metadata.numbers(AT + key),
    word: (key) => metadata.text(AT + key),
    flag: (key) => metadata.flag(`clip.${key}`) ?? false,
    shape: (tensor) => checkpoint.info(tensor)?.shape,
    tokenId: (text) => {
      const list = model.metadata.texts('tokenizer.ggml.tokens') ?? [];
      tokens ??= new Map(list.map((token, id) => [token, id]));
      return tokens.get(text);
    },
  };
}

/** What hears, and rows that the model has too. */
const OF_NO_USE = /^(a\.|mm\.a\.|v\.token_embd\.img_break$)/;

function places(checkpoint: GgufCheckpoint, kind: ProjectorKind, read: ProjectorReader): Map<string, Made> {
  const parts = new Map<string, Omit<Made, 'stored'> & { stored: (string | undefined)[] }>();
  for (const stored of checkpoint.names()) {
    if (OF_NO_USE.test(stored)) continue;
    const place = kind.place(swapped(stored, read), read);
    if (place === null) continue;
    if (place === undefined) throw extra(checkpoint.path, stored);
    const { name, part = 0, frames = false, reordered } = place;
    const made = parts.get(name) ?? { stored: [], frames, ...(reordered && { reordered }) };
    if (made.stored[part] !== undefined) throw extra(checkpoint.path, stored);
    made.stored[part] = stored;
    parts.set(name, made);
  }
  return new Map(
    [...parts].map(([name, { stored, ...made }]) => {
      const whole = Array.from(stored, (one) => one ?? name);
      return [name, { ...made, stored: whole }] as const;
    }),
  );
}

/** Files from before 2025-05 have the names of the two matrices of an MLP the wrong way round. */
function swapped(stored: string, { shape, count }: ProjectorReader): string {
  const down = shape('v.blk.0.ffn_down.weight');
  const width = count('embedding_length');
  if (down === undefined || down[1] !== width || down[0] === width) return stored;
  return stored.replace(/\.ffn_(up|down)\./, (_, part: string) => `.ffn_${part === 'up' ? 'down' : 'up'}.`);
}

function extra(path: string, stored: string): KvantError {
  return new KvantError(
    'weights-tensor-extra',
    `${basename(path)} holds ${stored}, which is no part of what sees as kvant knows it`,
    {
      kind: 'unsupported',
      where: stored,
      fix: 'Take a file made with a current llama.cpp, or the safetensors checkpoint of the model.',
    },
  );
}
