/** A model folder opened: its config, and its weights under the names that families use. */

import type { Notice } from '../notice.js';
import { Checkpoint } from '../weights/checkpoint.js';
import { textField } from '../weights/text-config.js';
import type { ModelFacts } from './facts.js';
import { parseModelConfig } from './families.js';
import type { ModelDefinition } from './family.js';
import type { WeightSource } from './resolve-weights.js';
import { EMBEDDING_WEIGHT, HEAD_WEIGHT, type NamedWeights, renamed } from './tensor-names.js';

export interface OpenModel extends AsyncDisposable {
  readonly source: WeightSource;
  readonly definition: ModelDefinition;
  /** What is odd and was read all the same. */
  readonly notices: readonly Notice[];
}

/**
 * Opens a folder. Reads config.json and headers; where the head may be a copy of the embedding, these two as well.
 *
 * @throws KvantError those of `Checkpoint.open` and `parseModelConfig`
 * @example
 * await using model = await openModel('models/demo-text');
 * model.definition.facts.layers
 */
export async function openModel(folder: string): Promise<OpenModel> {
  const checkpoint = await Checkpoint.open(folder);
  try {
    const definition = parseModelConfig(checkpoint.config, `${folder}/config.json`);
    const found = await findHead(checkpoint, renamed(checkpoint), definition.facts);
    return {
      source: found.source,
      definition: definition.withTied(found.tied),
      notices: [...definition.facts.notices, ...found.notices],
      [Symbol.asyncDispose]: () => checkpoint.close(),
    };
  } catch (error) {
    await checkpoint.close();
    throw error;
  }
}

interface Head {
  readonly source: NamedWeights;
  /** The embedding is the head. */
  readonly tied: boolean;
  readonly notices: readonly Notice[];
}

/** Whether the model has a head of its own is told by the weights: where config.json says otherwise they count. */
async function findHead(checkpoint: Checkpoint, source: NamedWeights, facts: ModelFacts): Promise<Head> {
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
