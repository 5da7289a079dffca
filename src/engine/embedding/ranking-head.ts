/**
 * What an encoder that ranks has behind its pooled hidden state: layers that end in one number, whose sigmoid is the score of a pair of texts.
 * Source: the model code of transformers (models/xlm_roberta, models/modernbert).
 */

import { KvantError } from '../../errors.js';
import { Checkpoint } from '../../weights/checkpoint.js';
import { type JsonObject, readOptionalJsonFile } from '../../weights/folder-files.js';
import { isGgufFile } from '../../weights/gguf-path.js';
import type { Pooling } from '../pooling.js';
import {
  DENSE_ACTIVATIONS,
  type DenseActivation,
  type DenseLayer,
  dense,
  layerNorm,
  type NormLayer,
  type RankingHead,
} from './vectors.js';

/** Where a head's tensors are, and what stands between its matrices. */
interface HeadNames {
  readonly first: string;
  readonly norm: string | null;
  readonly last: string;
}

const ROBERTA: HeadNames = { first: 'classifier.dense', norm: null, last: 'classifier.out_proj' };
const MODERN_BERT: HeadNames = { first: 'head.dense', norm: 'head.norm', last: 'classifier' };
const HEADS: Readonly<Record<string, HeadNames>> = {
  RobertaForSequenceClassification: ROBERTA,
  XLMRobertaForSequenceClassification: ROBERTA,
  ModernBertForSequenceClassification: MODERN_BERT,
};

/**
 * Null for a model that has no such head.
 * @throws KvantError `rerank-unsupported` for a classifier of several classes and for what a head has not; those of Checkpoint
 * @example (await readRankingHead('bge-reranker-v2-m3'))?.pooling // 'cls'
 */
export async function readRankingHead(folder: string): Promise<RankingHead | null> {
  if (await isGgufFile(folder)) return await (await import('./gguf-layers.js')).ggufRankingHead(folder);
  const config = await readOptionalJsonFile(folder, 'config.json');
  const [architecture] = Array.isArray(config?.architectures) ? config.architectures : [];
  const names = HEADS[String(architecture)];
  if (config === undefined || names === undefined) return null;
  const labels = labelsOf(config);
  if (labels !== 1) throw unsupported(folder, `it tells ${labels} classes apart`);
  const size = config.hidden_size;
  if (!Number.isSafeInteger(size) || (size as number) < 1)
    throw unsupported(folder, 'hidden_size is no size');
  const checkpoint = await Checkpoint.open(folder);
  try {
    return await readHead(checkpoint, folder, config, names, size as number);
  } finally {
    await checkpoint.close();
  }
}

/** Of the number; a score is its sigmoid. */
export function scoreOf(hidden: Float32Array, { first, norm, last }: RankingHead): number {
  const inner = dense(hidden, first);
  const [logit] = dense(norm === null ? inner : layerNorm(inner, norm), last);
  return 1 / (1 + Math.exp(-logit!));
}

async function readHead(
  checkpoint: Checkpoint,
  folder: string,
  config: JsonObject,
  names: HeadNames,
  size: number,
): Promise<RankingHead> {
  const has = (name: string): boolean => checkpoint.info(name) !== undefined;
  const vector = (name: string, shape: readonly number[]): Promise<Float32Array> =>
    checkpoint.vector(name, shape).read();
  const layer = async (at: string, rows: number, activation: DenseActivation): Promise<DenseLayer> => ({
    rows,
    cols: size,
    activation,
    weight: await vector(`${at}.weight`, [rows, size]),
    bias: has(`${at}.bias`) ? await vector(`${at}.bias`, [rows]) : null,
  });
  const eps = typeof config.norm_eps === 'number' ? config.norm_eps : 1e-5;
  const modern = names.norm !== null;
  const norm = async (at: string): Promise<NormLayer> => ({
    weight: await vector(`${at}.weight`, [size]),
    bias: has(`${at}.bias`) ? await vector(`${at}.bias`, [size]) : null,
    eps,
  });
  return {
    pooling: modern ? poolingOf(folder, config) : 'cls',
    first: await layer(names.first, size, modern ? activationOf(folder, config) : 'tanh'),
    norm: names.norm === null ? null : await norm(names.norm),
    last: await layer(names.last, 1, 'identity'),
  };
}

/** As transformers counts them: two where a config says nothing. */
function labelsOf({ num_labels: stated, id2label: labels }: JsonObject): number {
  if (typeof labels === 'object' && labels !== null) return Object.keys(labels).length;
  return typeof stated === 'number' ? stated : 2;
}

function poolingOf(folder: string, { classifier_pooling: stated = 'cls' }: JsonObject): Pooling {
  if (stated === 'cls' || stated === 'mean') return stated;
  throw unsupported(folder, `its classifier_pooling is ${JSON.stringify(stated)}`);
}

function activationOf(
  folder: string,
  { classifier_activation: stated = 'gelu' }: JsonObject,
): DenseActivation {
  const known = DENSE_ACTIVATIONS.find((one) => one === stated);
  if (known !== undefined) return known;
  throw unsupported(folder, `its classifier_activation is ${JSON.stringify(stated)}`);
}

function unsupported(folder: string, what: string): KvantError {
  return new KvantError('rerank-unsupported', `${folder} does not rank documents by one score: ${what}.`, {
    kind: 'unsupported',
    where: `${folder}/config.json`,
    fix: 'Use a model such as bge-reranker-v2-m3 or gte-reranker-modernbert-base.',
  });
}
