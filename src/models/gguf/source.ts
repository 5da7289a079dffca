/** A GGUF file as the checkpoint that families know: a config, and tensors under their names, with converters' changes undone. */

import type { MatrixSource, VectorSource } from '../../device/weights.js';
import { KvantError } from '../../errors.js';
import type { JsonObject } from '../../weights/folder-files.js';
import { factorName, GgufCheckpoint, type RowPart } from '../../weights/gguf-checkpoint.js';
import { halvedRows, pairedRows, type RowOrder } from '../../weights/gguf-matrix.js';
import type { GgufMetadata } from '../../weights/gguf-metadata.js';
import type { GgufArchitecture } from './architecture.js';
import { ggufConfig, type RotationFactors } from './config.js';
import { layerConstants } from './layer-constants.js';
import { FACTORS, familyName, fileName, isRotated } from './names.js';
import { splitQkv } from './split-qkv.js';
import { isConv, type TiledHeads, tiledHeads, tiledOrder } from './tiled-heads.js';

export class GgufSource {
  /** As the config.json of the model would have it. */
  readonly config: JsonObject;
  readonly architecture: GgufArchitecture;
  readonly #checkpoint: GgufCheckpoint;
  /** The file's name by that of the family. */
  readonly #names: ReadonlyMap<string, string>;
  /** What the file keeps in lists, by the family's name of each. */
  readonly #numbers: ReadonlyMap<string, number>;
  /** What is some of the rows of a tensor, by the family's name of it: which, and what the file would call it alone. */
  readonly #parts: ReadonlyMap<string, { readonly rows: RowPart; readonly alone: string }>;
  readonly #rotated: RowOrder | undefined;
  readonly #tiled: TiledHeads | undefined;
  readonly #used = new Set<string>();

  private constructor(
    checkpoint: GgufCheckpoint,
    { architecture, config }: ReturnType<typeof ggufConfig>,
    names: ReadonlyMap<string, string>,
    parts: ReadonlyMap<string, { readonly rows: RowPart; readonly alone: string }>,
  ) {
    this.#checkpoint = checkpoint;
    this.architecture = architecture;
    this.config = config;
    this.#names = names;
    this.#numbers = layerNumbers(checkpoint.metadata, architecture);
    this.#parts = parts;
    this.#rotated = rotatedOrder(architecture, config, checkpoint.metadata);
    this.#tiled =
      architecture.tiledHeads === true ? tiledHeads(checkpoint.metadata, architecture.name) : undefined;
  }

  /**
   * Opens a file, and reads its header and the few numbers of its rotation.
   * @throws KvantError as `GgufCheckpoint.open` and `ggufConfig`
   */
  static async open(path: string): Promise<GgufSource> {
    const checkpoint = await GgufCheckpoint.open(path);
    try {
      const factors = await rotationFactors(checkpoint);
      const shapeOf = (name: string): readonly number[] | undefined => checkpoint.info(name)?.shape;
      const blocks = storedBlocks(checkpoint);
      const stated = ggufConfig(checkpoint.metadata, shapeOf, blocks, factors);
      const constants = await layerConstants(checkpoint, stated.architecture, blocks);
      const found = { ...stated, config: { ...stated.config, ...constants.fields } };
      const names = new Map<string, string>();
      const parts = new Map<string, { readonly rows: RowPart; readonly alone: string }>();
      for (const name of checkpoint.names()) {
        if (FACTORS.some((factor) => factor === name) || constants.names.has(name)) continue;
        const split = splitQkv(name, found.architecture, shapeOf);
        for (const [alone, rows] of split ?? [[name, undefined] as const]) {
          const shown = familyName(alone, found.architecture);
          if (names.has(shown)) throw twice(path, name, names.get(shown)!);
          names.set(shown, name);
          if (rows !== undefined) parts.set(shown, { rows, alone });
        }
      }
      return new GgufSource(checkpoint, found, names, parts);
    } catch (error) {
      await checkpoint.close();
      throw error;
    }
  }

  get path(): string {
    return this.#checkpoint.path;
  }

  get metadata(): GgufMetadata {
    return this.#checkpoint.metadata;
  }

  names(): string[] {
    return [...this.#names.keys()];
  }

  /** What the file keeps in lists, number by number. */
  listedNumbers(): string[] {
    return [...this.#numbers.keys()];
  }

  has(name: string): boolean {
    return this.#names.has(name) || this.#numbers.has(name);
  }

  called(name: string): string {
    return fileName(name, this.architecture);
  }

  /** `dtype` is the type that the file stores it in: `Q4_K`. */
  info(
    name: string,
  ): { readonly dtype: string; readonly shape: readonly number[]; readonly byteLength: number } | undefined {
    const tensor = this.#checkpoint.info(this.#names.get(name) ?? '');
    if (tensor === undefined) return undefined;
    if (FLAT.test(tensor.name)) {
      const numbers = tensor.shape.reduce((product, size) => product * size, 1);
      return { dtype: tensor.type.name, shape: [numbers], byteLength: tensor.byteLength };
    }
    const part = this.#parts.get(name)?.rows;
    const rows = part?.rows ?? this.#order(name, tensor.name)?.rows;
    const [first, ...inner] = tensor.shape;
    const share = part === undefined ? 1 : part.rows / first!;
    // Of a convolution, an order is of its numbers.
    const outer = isConv(tensor.name)
      ? (rows ?? 0) / inner.reduce((product, size) => product * size, 1)
      : rows;
    const shape = [rows === undefined ? first! : outer!, ...inner];
    return { dtype: tensor.type.name, shape, byteLength: tensor.byteLength * share };
  }

  matrix(
    name: string,
    expected?: { readonly rows: number; readonly cols: number; readonly stack?: number },
  ): MatrixSource {
    const stored = this.#take(name);
    const tensor = this.#checkpoint.info(stored);
    const factor = tensor && factorName(tensor);
    if (factor !== undefined) {
      const shown = familyName(factor, this.architecture);
      // Where it is something else of the model as well, it would count twice.
      if (!shown.endsWith('.scale') && this.#names.has(shown)) throw twiceScaled(this.path, factor);
      this.#used.add(shown);
    }
    const part = this.#parts.get(name)?.rows;
    return this.#checkpoint.matrix(stored, name, expected, this.#order(name, stored), part);
  }

  vector(name: string, shape?: readonly number[]): VectorSource {
    const number = this.#numbers.get(name);
    if (number !== undefined) return { name, length: 1, read: async () => Float32Array.of(number) };
    const stored = this.#take(name);
    const own = FLAT.test(stored) && same(this.info(name)?.shape, shape);
    const expected = own ? this.#checkpoint.info(stored)!.shape : shape;
    const part = this.#parts.get(name)?.rows;
    return this.#checkpoint.vector(stored, name, expected, this.#order(name, stored), part);
  }

  /** A head beside the embedding is one of its own: converters leave out what is tied. */
  async equal(): Promise<boolean> {
    return false;
  }

  unusedNames(): string[] {
    // What activations would be quantised with stays unread.
    return this.names().filter((name) => !this.#used.has(name) && !name.endsWith('.input_scale'));
  }

  async close(): Promise<void> {
    await this.#checkpoint.close();
  }

  #order(name: string, stored: string): RowOrder | undefined {
    const alone = this.#parts.get(name)?.alone;
    if (this.#rotated !== undefined && isRotated(alone ?? stored)) return this.#rotated;
    if (alone !== undefined) return undefined;
    return this.#tiled === undefined ? undefined : tiledOrder(stored, this.#tiled);
  }

  #take(name: string): string {
    this.#used.add(name);
    // The checkpoint says what is missing.
    return this.#names.get(name) ?? name;
  }
}

/** The order of the rows of q and k, where it is another than families have. */
function rotatedOrder(
  { name, pairedRows: paired, halvedByAxes }: GgufArchitecture,
  config: JsonObject,
  metadata: GgufMetadata,
): RowOrder | undefined {
  const headDim = config.head_dim as number;
  if (paired === true) return pairedRows(headDim);
  if (halvedByAxes !== true || metadata.value(`${name}.rope.dimension_sections`) === undefined)
    return undefined;
  return halvedRows(headDim, metadata.count(`${name}.rope.dimension_count`) ?? headDim);
}

/** Of Mamba 2: a list of numbers, though the file has a row for each head or group. */
const FLAT = /\.ssm_(a|d|norm\.weight)$/;

function same(one: readonly number[] | undefined, other: readonly number[] | undefined): boolean {
  return one !== undefined && other !== undefined && one.join() === other.join();
}

/** Layers, by the largest number that a tensor has; each has many. */
function storedBlocks(checkpoint: GgufCheckpoint): number {
  const numbers = checkpoint.names().map((name) => Number(/^blk\.(\d{1,6})\./.exec(name)?.[1] ?? -1));
  return numbers.reduce((most, number) => Math.max(most, number + 1), 0);
}

function layerNumbers(metadata: GgufMetadata, { numbers = {} }: GgufArchitecture): Map<string, number> {
  return new Map(
    Object.entries(numbers).flatMap(([tensor, key]) =>
      (metadata.numbers(key) ?? []).map(
        (value, layer) => [`model.layers.${layer}.${tensor}`, value] as const,
      ),
    ),
  );
}

async function rotationFactors(checkpoint: GgufCheckpoint): Promise<RotationFactors | null> {
  const [one, short, long] = await Promise.all(
    FACTORS.map(async (name) =>
      checkpoint.has(name) ? [...(await checkpoint.vector(name, name).read())] : undefined,
    ),
  );
  if (one !== undefined) return { short: one, long: one };
  if (short === undefined && long === undefined) return null;
  if (short === undefined || long === undefined)
    throw oneOfTwo(checkpoint.path, FACTORS[short === undefined ? 1 : 2]);
  return { short, long };
}

function oneOfTwo(path: string, missing: string): KvantError {
  return new KvantError(
    'weights-tensor-missing',
    `${path} has no tensor "${missing}", which belongs to the other`,
    {
      kind: 'model',
      where: missing,
      fix: 'Fetch the file again, or convert the model again with a current version of llama.cpp.',
    },
  );
}

function twiceScaled(path: string, name: string): KvantError {
  return new KvantError(
    'weights-gguf-type',
    `${path} holds NVFP4 whose number ${name} is also one of the model`,
    {
      kind: 'unsupported',
      where: name,
      fix: 'Take a file of the same model in another type, such as Q4_K_M or Q8_0.',
    },
  );
}

function twice(path: string, one: string, other: string): KvantError {
  return new KvantError('weights-duplicate', `${path} holds ${one} and ${other}, which are one tensor`, {
    kind: 'model',
    where: one,
    fix: 'Convert the model again with a current version of the tool.',
  });
}
