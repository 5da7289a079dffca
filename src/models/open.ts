/** A model opened, by its format: its config, and its weights under the names that families use. */

import { KvantError } from '../errors.js';
import type { Notice } from '../notice.js';
import { Checkpoint } from '../weights/checkpoint.js';
import type { JsonObject } from '../weights/folder-files.js';
import { isGgufFile } from '../weights/gguf-path.js';
import { textField } from '../weights/text-config.js';
import type { ModelFacts } from './facts.js';
import { parseModelConfig } from './families.js';
import type { ModelDefinition } from './family.js';
import type { WeightSource } from './resolve-weights.js';
import {
  EMBEDDING_WEIGHT,
  HEAD_WEIGHT,
  type NamedWeights,
  type PlainWeights,
  renamed,
} from './tensor-names.js';

export interface OpenModel extends AsyncDisposable {
  readonly source: WeightSource;
  readonly definition: ModelDefinition;
  /** What is odd and was read all the same. */
  readonly notices: readonly Notice[];
}

/** What a format gives: a config as config.json has it, and tensors by name. */
export interface WeightFiles extends PlainWeights {
  readonly config: JsonObject;
  equal(a: string, b: string): Promise<boolean>;
  close(): Promise<void>;
}

/**
 * Opens a folder of safetensors files, or a GGUF file. Reads config.json and headers; where the head may be a copy of the embedding,
 * these two as well.
 *
 * @param overrides fields that replace those of config.json
 * @param mmproj of a GGUF file: what sees for it. Default: the best such file beside it
 * @throws KvantError those of `Checkpoint.open`, `GgufSource.open` and `parseModelConfig`
 * @example
 * await using model = await openModel('models/demo-text');
 * model.definition.facts.layers
 */
export async function openModel(
  path: string,
  overrides: JsonObject = {},
  mmproj?: string,
): Promise<OpenModel> {
  if (await isGgufFile(path)) {
    const { openGguf } = await import('./gguf/open-gguf.js');
    return await openGguf(path, mmproj, (source, baked) => define(source, path, baked, overrides));
  }
  if (mmproj !== undefined) throw noProjector(path);
  return await define(await Checkpoint.open(path), `${path}/config.json`, null, overrides);
}

function noProjector(path: string): KvantError {
  return new KvantError('invalid-option', `${path} is no GGUF file, and takes no mmproj file`, {
    kind: 'invalid-request',
    where: 'mmproj',
    fix: 'Leave `mmproj` (--mmproj) out: a folder of safetensors holds what sees itself.',
  });
}

async function define(
  files: WeightFiles,
  where: string,
  baked: RegExp | null,
  overrides: JsonObject,
): Promise<OpenModel> {
  try {
    const named = renamed(files);
    const stated = parseModelConfig(files.config, where, undefined, overrides);
    const parsed = stated.asStored((name) => named.info(name)?.shape);
    const { vision } = parsed;
    const blind = vision !== null && !named.has(vision.tower.probe);
    const seeing = blind ? parsed.withoutVision() : parsed;
    const definition = baked === null ? seeing : withBaked(seeing, baked);
    const found = await findHead(files, named, definition.facts);
    return {
      source: found.source,
      definition: definition.withTied(found.tied),
      notices: [...definition.facts.notices, ...(blind ? [BLIND] : []), ...found.notices],
      [Symbol.asyncDispose]: () => files.close(),
    };
  } catch (error) {
    await files.close();
    throw error;
  }
}

const BLIND: Notice = {
  message: 'the weights hold nothing that sees, though config.json speaks of it: pictures are refused',
  fields: { field: 'vision_config' },
};

/** The same model whose norms are stored as they multiply, or decays as they are used. */
function withBaked(definition: ModelDefinition, baked: RegExp): ModelDefinition {
  const vectors = definition.layout.vectors.map((vector) => {
    const { make: _, ...plain } = vector;
    return baked.test(vector.parts[0]!.name) ? plain : vector;
  });
  return {
    ...definition,
    layout: { ...definition.layout, vectors },
    asStored: (shapeOf) => withBaked(definition.asStored(shapeOf), baked),
    withTied: (tied) => withBaked(definition.withTied(tied), baked),
  };
}

interface Head {
  readonly source: NamedWeights;
  /** The embedding is the head. */
  readonly tied: boolean;
  readonly notices: readonly Notice[];
}

/** Whether the model has a head of its own is told by the weights: where config.json says otherwise they count. */
async function findHead(checkpoint: WeightFiles, source: NamedWeights, facts: ModelFacts): Promise<Head> {
  const head = source.has(HEAD_WEIGHT);
  const embedding = source.has(EMBEDDING_WEIGHT);
  const same = { source, tied: facts.tied, notices: [] };
  if (facts.tied) {
    if (!head) return same;
    // The two are one: either name will do.
    if (!embedding) return { ...same, source: source.withAlias(EMBEDDING_WEIGHT, HEAD_WEIGHT) };
    if (await checkpoint.equal(source.stored(HEAD_WEIGHT), source.stored(EMBEDDING_WEIGHT))) return same;
    return {
      source,
      tied: false,
      notices: [
        {
          message:
            'the weights have a head of their own, which is used, though config.json says that it is tied',
          fields: { field: 'tie_word_embeddings', tensor: HEAD_WEIGHT },
        },
      ],
    };
  }
  const stated = textField(checkpoint.config, 'tie_word_embeddings');
  if (head || !embedding || typeof stated === 'boolean' || /Model$/.test(facts.architecture)) return same;
  return {
    source,
    tied: true,
    notices: [
      {
        message:
          'the weights have no head, so the embedding is used; config.json does not say that it is tied',
        fields: { field: 'tie_word_embeddings', tensor: HEAD_WEIGHT },
      },
    ],
  };
}
