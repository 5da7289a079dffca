/** What stands behind the hidden states of a model for embeddings or ranking in a GGUF file. */

import { KvantError } from '../../errors.js';
import { dequantiseRows } from '../../weights/dequantise.js';
import { GgufCheckpoint } from '../../weights/gguf-checkpoint.js';
import type { DenseActivation, DenseLayer, RankingHead } from './vectors.js';

/** `pooling_type` of a model that ranks. */
const RANKS = 4;
const EPS = 1e-5;

/** The matrices that a pooled hidden state goes through, in order: EmbeddingGemma has two. Errors: those of `GgufCheckpoint`. */
export async function ggufDenseLayers(path: string): Promise<DenseLayer[]> {
  const file = await GgufCheckpoint.open(path);
  try {
    const names = file.names().flatMap((name) => /^(dense_\d+)\.weight$/.exec(name)?.[1] ?? []);
    const layers: DenseLayer[] = [];
    for (const name of names.sort()) layers.push(await layerOf(file, name, 'identity'));
    return layers;
  } finally {
    await file.close();
  }
}

/**
 * The head of an encoder that ranks, as llama.cpp's converter keeps it and its graph computes it: RoBERTa's reads the first token, that of
 * ModernBERT the mean. Null for other files: decoders judge in words.
 * @throws KvantError `rerank-unsupported` for classes and for a head without its first layer; those of `GgufCheckpoint`
 */
export async function ggufRankingHead(path: string): Promise<RankingHead | null> {
  const file = await GgufCheckpoint.open(path);
  try {
    const arch = file.metadata.text('general.architecture') ?? '';
    const modern = arch === 'modern-bert';
    const ranks = file.metadata.count(`${arch}.pooling_type`, 0) === RANKS;
    if (!ranks || (arch !== 'bert' && !modern)) return null;
    if (!file.has('cls.output.weight') || !file.has('cls.weight'))
      throw unsupported(path, 'its head is not whole (cls.weight, cls.output.weight)');
    const last = await layerOf(file, 'cls.output', 'identity');
    if (last.rows !== 1) throw unsupported(path, `it tells ${last.rows} classes apart`);
    const numbers = (name: string): Promise<Float32Array> => file.vector(name, name, [last.cols]).read();
    return {
      pooling: modern ? 'mean' : 'cls',
      first: await layerOf(file, 'cls', modern ? 'gelu' : 'tanh'),
      norm: modern
        ? {
            weight: await numbers('cls.norm.weight'),
            bias: file.has('cls.norm.bias') ? await numbers('cls.norm.bias') : null,
            eps: file.metadata.number(`${arch}.attention.layer_norm_epsilon`) ?? EPS,
          }
        : null,
      last,
    };
  } finally {
    await file.close();
  }
}

async function layerOf(file: GgufCheckpoint, at: string, activation: DenseActivation): Promise<DenseLayer> {
  const name = `${at}.weight`;
  const shape = file.info(name)?.shape ?? [];
  // One row may be stored as a list.
  const one = shape.length === 1 ? { rows: 1, cols: shape[0]! } : undefined;
  const matrix = file.matrix(name, name, one);
  const { rows, cols, format } = matrix;
  const weight = new Float32Array(rows * cols);
  dequantiseRows(await matrix.readRows(0, rows), rows, cols, format, weight);
  const bias = file.has(`${at}.bias`) ? await file.vector(`${at}.bias`, at, [rows]).read() : null;
  return { rows, cols, activation, weight, bias };
}

function unsupported(path: string, what: string): KvantError {
  return new KvantError('rerank-unsupported', `${path} does not rank documents by one score: ${what}.`, {
    kind: 'unsupported',
    where: path,
    fix: 'Use a file of a model such as bge-reranker-v2-m3 or gte-reranker-modernbert-base.',
  });
}
